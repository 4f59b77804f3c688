/* What a version gives a rank: its weight, its divisor, whether it is merged, and the numbers.
 * Once, for shared memory and for messages. The arithmetic is pure; the last part fills in the
 * outcome of the call in progress.
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

/* `contributes`: the version holds a contribution of the member, of this weight. Otherwise `weight`
 * is that of its newest contribution; 0: it has departed. */
static inline struct merge_part merge_part(const struct policy *p, int contributes, double weight) {
    if (contributes)
        return (struct merge_part){weight, weight};
    return (struct merge_part){0, p->carries ? weight : 0};
}

/* ---- a version ------------------------------------------------------------------------------- */

struct merge {
    double weight;  /* divisor that average uses: outcome.weight; 0: x stays as it is */
    double stored;  /* R is divided by it where it is stored */
    double divisor; /* R, with c x if that is added, is divided by it where it is delivered */
    double copied;  /* what is stored is divided by it, if nothing is added */
    int adds;       /* delivered = (factor * stored + own * x) / divisor */
    double factor, own;
};

/* What a stored R is divided by. */
static inline double merge_stored(int stores_average, double total) {
    return stores_average && total != 0 ? total : 1;
}

/* What a delivered R is divided by, if nothing is added to it. */
static inline double merge_divisor(const struct policy *p, double total) {
    return p->average ? total : 1;
}

/* A version whose members' shares sum to `total`, for a call of weight `own`. `late`: the version
 * does not hold the call's contribution. `out_of_place`: x is a contribution buffer, and the caller
 * gets the result elsewhere, undivided if the policy is "stale". */
struct merge merge_version(const struct policy *p, double total, int late, double own,
                           int out_of_place);

/* out = the result, of which `stored` is what is stored, and x the call's own contribution.
 * `streamed`: out is written past the caches, where nothing is added. */
static inline void merge_deliver(const struct merge *m, const reduce_kernels *kernels,
                                 wagma_dtype dtype, void *out, const void *stored, const void *x,
                                 size_t count, int streamed) {
    if (m->weight == 0)
        return;
    if (m->adds) {
        const void *const in[2] = {stored, x};
        const double weights[2] = {m->factor, m->own};
        kernels->sum(dtype, out, in, weights, 2, m->divisor, count);
    } else if (streamed) {
        kernels->streamed_copy(dtype, out, stored, m->copied, count);
    } else if (out != stored || m->copied != 1) {
        kernels->divided_copy(dtype, out, stored, m->copied, count);
    }
}

/* What the contribution of a rank whose group is itself is multiplied by; 1: the contribution is
 * the result, to the bit. */
static inline double merge_alone(const struct policy *p, double weight, int out_of_place) {
    return !p->average || (out_of_place && !p->ordered) ? weight : 1;
}

/* ---- what is carried ------------------------------------------------------------------------- */

enum merge_carry {
    MERGE_CARRY_AS_BEFORE, /* what was carried, or nothing */
    MERGE_CARRY_THIS,      /* this call's contribution, with what was added to it */
    MERGE_CARRY_NOTHING,   /* a result holds all of it */
};

/* What the rank carries after a call of this weight. */
static inline enum merge_carry merge_carry(const struct policy *p, int late, double weight) {
    if (!p->carries || weight == 0)
        return MERGE_CARRY_AS_BEFORE;
    return late ? MERGE_CARRY_THIS : MERGE_CARRY_NOTHING;
}

/* out = x and what is carried, in units of this contribution's weight, which is not 0: what is
 * carried adds no weight. */
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

/* The newest version that the call takes; an earlier one may have been merged. */
static inline void merge_outcome(wagma_handle *h, double weight) {
    h->outcome.weight = weight;
    h->outcome.merged |= weight != 0;
}

/* A late call that found nothing newer than what it had merged. */
void merge_nothing(wagma_handle *h);
/* The group is this rank alone: also where the rank is late for a version that another group has
 * activated. */
void merge_outcome_alone(wagma_handle *h);
/* Quorum "all" where every rank gets every result: the result is x. `place` lasts until the next
 * call. */
static inline void merge_show_x(wagma_handle *h, const void **place) {
    *place = h->outcome.merged ? h->call.x : NULL;
    h->outcome.results = place;
    h->outcome.results_count = 1;
}
/* A call that was not left unmerged took the versions up to `taken`: which one is next. */
void merge_advance(wagma_handle *h, int64_t taken);

#endif
