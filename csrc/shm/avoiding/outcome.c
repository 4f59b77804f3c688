/* The end of wait-avoiding calls: the outcome, and where the result is. */
#include "shm/avoiding/executor.h"
#include "base/error.h"
#include "base/pages.h"

/* N bytes in *memory, made when they are first needed; NULL: error_set(). */
static unsigned char *memory_for(const wagma_handle *h, unsigned char **memory) {
    if (!*memory && !(*memory = pages_new(h->segment->bytes_n)))
        (void)error_set(WAGMA_ENOMEM, "no memory for a result of %zu bytes",
                        (size_t)h->segment->bytes_n);
    return *memory;
}

unsigned char *shm_destination(wagma_handle *h) {
    struct shm_executor *e = h->shm;
    if (e->context.ordered)
        return memory_for(h, &e->copies[e->results_count]);
    return e->out_of_place ? memory_for(h, &e->alone) : shm_writable_x(h);
}

void shm_collect(wagma_handle *h) {
    struct shm_executor *e = h->shm;
    wagma_outcome *o = &h->outcome;
    o->contributors_count = 0;
    for (int i = 0; i < e->n; i++) {
        if (h->weights[i] == 0)
            continue;
        /* relaxed: ordered by the reference to the round */
        const uint64_t in = atomic_load_explicit(
            segment_round_in(h->segment, e->local.c, shm_place(e, i)), memory_order_relaxed);
        h->contributors[o->contributors_count] = e->members[i];
        h->versions[o->contributors_count++] = (int64_t)round_version(in) - 1;
    }
    o->weight = e->divisor;
    o->merged |= e->divisor != 0;
    if (!e->context.ordered)
        return;
    const void *result = e->local.copying ? (const void *)e->copies[e->results_count]
                                          : segment_round_result(h->segment, e->local.c);
    e->results[e->results_count++] = e->divisor == 0 ? NULL : result;
    e->input.redo = 0; /* of the next version */
}

/* A group of one: the contribution is the result. */
static int outcome_alone(wagma_handle *h) {
    struct shm_executor *e = h->shm;
    wagma_outcome *o = &h->outcome;
    const double weight = h->call.weight;
    const int scale = !h->segment->options.average || (e->out_of_place && !e->context.ordered);
    const void *contribution = shm_own_values(h);
    o->weight = weight;
    o->merged = weight != 0;
    o->contributors_count = weight != 0;
    h->contributors[0] = h->rank;
    h->versions[0] = h->call.version;
    if (e->context.ordered) { /* with what is carried; and x may change while it is looked at */
        contribution = segment_contribution(h->segment, h->rank, (int)e->local.own);
        e->results[e->results_count++] = NULL;
    }
    if (weight == 0)
        return WAGMA_OK;
    if (scale && weight != 1) {
        unsigned char *out = e->context.ordered ? memory_for(h, &e->copies[0]) : shm_destination(h);
        if (!out)
            return WAGMA_ENOMEM;
        h->kernels->sum(shm_dtype(h), out, &contribution, &weight, 1, 1.0, shm_elements(h));
        contribution = out;
    }
    if (e->context.ordered)
        e->results[0] = contribution;
    else if (e->out_of_place)
        o->result = contribution;
    return WAGMA_OK;
}

/* Ordered: the results of this call; x becomes the newest one. */
static int outcome_ordered(wagma_handle *h) {
    struct shm_executor *e = h->shm;
    wagma_outcome *o = &h->outcome;
    const void *newest = NULL;
    for (int k = 0; k < e->results_count; k++)
        newest = e->results[k] ? e->results[k] : newest;
    if (newest && !e->out_of_place) {
        const uint64_t began = trace_begin(h->trace);
        unsigned char *out = shm_writable_x(h);
        if (!out)
            return WAGMA_ENOMEM;
        h->kernels->divided_copy(shm_dtype(h), out, newest, 1.0, shm_elements(h));
        trace_end(h->trace, TRACE_MERGE, began, shm_taken(h), -1, 0);
    }
    o->results = e->results;
    o->results_count = e->results_count;
    if (e->local.u != 0)
        h->call.next = (int64_t)e->local.u;
    if (h->segment->options.late != WAGMA_LATE_CARRY)
        return WAGMA_OK;
    if (o->late && h->call.weight != 0) {
        e->carries = 1;
        e->carried_weight = h->call.weight;
    } else if (h->call.weight != 0) {
        e->carries = 0;
    }
    return WAGMA_OK;
}

/* Out of place: where the undivided sum is. */
static void outcome_out_of_place(wagma_handle *h) {
    const struct shm_executor *e = h->shm;
    if (h->outcome.merged)
        h->outcome.result =
            e->local.kept ? segment_round_result(h->segment, e->local.kept - 1) : e->alone;
}

int shm_outcome(wagma_handle *h) {
    struct shm_executor *e = h->shm;
    wagma_outcome *o = &h->outcome;
    const struct round_local *l = &e->local;
    int status = WAGMA_OK;
    o->late = l->outcome == ROUND_LATE || l->outcome == ROUND_UNMERGED;
    if (l->outcome == ROUND_ALONE)
        status = outcome_alone(h);
    if (l->outcome == ROUND_UNMERGED) {
        o->weight = h->call.weight;
        h->stats.unmerged++;
    }
    if (l->outcome == ROUND_LATE && e->context.forward) {
        h->call.next = (int64_t)l->u;
        o->skipped = (int64_t)(l->u - l->t);
    }
    if (status == WAGMA_OK && l->outcome != ROUND_UNMERGED && e->context.world && e->n == 1 &&
        !h->call.sync) { /* its group is this rank: x is the result, late or not */
        status = outcome_alone(h);
    } else if (e->context.ordered) {
        status = outcome_ordered(h);
    } else if (e->out_of_place && l->outcome != ROUND_ALONE) {
        outcome_out_of_place(h);
    }
    h->stats.late += o->late;
    return status;
}
