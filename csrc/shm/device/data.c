/* Queues what the round protocol asks for: copies and sums of contributions, slices and results. */
#include "shm/device/executor.h"

static size_t bytes_of(const wagma_handle *h, uint64_t elements) {
    return elements * reduce_dtype_size(avoiding_dtype(h));
}

/* ---- queueing -------------------------------------------------------------------------------- */

static int copy(wagma_handle *h, void *out, const void *in, uint64_t count) {
    struct device_executor *d = device_of(h);
    if (count == 0)
        return WAGMA_OK;
    d->queued = 1;
    return d->device->calls->copy(d->device, d->stream, out, in, bytes_of(h, count));
}

static int sum(wagma_handle *h, void *out, const void *const *in, const double *weights, int n,
               double divisor, uint64_t count) {
    struct device_executor *d = device_of(h);
    if (count == 0)
        return WAGMA_OK;
    d->queued = 1;
    return d->device->calls->sum(d->device, d->stream, avoiding_dtype(h), out, in, weights, n,
                                 divisor, count);
}

/* What merge.h says of elements [at, at + count): in[] are whole arrays, or where `at` is. */
static int sum_merged(wagma_handle *h, void *out, const struct merge_sum *m, uint64_t count) {
    if (m->n == 0 || (m->n == 1 && m->in[0] == out && m->divisor == 1))
        return WAGMA_OK;
    if (m->n == 1 && m->divisor == 1)
        return copy(h, out, m->in[0], count);
    return sum(h, out, m->in, m->weights, m->n, m->divisor, count);
}

/* out = elements [at, at + count) of the inputs' sum, divided. */
static int sum_inputs(wagma_handle *h, void *out, uint64_t at, uint64_t count, double divisor) {
    const struct avoiding_executor *e = h->state;
    avoiding_shift_inputs(h, at);
    return sum(h, out, e->shifted, h->weights, e->n, divisor, count);
}

/* Elements [at, at + count) of the result, given what is stored of them. */
static int deliver(wagma_handle *h, unsigned char *out, uint64_t at, const void *stored,
                   uint64_t count) {
    const struct avoiding_executor *e = h->state;
    const size_t offset = bytes_of(h, at);
    const struct merge_sum m =
        merge_sum_of(&e->merge, stored, (const unsigned char *)h->call.x + offset);
    return sum_merged(h, out + offset, &m, count);
}

int device_clear(wagma_handle *h, void *out) {
    return sum(h, out, NULL, NULL, 0, 1, (uint64_t)avoiding_elements(h));
}

int device_copy(wagma_handle *h, void *out, const void *in) {
    return copy(h, out, in, (uint64_t)avoiding_elements(h));
}

int device_scale(wagma_handle *h, void *out, const void *in, double factor) {
    if (factor == 1)
        return device_copy(h, out, in);
    return sum(h, out, &in, &factor, 1, 1, (uint64_t)avoiding_elements(h));
}

/* ---- actions --------------------------------------------------------------------------------- */

static int write_contribution(wagma_handle *h) {
    const struct avoiding_executor *e = h->state;
    const double weight = h->call.weight;
    void *out = avoiding_contribution(h, h->rank, (int)e->local.buffer);
    int status = WAGMA_OK;
    if (e->carries) {
        const void *carried = avoiding_contribution(h, h->rank, (int)e->local.own);
        const struct merge_sum m = merge_carried(h->call.x, weight, carried, e->carried_weight);
        /* of weight 0 nothing is contributed: it is carried on */
        status = weight == 0 ? device_copy(h, out, carried)
                             : sum_merged(h, out, &m, (uint64_t)avoiding_elements(h));
    } else if (weight != 0 && !e->out_of_place) {
        status = device_copy(h, out, h->call.x);
    }
    return status == WAGMA_OK ? device_mark(h) : status;
}

/* The slice is marked when it is reduced; its delivery may take longer. */
static int reduce_slice(wagma_handle *h) {
    const struct avoiding_executor *e = h->state;
    unsigned char *result = avoiding_result(h, e->local.c), *out = NULL;
    uint64_t at, count;
    avoiding_slice(handle_segment(h), e->local.s, &at, &count);
    result += bytes_of(h, at);
    if (!e->local.view && !(out = avoiding_destination(h)))
        return WAGMA_ENOMEM;
    int status = sum_inputs(h, result, at, count, e->merge.stored);
    if (status == WAGMA_OK)
        status = device_mark(h);
    device_of(h)->reducing = 1;
    if (status == WAGMA_OK && out)
        status = deliver(h, out, at, result, count);
    return status;
}

static int copy_slice(wagma_handle *h) {
    const struct avoiding_executor *e = h->state;
    unsigned char *out = avoiding_destination(h);
    uint64_t at, count;
    if (!out)
        return WAGMA_ENOMEM;
    avoiding_slice(handle_segment(h), e->local.s, &at, &count);
    return deliver(h, out, at, avoiding_result(h, e->local.c) + bytes_of(h, at), count);
}

/* A stored result of 16 bits is rounded before x is added. */
static int add_to_rounded(wagma_handle *h, unsigned char *out, uint64_t at, uint64_t count) {
    const struct avoiding_executor *e = h->state;
    void *scratch = device_of(h)->scratch;
    const uint64_t step = handle_segment(h)->slice_count;
    int status = WAGMA_OK;
    for (uint64_t i = 0; i < count && status == WAGMA_OK; i += step) {
        const uint64_t n = count - i < step ? count - i : step;
        status = sum_inputs(h, scratch, at + i, n, e->merge.stored);
        if (status == WAGMA_OK)
            status = deliver(h, out, at + i, scratch, n);
    }
    return status;
}

/* Elements [at, at + count) of the result from the inputs, with nothing that others read. x is one
 * input more where it is added: sums of larger elements have the same bits as in two steps. */
static int reduce_apart(wagma_handle *h, uint64_t at, uint64_t count) {
    struct avoiding_executor *e = h->state;
    unsigned char *out;
    if (e->merge.weight == 0)
        return WAGMA_OK;
    if (!(out = avoiding_destination(h)))
        return WAGMA_ENOMEM;
    if (e->merge.adds && device_of(h)->scratch)
        return add_to_rounded(h, out, at, count);
    const size_t offset = bytes_of(h, at);
    avoiding_shift_inputs(h, at);
    e->shifted[e->n] = (const unsigned char *)h->call.x + offset;
    h->weights[e->n] = e->merge.own;
    return sum(h, out + offset, e->shifted, h->weights, e->n + e->merge.adds, e->merge.divisor,
               count);
}

static int redo_slice(wagma_handle *h) {
    uint64_t at, count;
    avoiding_slice(handle_segment(h), avoiding_of(h)->local.s, &at, &count);
    h->stats.redone_slices++;
    return reduce_apart(h, at, count);
}

static int reduce_private(wagma_handle *h) {
    const struct avoiding_executor *e = h->state;
    return e->n == 1 ? WAGMA_OK : reduce_apart(h, 0, (uint64_t)avoiding_elements(h));
}

/* Check that what the action reads or shows could be opened. */
static int check_reach(wagma_handle *h, enum round_action action) {
    const struct round_local *l = &avoiding_of(h)->local;
    const int shows = action == ROUND_COLLECT && l->view && !l->copying && !h->policy.world;
    return device_check_reach(
        h, action == ROUND_REDUCE || action == ROUND_PRIVATE || action == ROUND_REDO,
        action == ROUND_REDUCE || action == ROUND_COPY || shows);
}

int device_data(wagma_handle *h, enum round_action action) {
    const int status = check_reach(h, action);
    if (status != WAGMA_OK)
        return status;
    switch (action) {
    case ROUND_WRITE: return write_contribution(h);
    case ROUND_PRIVATE: return reduce_private(h);
    case ROUND_REDUCE: return reduce_slice(h);
    case ROUND_COPY: return copy_slice(h);
    case ROUND_REDO: return redo_slice(h);
    case ROUND_COLLECT: /* the next step gives the inputs and the result back */
        return device_of(h)->queued ? device_mark(h) : WAGMA_OK;
    default: __builtin_unreachable();
    }
}
