/* Policy of a handle, derived from its options once, when the handle is made; all other code reads
 * the policy. A late rule is a row in policy.c; merge.h computes its results. Pure. */
#ifndef WAGMA_ENGINE_POLICY_H
#define WAGMA_ENGINE_POLICY_H

#include "include/wagma.h"

struct policy {
    /* one of the three is 1 */
    int graph;    /* ranks meet their neighbours */
    int in_place; /* quorum "all": no rank can be late, and x is contribution and result */
    int avoiding; /* a version begins without the ranks that are late; on devices also with quorum
                     "all", for which nobody is late */

    int device;         /* contributions and results are in the memory of devices */
    int staged;         /* arrays of calls are there; contributions and results on the host */
    int world;          /* one pin fixes the inputs of all groups */
    int forward;        /* a late rank goes on after the version that it merged */
    int ordered;        /* every rank gets every result, in order; a late rank is in none of them */
    int carries;        /* ordered, and a late contribution is added to the rank's next one */
    int varies;         /* the quorum may change from version to version */
    int average;        /* results are divided by their weights */
    int stores_average; /* ... and already where they are stored */
};

/* `options`: checked, defaults filled in. */
struct policy policy_of(const wagma_options *options);

/* Return the reason why the quorum cannot change after creation; NULL: it may change. It may change
 * only if all results reach all ranks: a late rank then compares its quorum with the one that
 * started its version. */
const char *policy_fixed_quorum(const wagma_options *options);

struct policy_late { /* a late rule */
    const char *name;
    int ordered, carries; /* see struct policy */
};
/* The rule wagma_options.late; NULL: there is no such rule. */
const struct policy_late *policy_late(int32_t late);
/* For messages. */
#define POLICY_LATE_CHOICES "WAGMA_LATE_STALE (0), _SKIP (1) or _CARRY (2)"
#define POLICY_LATE_ORDERED "WAGMA_LATE_SKIP or _CARRY"

#endif
