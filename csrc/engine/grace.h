/* Grace: how long a version whose quorum is present waits for members that are about to arrive.
 *
 * grace >= 0 is taken as it is. "auto" is min(80% quantile of the last 32 arrival spreads, 10% of
 * the median compute time), at least 50 us; 200 us until 4 spreads are known. The spread of a
 * version is last minus first arrival of the members that were not further behind than one version;
 * a member that arrives after the pin is counted when it arrives. */
#ifndef WAGMA_ENGINE_GRACE_H
#define WAGMA_ENGINE_GRACE_H

#include <stdint.h>

#include "shm/segment.h"

struct wagma_handle;

enum { GRACE_SAMPLES = 32, GRACE_PENDING = 8 };

/* The last 32 values, in order of age and of size. Pure. */
struct grace_samples {
    uint64_t by_age[GRACE_SAMPLES], by_size[GRACE_SAMPLES];
    int count, next;
};
void grace_add(struct grace_samples *samples, uint64_t value);
/* The smallest value that `share` of the samples do not exceed; count > 0. */
uint64_t grace_quantile(const struct grace_samples *samples, double share);
/* The rule above. */
uint64_t grace_auto(const struct grace_samples *spreads, const struct grace_samples *computes);

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

/* A call begins: its compute time, and the spreads that are complete by now. */
void grace_call(struct grace *grace, const struct wagma_handle *h);
/* Records the arrival of `rank` at version t (round.h's count), before it is published. */
void grace_arrive(const struct grace *grace, wagma_segment *segment, int rank, uint64_t t);
/* When the grace of the call's version ends (ns): the quorum-th arrival plus the grace. */
uint64_t grace_deadline(struct grace *grace, const struct wagma_handle *h);
/* A call ends. */
void grace_return(struct grace *grace, const wagma_segment *segment, const struct wagma_handle *h);
/* The grace in force, in ns. */
uint64_t grace_value(const struct grace *grace);

#endif
