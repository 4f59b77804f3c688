/* Result of a version on a rank: its weight, its divisor, whether it is merged, and the numbers.
 * Shared memory and messages both use these rules. The arithmetic is pure; the last part fills in
 * the outcome of the call in progress.
 *
 * R: weighted sum of the contributions that the version holds. w: its divisor, the sum of the
 * members' shares. c, x: weight and array of this call.
 *
 *              stale                  skip      carry
 *   fresh      R / w                  R / w     R / w
 *   late       (R + c x) / (w + c)    R / w     R / w, and c x goes into the next contribution
 *   share of an absent member         0         its last weight
 *
 * Without average the numerators are undivided. A divisor of 0 leaves x as it is. */
#ifndef WAGMA_ENGINE_MERGE_H
#define WAGMA_ENGINE_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/handle.h"
#include "engine/policy.h"
#include "kernels/reduce.h"

/* ---- a member's part ------------------------------------------------------------------------- */

struct merge_part {
    double weight; /* factor of the data; 0: the data is not read */
    double share;  /* of the divisor */
};

/* `contributes`: the version holds a contribution of the member, with this weight. Otherwise
 * `weight` is that of the member's newest contribution; 0: the member has departed. */
static inline struct merge_part merge_part(const struct policy *p, int contributes, double weight) {
    if (contributes)
        return (struct merge_part){weight, weight};
    return (struct merge_part){0, p->carries ? weight : 0};
}

/* ---- a version ------------------------------------------------------------------------------- */

struct merge {
    double weight;  /* divisor that average uses: outcome.weight; 0: x stays as it is */
    double stored;  /* divisor of R when it is stored */
    double divisor; /* divisor of R, plus c x if that is added, when it is delivered */
    double copied;  /* divisor of the stored result when it is delivered and nothing is added */
    int adds;       /* delivered = (factor * stored + own * x) / divisor */
    double factor, own;
};

/* Return the divisor of a stored R. */
static inline double merge_stored(int stores_average, double total) {
    return stores_average && total != 0 ? total : 1;
}

/* Return 1 if a call that is not late gets the stored result as it is, whatever its divisor. */
static inline int merge_keeps_stored(const struct policy *p, int out_of_place) {
    return !p->average || p->stores_average || out_of_place;
}

/* Return the divisor of a delivered R to which nothing is added. */
static inline double merge_divisor(const struct policy *p, double total) {
    return p->average ? total : 1;
}

/* Compute the merge of a version whose members' shares sum to `total` with a call of weight `own`.
 * `late`: the version does not hold the call's contribution. `out_of_place`: x is a contribution
 * buffer, and the caller gets the result elsewhere, undivided if the policy is "stale". */
struct merge merge_version(const struct policy *p, double total, int late, double own,
                           int out_of_place);

/* The result as a sum: out = (weights[0] * in[0] + ... + weights[n - 1] * in[n - 1]) / divisor. */
struct merge_sum {
    int n; /* 0: x stays as it is */
    const void *in[2];
    double weights[2];
    double divisor;
};

/* Return the sum that is the result, from the stored result and the call's own contribution x. */
static inline struct merge_sum merge_sum_of(const struct merge *m, const void *stored,
                                            const void *x) {
    if (m->weight == 0)
        return (struct merge_sum){0};
    if (m->adds)
        return (struct merge_sum){2, {stored, x}, {m->factor, m->own}, m->divisor};
    return (struct merge_sum){1, {stored}, {1}, m->copied};
}

/* Write the result to `out`, from the stored result `stored` and the call's own contribution x.
 * `streamed`: write past the caches, if nothing is added. */
static inline void merge_deliver(const struct merge *m, const reduce_kernels *kernels,
                                 wagma_dtype dtype, void *out, const void *stored, const void *x,
                                 size_t count, int streamed) {
    const struct merge_sum sum = merge_sum_of(m, stored, x);
    if (sum.n == 2)
        kernels->sum(dtype, out, sum.in, sum.weights, 2, sum.divisor, count);
    else if (sum.n == 1 && streamed)
        kernels->streamed_copy(dtype, out, stored, sum.divisor, count);
    else if (sum.n == 1 && (out != stored || sum.divisor != 1))
        kernels->divided_copy(dtype, out, stored, sum.divisor, count);
}

/* Return the factor of the contribution of a rank that is alone in its group; 1: the contribution
 * is the result, to the bit. */
static inline double merge_alone(const struct policy *p, double weight, int out_of_place) {
    return !p->average || (out_of_place && !p->ordered) ? weight : 1;
}

/* ---- what is carried ------------------------------------------------------------------------- */

enum merge_carry {
    MERGE_CARRY_AS_BEFORE, /* unchanged, maybe nothing */
    MERGE_CARRY_THIS,      /* this call's contribution, including what it carried */
    MERGE_CARRY_NOTHING,   /* nothing: a result holds all contributions */
};

/* Return what the rank carries after a call of this weight. */
static inline enum merge_carry merge_carry(const struct policy *p, int late, double weight) {
    if (!p->carries || weight == 0)
        return MERGE_CARRY_AS_BEFORE;
    return late ? MERGE_CARRY_THIS : MERGE_CARRY_NOTHING;
}

/* Return what is to be written of a contribution: x + carried * carried_weight / weight, where
 * `weight`, that of this contribution, is not 0: what is carried adds no weight. */
static inline struct merge_sum merge_carried(const void *x, double weight, const void *carried,
                                             double carried_weight) {
    return (struct merge_sum){2, {x, carried}, {1, carried_weight / weight}, 1};
}
/* Write that to `out`. */
void merge_add_carried(const reduce_kernels *kernels, wagma_dtype dtype, void *out, const void *x,
                       double weight, const void *carried, double carried_weight, size_t count);

/* ---- the outcome of the call in progress ----------------------------------------------------- */

/* Lists a member's contribution, in ascending order of ranks. */
static inline void merge_list(wagma_handle *h, int32_t rank, int64_t version, double weight) {
    wagma_outcome *o = &h->outcome;
    if (weight == 0)
        return;
    h->contributors[o->contributors_count] = rank;
    h->versions[o->contributors_count++] = version;
}

/* Note the weight of the newest version that the call takes; an earlier one may have been merged.
 */
static inline void merge_outcome(wagma_handle *h, double weight) {
    h->outcome.weight = weight;
    h->outcome.merged |= weight != 0;
}

/* Outcome of a late call that found nothing newer than the result it had merged. */
void merge_nothing(wagma_handle *h);
/* Outcome of a call in a group of this rank alone, also if the rank is late for a version that
 * another group has activated. */
void merge_outcome_alone(wagma_handle *h);
/* Deliver x as the only result: quorum "all" where every rank gets every result. `place` has to
 * stay valid until the next call. */
static inline void merge_show_x(wagma_handle *h, const void **place) {
    *place = h->outcome.merged ? h->call.x : NULL;
    h->outcome.results = place;
    h->outcome.results_count = 1;
}
/* Set the next version after a merged call that took the versions up to `taken`. */
void merge_advance(wagma_handle *h, int64_t taken);

#endif
