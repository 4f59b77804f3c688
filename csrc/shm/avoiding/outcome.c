/* The end of wait-avoiding calls: the outcome, and the place of the result. */
#include <stdlib.h>

#include "base/error.h"
#include "base/pages.h"
#include "shm/avoiding/executor.h"

/* N bytes in *memory, made when they are first needed; NULL: error_set(). */
static unsigned char *memory_for(const wagma_handle *h, unsigned char **memory) {
    const struct avoiding_plane *plane = avoiding_of(h)->plane;
    if (!*memory && plane)
        *memory = plane->private_new(h);
    else if (!*memory && !(*memory = pages_new(handle_segment(h)->bytes_n)))
        (void)error_set(WAGMA_ENOMEM, "no memory for a result of %zu bytes",
                        (size_t)handle_segment(h)->bytes_n);
    return *memory;
}

unsigned char *avoiding_destination(wagma_handle *h) {
    struct avoiding_executor *e = h->state;
    if (h->policy.ordered)
        return memory_for(h, &e->copies[e->results_count]);
    return e->out_of_place ? memory_for(h, &e->alone) : avoiding_writable_x(h);
}

void avoiding_free_destination(const wagma_handle *h, unsigned char *memory) {
    const struct avoiding_plane *plane = avoiding_of(h)->plane;
    if (plane && memory)
        plane->private_free(h, memory);
    else
        free(memory);
}

void avoiding_collect(wagma_handle *h) {
    struct avoiding_executor *e = h->state;
    h->outcome.contributors_count = 0;
    for (int i = 0; i < e->n; i++) {
        if (h->weights[i] == 0)
            continue;
        /* relaxed: ordered by the reference to the round */
        const uint64_t in = atomic_load_explicit(
            segment_round_in(handle_segment(h), e->local.c, avoiding_place(h, i)),
            memory_order_relaxed);
        merge_list(h, e->members[i], (int64_t)round_version(in) - 1, h->weights[i]);
    }
    merge_outcome(h, e->merge.weight);
    if (!h->policy.ordered)
        return;
    const void *result = e->local.copying ? (const void *)e->copies[e->results_count]
                                          : avoiding_result(h, e->local.c);
    e->results[e->results_count++] = e->merge.weight == 0 ? NULL : result;
    e->input.redo = 0; /* of the next version */
}

/* out = factor * in */
static int scale(wagma_handle *h, void *out, const void *in, double factor) {
    const struct avoiding_plane *plane = avoiding_of(h)->plane;
    if (plane)
        return plane->scale(h, out, in, factor);
    if (factor == 1)
        h->kernels->divided_copy(avoiding_dtype(h), out, in, 1.0, avoiding_elements(h));
    else
        h->kernels->sum(avoiding_dtype(h), out, &in, &factor, 1, 1.0, avoiding_elements(h));
    return WAGMA_OK;
}

/* A group of one: the contribution is the result. */
static int outcome_alone(wagma_handle *h) {
    struct avoiding_executor *e = h->state;
    const int ordered = h->policy.ordered;
    const double weight = h->call.weight;
    const double factor = merge_alone(&h->policy, weight, e->out_of_place);
    const void *contribution = avoiding_own_values(h);
    merge_outcome_alone(h);
    if (ordered) { /* with what is carried; and x may change while it is looked at */
        contribution = avoiding_contribution(h, h->rank, (int)e->local.own);
        e->results[e->results_count++] = NULL;
    }
    if (weight == 0)
        return WAGMA_OK;
    if (factor != 1) {
        unsigned char *out = ordered ? memory_for(h, &e->copies[0]) : avoiding_destination(h);
        const int status = out ? scale(h, out, contribution, factor) : WAGMA_ENOMEM;
        if (status != WAGMA_OK)
            return status;
        contribution = out;
    }
    if (ordered)
        e->results[0] = contribution;
    else if (e->out_of_place)
        h->outcome.result = contribution;
    return WAGMA_OK;
}

/* Carry this contribution, which is published, to the next one, including what it carried itself.
 */
static void carry(wagma_handle *h) {
    struct avoiding_executor *e = h->state;
    const enum merge_carry now = merge_carry(&h->policy, h->outcome.late, h->call.weight);
    if (now == MERGE_CARRY_AS_BEFORE)
        return;
    e->carries = now == MERGE_CARRY_THIS;
    e->carried_weight = h->call.weight;
}

/* Ordered: the results of this call; x becomes the newest one. */
static int outcome_ordered(wagma_handle *h) {
    struct avoiding_executor *e = h->state;
    wagma_outcome *o = &h->outcome;
    const void *newest = NULL;
    for (int k = 0; k < e->results_count; k++)
        newest = e->results[k] ? e->results[k] : newest;
    if (newest && !e->out_of_place) {
        const uint64_t began = trace_begin(h->trace);
        unsigned char *out = avoiding_writable_x(h);
        const int status = out ? scale(h, out, newest, 1) : WAGMA_ENOMEM;
        if (status != WAGMA_OK)
            return status;
        trace_end(h->trace, TRACE_MERGE, began, avoiding_taken(h), -1, 0);
    }
    o->results = e->results;
    o->results_count = e->results_count;
    carry(h);
    return WAGMA_OK;
}

/* Out of place: where the undivided sum is. */
static void outcome_out_of_place(wagma_handle *h) {
    const struct avoiding_executor *e = h->state;
    if (h->outcome.merged)
        h->outcome.result = e->local.kept ? avoiding_result(h, e->local.kept - 1) : e->alone;
}

int avoiding_outcome(wagma_handle *h) {
    struct avoiding_executor *e = h->state;
    const struct round_local *l = &e->local;
    int status = WAGMA_OK;
    h->outcome.late = l->outcome == ROUND_LATE || l->outcome == ROUND_UNMERGED;
    h->stats.late += h->outcome.late;
    if (l->outcome == ROUND_UNMERGED) {
        merge_nothing(h);
        return WAGMA_OK;
    }
    const int of_world = h->policy.world && !h->call.sync;
    if (l->outcome == ROUND_ALONE || (of_world && e->n == 1))
        status = outcome_alone(h);
    else if (!h->policy.ordered && e->out_of_place)
        outcome_out_of_place(h);
    if (status == WAGMA_OK && h->policy.ordered)
        status = outcome_ordered(h);
    merge_advance(h, l->outcome == ROUND_ALONE ? h->call.version : avoiding_taken(h));
    return status;
}
