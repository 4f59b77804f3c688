/* Wait-avoiding versions on one node: drives the round protocol (round.c) and moves the data.
 *
 * Passive by construction: an absent rank needs no thread. Whatever round.c asks for is done here:
 * write the contribution, reduce slices, deliver them to x, wait. A call that has to wait returns
 * to round.c after every pause, so that a state is looked at again and never remembered. */
#include "executor_shm.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 16384 }; /* of a redone slice: stays in the first-level cache */

int shm_create(wagma_handle *h, const void *initial, double weight) {
    wagma_segment *s = h->segment;
    struct shm_executor *e = calloc(1, sizeof *e);
    if (!e)
        return error_set(WAGMA_ENOMEM, "no memory for the executor");
    h->shm = e;
    e->committed_contributions = segment_joined_contributions(s);
    e->committed_rounds = segment_joined_rounds(s);
    e->scratch = calloc((size_t)s->size, sizeof *e->scratch);
    e->members_u = calloc((size_t)s->size, sizeof *e->members_u);
    e->missing = calloc((size_t)s->size, sizeof *e->missing);
    e->block = malloc(BLOCK_BYTES);
    e->shifted = calloc((size_t)s->size, sizeof *e->shifted);
    if (!e->scratch || !e->members_u || !e->missing || !e->shifted || !e->block ||
        grace_create(&e->grace, s) != 0)
        return error_set(WAGMA_ENOMEM, "no memory for the executor of %d ranks", s->size);
    e->context = (struct round_context){
        .memory = (struct round_memory *)s,
        .rank = (uint32_t)h->rank,
        .size = (uint32_t)s->size,
        .topology = s->topology,
        .world = s->options.activation == WAGMA_ACTIVATION_WORLD,
        .quorum = s->options.quorum == WAGMA_QUORUM_MAJORITY ? 0 : (uint32_t)s->options.quorum,
        .slots = (uint32_t)s->slots,
        .rounds = (uint32_t)s->rounds,
        .slices = (uint32_t)s->slices,
        .buffers_usable = (uint32_t)e->committed_contributions,
        .rounds_usable = (uint32_t)e->committed_rounds,
        .window = (uint64_t)s->options.window,
        .scratch = e->scratch,
    };
    round_init(&e->local);
    for (int i = 0; i < e->committed_rounds; i++)
        /* release: published to others by the state JOINED */
        atomic_store_explicit(&segment_round_of(s, (uint32_t)(h->rank * s->rounds + i))->free, 1,
                              memory_order_release);
    if (initial)
        memcpy(segment_contribution(s, h->rank, 0), initial, s->bytes_n);
    *segment_weight(s, h->rank, 0) = weight;
    return WAGMA_OK;
}

/* ---- taking a round: its members, inputs and weights ------------------------------------------
 */

/* Looks up, once per call, what every action on round local.c needs. */
static void take(wagma_handle *h) {
    struct shm_executor *e = h->shm;
    wagma_segment *s = h->segment;
    const struct round_local *l = &e->local;
    if (e->taken)
        return;
    e->taken = 1;
    e->members = h->call.members;
    e->n = h->call.n;
    if (l->u != l->t) {
        e->n = round_members_of(&e->context, l->u, (uint32_t)h->rank, 0, e->members_u);
        e->members = e->members_u;
    }
    e->total = 0;
    for (int i = 0; i < e->n; i++) {
        /* relaxed: ordered by the reference to the round */
        const uint64_t in =
            atomic_load_explicit(segment_round_in(s, l->c, i), memory_order_relaxed);
        h->weights[i] = *segment_round_weight(s, l->c, i);
        h->inputs[i] = NULL;
        if (in != ROUND_DEPARTED)
            h->inputs[i] = segment_contribution(s, e->members[i], (int)round_buffer(in));
        /* x still holds what this rank contributed, and it is nearer */
        if (l->fresh && e->members[i] == h->rank)
            h->inputs[i] = h->call.x;
        e->total += h->weights[i];
    }
    e->divisor = l->fresh ? e->total : e->total + h->call.weight;
}

static double divisor_of(const wagma_handle *h) {
    return h->segment->options.average ? h->shm->divisor : 1.0;
}

/* What a round's result is divided by where it is stored: 1, it holds the numerators R. But 16-bit
 * floats would overflow (30000 + 30000 is infinite in f16) and be rounded twice: where an average
 * is wanted they hold it. */
static double stored_divisor_of(const wagma_handle *h) {
    const wagma_options *o = &h->segment->options;
    const int average = o->average && reduce_dtype_size((wagma_dtype)o->dtype) == 2;
    return average && h->shm->total != 0 ? h->shm->total : 1.0;
}

/* x[at, at+count) = the result, given what is stored of it. */
static void deliver(wagma_handle *h, uint64_t at, const void *stored, uint64_t count) {
    const wagma_segment *s = h->segment;
    const struct shm_executor *e = h->shm;
    const wagma_dtype dtype = (wagma_dtype)s->options.dtype;
    unsigned char *x = (unsigned char *)h->call.x + at * reduce_dtype_size(dtype);
    const double times = stored_divisor_of(h);
    if (e->divisor == 0)
        return; /* x unchanged */
    if (e->local.fresh) {
        h->kernels->divided_copy(dtype, x, stored, times == 1 ? divisor_of(h) : 1.0, count);
        return;
    }
    const void *const in[2] = {stored, x};
    const double weights[2] = {times, h->call.weight};
    h->kernels->sum(dtype, x, in, weights, 2, divisor_of(h), count);
}

/* out = elements [at, at+count) of the inputs' sum, divided. */
static void sum_inputs(wagma_handle *h, void *out, uint64_t at, uint64_t count, double divisor) {
    const wagma_dtype dtype = (wagma_dtype)h->segment->options.dtype;
    const size_t offset = at * reduce_dtype_size(dtype);
    const void **inputs = h->shm->shifted;
    for (int i = 0; i < h->shm->n; i++)
        inputs[i] = h->inputs[i] ? (const unsigned char *)h->inputs[i] + offset : NULL;
    h->kernels->sum(dtype, out, inputs, h->weights, h->shm->n, divisor, count);
}

static void slice_range(const wagma_segment *s, uint32_t slice, uint64_t *at, uint64_t *count) {
    const uint64_t total = (uint64_t)s->options.count;
    *at = slice * s->slice_count;
    *count = slice + 1 == (uint32_t)s->slices ? total - *at : s->slice_count;
}

static void reduce_slice(wagma_handle *h) {
    wagma_segment *s = h->segment;
    struct shm_executor *e = h->shm;
    const size_t size = reduce_dtype_size((wagma_dtype)s->options.dtype);
    const uint64_t began = wait_now();
    uint64_t at, count;
    slice_range(s, e->local.s, &at, &count);
    void *result = segment_round_result(s, e->local.c) + at * size;
    sum_inputs(h, result, at, count, stored_divisor_of(h));
    deliver(h, at, result, count);
    const uint64_t took = wait_now() - began;
    if (took > e->slice_ns)
        e->slice_ns = took;
}

static void redo_slice(wagma_handle *h) {
    struct shm_executor *e = h->shm;
    const uint64_t step = BLOCK_BYTES / reduce_dtype_size((wagma_dtype)h->segment->options.dtype);
    uint64_t at, count;
    slice_range(h->segment, e->local.s, &at, &count);
    for (uint64_t i = 0; i < count; i += step) {
        const uint64_t n = count - i < step ? count - i : step;
        sum_inputs(h, e->block, at + i, n, stored_divisor_of(h));
        deliver(h, at + i, e->block, n);
    }
    h->stats.redone_slices++;
}

static void copy_slice(wagma_handle *h) {
    const wagma_segment *s = h->segment;
    const struct shm_executor *e = h->shm;
    uint64_t at, count;
    slice_range(s, e->local.s, &at, &count);
    deliver(h, at,
            segment_round_result(s, e->local.c) +
                at * reduce_dtype_size((wagma_dtype)s->options.dtype),
            count);
}

/* Weights of the pinned contributions, kept with the round: the buffers may be gone sooner. */
static void gather_weights(wagma_handle *h) {
    wagma_segment *s = h->segment;
    const struct round_local *l = &h->shm->local;
    for (int i = 0; i < h->call.n; i++) {
        /* relaxed: written by this rank */
        const uint64_t in =
            atomic_load_explicit(segment_round_in(s, l->c, i), memory_order_relaxed);
        *segment_round_weight(s, l->c, i) =
            in == ROUND_DEPARTED ? 0
                                 : *segment_weight(s, h->call.members[i], (int)round_buffer(in));
    }
}

static void write_contribution(wagma_handle *h) {
    wagma_segment *s = h->segment;
    struct shm_executor *e = h->shm;
    const wagma_dtype dtype = (wagma_dtype)s->options.dtype;
    const int b = (int)e->local.buffer;
    if (h->call.weight != 0) /* a contribution of weight 0 is never read */
        h->kernels->divided_copy(dtype, segment_contribution(s, h->rank, b), h->call.x, 1.0,
                                 (size_t)s->options.count);
    *segment_weight(s, h->rank, b) = h->call.weight;
    grace_arrive(&e->grace, s, h->rank, e->local.t);
    e->publishing = 1;
}

/* ---- outcomes
 * ------------------------------------------------------------------------------------ */

static void collect(wagma_handle *h) {
    const struct shm_executor *e = h->shm;
    wagma_outcome *o = &h->outcome;
    take(h);
    for (int i = 0; i < e->n; i++) {
        if (h->weights[i] == 0)
            continue;
        /* relaxed: ordered by the reference to the round */
        const uint64_t in =
            atomic_load_explicit(segment_round_in(h->segment, e->local.c, i), memory_order_relaxed);
        h->contributors[o->contributors_count] = e->members[i];
        h->versions[o->contributors_count++] = (int64_t)round_version(in) - 1;
    }
    o->weight = e->divisor;
    o->merged = e->divisor != 0;
}

static void finish_outcome(wagma_handle *h) {
    wagma_segment *s = h->segment;
    wagma_outcome *o = &h->outcome;
    switch ((enum round_outcome)h->shm->local.outcome) {
    case ROUND_ALONE:
        o->weight = h->call.weight;
        if (h->call.weight != 0) {
            o->merged = 1;
            o->contributors_count = 1;
            h->contributors[0] = h->rank;
            h->versions[0] = h->call.version;
            if (!s->options.average && h->call.weight != 1) {
                const void *in = h->call.x;
                h->kernels->sum((wagma_dtype)s->options.dtype, h->call.x, &in, &h->call.weight, 1,
                                1.0, (size_t)s->options.count);
            }
        }
        break;
    case ROUND_UNMERGED:
        o->late = 1;
        o->weight = h->call.weight;
        h->stats.unmerged++;
        break;
    case ROUND_LATE:
        o->late = 1;
        break;
    case ROUND_FRESH:
    case ROUND_GONE:
        break;
    }
    h->stats.late += o->late;
}

/* ---- the loop ----------------------------------------------------------------------------------
 */

/* Does what round.c asks for until the call is over (WAGMA_OK), an error, or, with a budget, a wait
 * that lasts longer (WAGMA_INPROGRESS). */
static int run(wagma_handle *h, uint64_t budget_ns) {
    struct shm_executor *e = h->shm;
    wagma_segment *s = h->segment;
    for (;;) {
        const enum round_action action =
            round_run(&e->context, &e->local, h->call.members, e->input);
        if (e->publishing) { /* what was written is published: it may be what the window waits for
                              */
            e->publishing = 0;
            wait_ring_window(s, h->rank);
        }
        if (action == ROUND_WAIT) {
            const int status = shm_pause(h, budget_ns);
            if (status != WAGMA_OK)
                return status;
            continue;
        }
        shm_resume(h);
        switch (action) {
        case ROUND_WRITE:
            write_contribution(h);
            break;
        case ROUND_PINNED:
            wait_ring(s, h->call.members, h->call.n, h->rank);
            break;
        case ROUND_COMPLETE: /* of version u, which may have another group */
            wait_ring(s, e->members, e->n, h->rank);
            break;
        case ROUND_GATHER:
            gather_weights(h);
            break;
        case ROUND_PRIVATE:
            take(h);
            if (e->divisor != 0)
                sum_inputs(h, h->call.x, 0, (uint64_t)s->options.count, divisor_of(h));
            break;
        case ROUND_REDUCE:
            take(h);
            reduce_slice(h);
            break;
        case ROUND_COPY:
            take(h);
            copy_slice(h);
            break;
        case ROUND_REDO:
            take(h);
            redo_slice(h);
            break;
        case ROUND_COLLECT:
            collect(h);
            break;
        case ROUND_MISMATCH:
            return shm_mismatch(h);
        case ROUND_RETURN:
            finish_outcome(h);
            grace_return(&e->grace, s, h);
            return WAGMA_OK;
        case ROUND_STEP:
        case ROUND_WAIT:
            break;
        }
    }
}

int shm_start(wagma_handle *h) {
    struct shm_executor *e = h->shm;
    e->taken = 0;
    e->slice_ns = 0;
    e->input = (struct round_input){.grace_over = h->segment->options.grace == 0};
    grace_call(&e->grace, h);
    round_begin(&e->context, &e->local, (uint64_t)h->call.version + 1, h->call.sync,
                h->call.members, h->call.n);
    return run(h, SHM_START_NS);
}

int shm_finish(wagma_handle *h) {
    return run(h, 0);
}

void shm_close(wagma_handle *h) {
    struct shm_executor *e = h->shm;
    const struct round_input input = {0};
    round_begin_departure(&e->local);
    while (round_run(&e->context, &e->local, h->call.members, input) != ROUND_RETURN)
        ;
}

void shm_free(wagma_handle *h) {
    struct shm_executor *e = h->shm;
    if (!e)
        return;
    grace_destroy(&e->grace);
    free(e->scratch);
    free(e->members_u);
    free(e->missing);
    free(e->shifted);
    free(e->block);
    free(e);
    h->shm = NULL;
}

uint64_t shm_bytes(const wagma_handle *h) {
    const wagma_segment *s = h->segment;
    const struct shm_executor *e = h->shm;
    return segment_joined_bytes(s) +
           (uint64_t)(e->committed_contributions - segment_joined_contributions(s)) *
               s->contribution_bytes +
           (uint64_t)(e->committed_rounds - segment_joined_rounds(s)) * s->round_bytes;
}

double shm_grace(const wagma_handle *h) {
    return (double)grace_value(&h->shm->grace) * 1e-9;
}
