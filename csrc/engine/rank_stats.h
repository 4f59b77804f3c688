/* Statistics that show slow ranks: every rank's counters at its arrival at the last sync version.
 *
 * A call at a sync version first copies the rank's counters into its record in the segment, and at
 * its end all ranks' records into private memory. Nothing is shared between sync versions.
 *
 * Over a transport a record travels with the rank's contribution instead, and each rank keeps a
 * table of them. In a segment:
 *
 * Records are plain memory, two per rank: the k-th sync version uses record k mod 2.
 *   Reading: a rank that takes the k-th sync version has acquired every rank's publication of it,
 * or its departure; that rank wrote its record before. So all ranks read the same. Writing: a rank
 * overwrites record k when it calls the sync version k + 2. It has taken k + 1 by then, and every
 * rank read k before it arrived at k + 1 (or departed). Departing: close() writes the record of the
 * next sync version, which the rank will not call. Later ones find an older record there and keep
 * what they have. */
#ifndef WAGMA_ENGINE_RANK_STATS_H
#define WAGMA_ENGINE_RANK_STATS_H

#include "engine/grace.h"
#include "include/wagma.h"

typedef struct rank_record { /* where all ranks can read it */
    uint64_t syncs;          /* of this sync version; 0: not written yet */
    uint64_t arrived;        /* ns, CLOCK_MONOTONIC */
    wagma_rank_stats stats;  /* all but synced and behind */
} rank_record;

struct rank_stats { /* of a handle */
    uint64_t began; /* ns: of the previous call; 0: there was none */
    uint64_t waited;
    uint64_t compute;   /* ns, sum */
    uint64_t intervals; /* between calls */
    /* The newest intervals: number i is at i mod GRACE_SAMPLES. The first `sampled` intervals are
     * in `samples`; sync versions add the others. */
    uint64_t recent[GRACE_SAMPLES];
    uint64_t sampled;
    struct grace_samples samples;
    int64_t used, staleness, staleness_max;
    uint64_t syncs;             /* sync versions called */
    wagma_rank_stats *gathered; /* [P] */
};

int rank_stats_create(struct wagma_handle *h); /* 0, or -1: no memory */
void rank_stats_free(struct wagma_handle *h);

/* A call begins; before it publishes anything. */
void rank_stats_call(struct wagma_handle *h);
/* A call has succeeded; its outcome and h->stats are complete. */
void rank_stats_return(struct wagma_handle *h);
/* The rank is about to depart; no call is in progress, or others could still read the record. */
void rank_stats_depart(struct wagma_handle *h);

#endif
