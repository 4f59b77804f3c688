/* Measurements for the rule of engine/grace.h: when the members of each version arrived, and how
 * long this rank computed. */
#ifndef WAGMA_SHM_AVOIDING_GRACE_H
#define WAGMA_SHM_AVOIDING_GRACE_H

#include <stdint.h>

#include "engine/grace.h"
#include "shm/segment.h"

struct wagma_handle;

enum { GRACE_PENDING = 8 };

struct grace {
    int automatic;
    uint64_t fixed; /* ns */
    struct grace_samples spreads, computes;
    uint64_t returned; /* ns: when the last call ended; 0: none yet */
    struct grace_pending {
        uint64_t t;        /* 0: free */
        uint64_t *awaited; /* bitmap over the positions in the group of version t */
    } pending[GRACE_PENDING];
    int next_pending;
    int32_t *members; /* [P] scratch */
    uint64_t *times;  /* [P] scratch */
};

int grace_create(struct grace *grace, const wagma_segment *segment); /* 0, or -1: no memory */
void grace_destroy(struct grace *grace);

/* Note the compute time before a call, which begins, and the spreads that are complete by now. */
void grace_call(struct grace *grace, const struct wagma_handle *h);
/* Records the arrival of `rank` at version t (round.h's count), before it is published. */
void grace_arrive(const struct grace *grace, wagma_segment *segment, int rank, uint64_t t);
/* Return the end (ns) of the grace of the call's version: the quorum-th arrival plus the grace. */
uint64_t grace_deadline(struct grace *grace, const struct wagma_handle *h);
/* Note the end of a call. */
void grace_return(struct grace *grace, const wagma_segment *segment, const struct wagma_handle *h);
/* Return the grace in force, in ns. */
uint64_t grace_value(const struct grace *grace);

#endif
