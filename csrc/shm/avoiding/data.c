/* The data of wait-avoiding versions: contributions, slices and results. */
#include "shm/avoiding/executor.h"

/* ---- taking a round: its members, inputs and weights ----------------------------------------- */

static void find_members(wagma_handle *h) {
    struct avoiding_executor *e = h->state;
    const struct round_local *l = &e->local;
    const int sync = h->call.sync && l->u == l->t;
    e->members = h->call.members;
    e->n = h->call.n;
    if (sync || (l->u == l->t && !h->policy.world))
        return;
    e->members = e->members_u;
    e->n = topology_members(&e->context.topology, h->rank, (int64_t)l->u - 1, e->members_u);
}

/* Looks up what every action on round local.c needs. */
static void take(wagma_handle *h) {
    struct avoiding_executor *e = h->state;
    wagma_segment *s = handle_segment(h);
    const struct round_local *l = &e->local;
    const struct policy *p = &h->policy;
    double total = 0;
    e->taken = l->u;
    find_members(h);
    for (int i = 0; i < e->n; i++) {
        /* relaxed: ordered by the reference to the round */
        const uint64_t in = atomic_load_explicit(segment_round_in(s, l->c, avoiding_place(h, i)),
                                                 memory_order_relaxed);
        const int contributes = !p->ordered || round_version(in) == l->u;
        const struct merge_part part =
            merge_part(p, contributes, *segment_round_weight(s, l->c, avoiding_place(h, i)));
        total += part.share;
        h->weights[i] = part.weight;
        h->inputs[i] = NULL;
        if (in != ROUND_DEPARTED && contributes)
            h->inputs[i] = avoiding_contribution(h, e->members[i], (int)round_buffer(in));
        if (l->fresh && e->members[i] == h->rank && !p->carries)
            h->inputs[i] = avoiding_own_values(h);
    }
    e->merge = merge_version(p, total, !l->fresh, h->call.weight, e->out_of_place);
}

/* A result that no cache holds until the others read it: it is written by streaming stores. */
static int is_large(const wagma_handle *h) {
    return handle_segment(h)->bytes_n >= REDUCE_STREAM_BYTES;
}

/* out[at, at+count) = the result, given what is stored of it. `near`: x is in the cache. */
static void deliver(wagma_handle *h, unsigned char *out, uint64_t at, const void *stored,
                    uint64_t count, int near) {
    const struct avoiding_executor *e = h->state;
    const size_t offset = at * reduce_dtype_size(avoiding_dtype(h));
    merge_deliver(&e->merge, h->kernels, avoiding_dtype(h), out + offset, stored,
                  (const unsigned char *)avoiding_own_values(h) + offset, count,
                  e->streams_x && !near);
}

typedef void sum_kernel(wagma_dtype, void *, const void *const *, const double *, int, double,
                        size_t);

void avoiding_shift_inputs(wagma_handle *h, uint64_t at) {
    struct avoiding_executor *e = h->state;
    const size_t offset = at * reduce_dtype_size(avoiding_dtype(h));
    for (int i = 0; i < e->n; i++)
        e->shifted[i] = h->inputs[i] ? (const unsigned char *)h->inputs[i] + offset : NULL;
}

/* out = elements [at, at+count) of the inputs' sum, divided. */
static void sum_inputs_by(sum_kernel *sum, wagma_handle *h, void *out, uint64_t at, uint64_t count,
                          double divisor) {
    const struct avoiding_executor *e = h->state;
    avoiding_shift_inputs(h, at);
    sum(avoiding_dtype(h), out, e->shifted, h->weights, e->n, divisor, count);
}

static void sum_inputs(wagma_handle *h, void *out, uint64_t at, uint64_t count, double divisor) {
    sum_inputs_by(h->kernels->sum, h, out, at, count, divisor);
}

/* The first slice is the end of the array: what was written last is still in the cache, and is read
 * before other slices take its place there. */
void avoiding_slice(const wagma_segment *s, uint32_t slice, uint64_t *at, uint64_t *count) {
    const uint64_t total = (uint64_t)s->options.count;
    *at = ((uint32_t)s->slices - 1 - slice) * s->slice_count;
    *count = slice == 0 ? total - *at : s->slice_count;
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* out[at, at+count), by blocks that stay in the cache. `result`: where that part of the shared
 * result is stored, too; or NULL. */
static void reduce_by_blocks(wagma_handle *h, unsigned char *result, unsigned char *out,
                             uint64_t at, uint64_t count) {
    struct avoiding_executor *e = h->state;
    const uint64_t size = reduce_dtype_size(avoiding_dtype(h)), step = AVOIDING_BLOCK_BYTES / size;
    for (uint64_t i = 0; i < count; i += step) {
        const uint64_t n = count - i < step ? count - i : step;
        sum_inputs(h, e->block, at + i, n, e->merge.stored);
        if (result)
            h->kernels->streamed_copy(avoiding_dtype(h), result + i * size, e->block, 1.0, n);
        deliver(h, out, at + i, e->block, n, !e->local.from_array);
    }
}

/* out[at, at+count) of every member, for what its array shows next. */
static void reduce_to_all(wagma_handle *h, uint64_t at, uint64_t count) {
    const wagma_segment *s = handle_segment(h);
    struct avoiding_executor *e = h->state;
    const wagma_dtype dtype = avoiding_dtype(h);
    const uint64_t size = reduce_dtype_size(dtype);
    const uint64_t step = AVOIDING_BLOCK_BYTES / size;
    for (int i = 0; i < e->n; i++) {
        /* relaxed: ordered by the reference to the round */
        const uint64_t in =
            atomic_load_explicit(segment_round_in(s, e->local.c, i), memory_order_relaxed);
        h->outputs[i] =
            segment_contribution(s, e->members[i], (int)round_takes(in) - 1) + at * size;
    }
    if (!is_large(h)) {
        avoiding_shift_inputs(h, at);
        h->kernels->sum_to_all(dtype, h->outputs, e->n, e->shifted, h->weights, e->n,
                               e->merge.divisor, count);
        return;
    }
    for (uint64_t i = 0; i < count; i += step) {
        const uint64_t n = count - i < step ? count - i : step;
        sum_inputs(h, e->block, at + i, n, e->merge.divisor);
        for (int k = 0; k < e->n; k++)
            h->kernels->streamed_copy(dtype, (unsigned char *)h->outputs[k] + i * size, e->block,
                                      1.0, n);
    }
}

static int reduce_slice(wagma_handle *h) {
    wagma_segment *s = handle_segment(h);
    struct avoiding_executor *e = h->state;
    const uint64_t began = clock_now();
    uint64_t at, count;
    avoiding_slice(s, e->local.s, &at, &count);
    unsigned char *result =
        segment_round_result(s, e->local.c) + at * reduce_dtype_size(avoiding_dtype(h));
    if (e->local.to_all) {
        reduce_to_all(h, at, count);
    } else if (e->local.view) {
        sum_inputs_by(is_large(h) ? h->kernels->streamed_sum : h->kernels->sum, h, result, at,
                      count, e->merge.stored);
    } else {
        unsigned char *out = avoiding_destination(h);
        if (!out)
            return WAGMA_ENOMEM;
        if (is_large(h)) {
            reduce_by_blocks(h, result, out, at, count);
        } else {
            sum_inputs(h, result, at, count, e->merge.stored);
            deliver(h, out, at, result, count, 1);
        }
    }
    const uint64_t ended = clock_now(), took = ended - began;
    if (took > e->slice_ns)
        e->slice_ns = took;
    if (trace_is_on(h->trace))
        trace_span(h->trace, TRACE_REDUCE, began, ended, avoiding_taken(h), -1, (int)e->local.s);
    return WAGMA_OK;
}

static int redo_slice(wagma_handle *h) {
    struct avoiding_executor *e = h->state;
    const uint64_t began = trace_begin(h->trace);
    unsigned char *out = avoiding_destination(h);
    uint64_t at, count;
    if (!out)
        return WAGMA_ENOMEM;
    avoiding_slice(handle_segment(h), e->local.s, &at, &count);
    if (e->local.to_all)
        sum_inputs(h, out + at * reduce_dtype_size(avoiding_dtype(h)), at, count, e->merge.divisor);
    else
        reduce_by_blocks(h, NULL, out, at, count);
    h->stats.redone_slices++;
    trace_end(h->trace, TRACE_REDUCE, began, avoiding_taken(h), -1, (int)e->local.s);
    return WAGMA_OK;
}

static int copy_slice(wagma_handle *h) {
    const wagma_segment *s = handle_segment(h);
    const struct round_local *l = &avoiding_of(h)->local;
    const uint64_t began = trace_begin(h->trace);
    const size_t size = reduce_dtype_size(avoiding_dtype(h));
    unsigned char *out = avoiding_destination(h);
    uint64_t at, count;
    if (!out)
        return WAGMA_ENOMEM;
    avoiding_slice(s, l->s, &at, &count);
    if (l->to_all) /* from what was left to the round: it is divided there */
        h->kernels->divided_copy(avoiding_dtype(h), out + at * size,
                                 segment_contribution(s, h->rank, (int)l->takes - 1) + at * size,
                                 1.0, count);
    else
        deliver(h, out, at, segment_round_result(s, l->c) + at * size, count, 0);
    trace_end(h->trace, TRACE_MERGE, began, avoiding_taken(h), -1, 0);
    return WAGMA_OK;
}

/* Everything from the inputs. In a round of all ranks this rank may be late, or its group be it
 * alone: then x is the result. */
static int reduce_private(wagma_handle *h) {
    struct avoiding_executor *e = h->state;
    const wagma_segment *s = handle_segment(h);
    const uint64_t began = trace_begin(h->trace);
    if (e->merge.weight == 0 || e->n == 1)
        return WAGMA_OK;
    unsigned char *out = avoiding_destination(h);
    if (!out)
        return WAGMA_ENOMEM;
    sum_kernel *sum =
        e->streams_x && e->local.from_array ? h->kernels->streamed_sum : h->kernels->sum;
    for (uint32_t slice = 0; slice < (uint32_t)s->slices; slice++) {
        uint64_t at, count;
        avoiding_slice(s, slice, &at, &count);
        if (e->local.fresh)
            sum_inputs_by(sum, h, out + at * reduce_dtype_size(avoiding_dtype(h)), at, count,
                          e->merge.divisor);
        else
            reduce_by_blocks(h, NULL, out, at, count);
    }
    trace_end(h->trace, TRACE_REDUCE, began, avoiding_taken(h), -1, 0);
    return WAGMA_OK;
}

/* ---- contributions --------------------------------------------------------------------------- */

/* Weights of the pinned contributions, kept with the round: the buffers may be gone sooner. */
static void gather_weights(wagma_handle *h) {
    wagma_segment *s = handle_segment(h);
    const struct round_local *l = &avoiding_of(h)->local;
    for (int i = 0; i < h->call.n; i++) {
        /* relaxed: written by this rank */
        const uint64_t in =
            atomic_load_explicit(segment_round_in(s, l->c, i), memory_order_relaxed);
        *segment_round_weight(s, l->c, i) =
            in == ROUND_DEPARTED ? 0
                                 : *segment_weight(s, h->call.members[i], (int)round_buffer(in));
    }
}

/* Adds what is carried. */
static void add_carried(wagma_handle *h, void *contribution) {
    struct avoiding_executor *e = h->state;
    const void *carried = segment_contribution(handle_segment(h), h->rank, (int)e->local.own);
    if (h->call.weight == 0) { /* nothing is contributed: it is carried on */
        h->kernels->divided_copy(avoiding_dtype(h), contribution, carried, 1.0,
                                 avoiding_elements(h));
        return;
    }
    merge_add_carried(h->kernels, avoiding_dtype(h), contribution, h->call.x, h->call.weight,
                      carried, e->carried_weight, avoiding_elements(h));
    e->carried_weight = h->call.weight;
}

/* The others are going to read it: see ways.h. Small ones take less than looking at the clock,
 * and what does not stay in the caches bypasses them anyway. */
static void copy_x(wagma_handle *h, void *contribution) {
    const uint64_t bytes = handle_segment(h)->bytes_n;
    const int timed = bytes >= 4 * WAYS_BYTES_MIN && bytes < REDUCE_STREAM_BYTES;
    const int streamed = timed && ways_choose(&avoiding_of(h)->stores);
    const uint64_t began = timed ? clock_now() : 0;
    if (streamed)
        h->kernels->streamed_copy(avoiding_dtype(h), contribution, h->call.x, 1.0,
                                  avoiding_elements(h));
    else
        h->kernels->divided_copy(avoiding_dtype(h), contribution, h->call.x, 1.0,
                                 avoiding_elements(h));
    if (timed)
        ways_note(&avoiding_of(h)->stores, streamed, clock_now() - began, bytes, WAYS_OF_STORES);
}

static void write_contribution(wagma_handle *h) {
    const struct avoiding_executor *e = h->state;
    const uint64_t began = trace_begin(h->trace);
    unsigned char *contribution =
        segment_contribution(handle_segment(h), h->rank, (int)e->local.buffer);
    if (e->carries)
        add_carried(h, contribution);
    else if (h->call.weight != 0 && !e->out_of_place && !e->local.from_array)
        copy_x(h, contribution); /* of weight 0 it is never read */
    avoiding_prepare_x(h);
    trace_end(h->trace, TRACE_WRITE, began, h->call.version, -1, 0);
}

/* Performs an action on what lies in the segment. */
static int in_segment(wagma_handle *h, enum round_action action) {
    const struct round_local *l = &avoiding_of(h)->local;
    switch (action) {
    case ROUND_WRITE: write_contribution(h); return WAGMA_OK;
    case ROUND_PRIVATE: return reduce_private(h);
    case ROUND_REDUCE: return reduce_slice(h);
    case ROUND_COPY: return copy_slice(h);
    case ROUND_REDO: return redo_slice(h);
    case ROUND_COLLECT:
        return l->to_all && !l->copying && !avoiding_writable_x(h) ? WAGMA_ENOMEM : WAGMA_OK;
    default: __builtin_unreachable();
    }
}

int avoiding_data(wagma_handle *h, enum round_action action) {
    struct avoiding_executor *e = h->state;
    const struct avoiding_plane *plane = e->plane;
    if (action == ROUND_GATHER) {
        gather_weights(h);
        return WAGMA_OK;
    }
    if (action == ROUND_WRITE) {
        *segment_weight(handle_segment(h), h->rank, (int)e->local.buffer) = h->call.weight;
        e->publishing = 1;
    } else if (e->taken != e->local.u) {
        const int status = plane ? plane->open(h) : WAGMA_OK;
        if (status != WAGMA_OK)
            return status;
        take(h);
    }
    if (action == ROUND_COLLECT)
        avoiding_collect(h);
    return plane ? plane->data(h, action) : in_segment(h, action);
}
