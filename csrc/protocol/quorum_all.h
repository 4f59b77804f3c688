/* The shared-memory protocol of quorum "all": one rank's calls as a state machine. Every rank waits
 * for all members of its group, so no rank can be late, and sums go straight into the members'
 * arrays. This file neither waits nor moves data: executors perform the actions that
 * quorum_all_run() asks for.
 *
 * A rank's record of version t lies in its flat[t mod 2] (one line with up to 48 bytes of payload,
 * so that a tiny message is one transfer between caches).
 *
 *   shared words (64 bit)
 *     STAMP[r][t mod 2]   (version + 1) << 1 | sync: the record is of that version
 *     ARRIVE[r]           (newest version that r has published) + 1
 *     FINISH[r]           (newest version of which r reads nothing any more) + 1
 *     SLICED[r]           (newest version of which r holds no slice, and claims none before it has
 *                         taken that back) + 1
 *     CLAIM[L][t mod 2]   (version + 1) << 24 | slices claimed      of the group led by L; an older
 *     DONE[L][t mod 2]    (version + 1) << 24 | slices done         stamp: none yet
 *     STATE[r]            enum segment_state: departed, failed
 *
 *   ADMIT* -> write -> ARRIVE -> PUBLISH -> GATHER* -+-> private sum ------------------------.
 *     |                                       |     `-> CLAIM -> reduce -> DONE -.          v
 *     wait (t - 2 finished, window)         wait         ^  |____________________|   .--> FINISH
 *                                                        none left -> SLICED -> DRAIN --> WELL*
 *                                                                               wait
 * A rank that posts may return to its caller for long, so it rests: it sets SLICED at its
 * publication, takes it back (RISE) before its next claim, and sets it again if it leaves between
 * two slices (REST). If a member's array is private, the executor passes it through the segment in
 * chunks instead of slices (shm/quorum_all/chunks.h), and continues with WELL.
 *
 * A version is cut into slices if it is large and two or more ranks take part; its leader is the
 * first member that takes part. Claims and counts are stamped with the version and only grow, so
 * that no rank has to reset them.
 *
 * A waiting rank checks from time to time (quorum_all_seek) which ranks it waits for, and whether
 * these are dead or failed. docs/quorum-all-protocol.md proves that no rank waits for ever, and
 * that nothing changes while a rank still uses it; the explorer checks both (tests/explore/). Each
 * quorum_all_step() makes at most one shared access; the local state is a plain struct. */
#ifndef WAGMA_PROTOCOL_QUORUM_ALL_H
#define WAGMA_PROTOCOL_QUORUM_ALL_H

#include <stdint.h>

enum {
    QUORUM_ALL_SLICE_BITS = 24,
    QUORUM_ALL_SLICES_MAX = 1 << 16,
};

/* Words of shared memory, addressed (word, rank, version mod 2). */
enum quorum_all_word {
    QUORUM_ALL_STAMP,
    QUORUM_ALL_ARRIVE,
    QUORUM_ALL_FINISH,
    QUORUM_ALL_SLICED,
    QUORUM_ALL_CLAIM,
    QUORUM_ALL_DONE,
    QUORUM_ALL_STATE,
};

/* Values of QUORUM_ALL_STATE that matter here. */
enum {
    QUORUM_ALL_STATE_DEPARTED = 3,
    QUORUM_ALL_STATE_FAILED = 4,
};

enum quorum_all_fate {
    QUORUM_ALL_LIVES,
    QUORUM_ALL_DEPARTED,
    QUORUM_ALL_LOST /* dead, or failed */
};

static inline uint64_t quorum_all_stamp(int64_t version, int sync) {
    return ((uint64_t)version + 1) << 1 | (sync != 0);
}
static inline int64_t quorum_all_stamp_version(uint64_t stamp) {
    return (int64_t)(stamp >> 1) - 1;
}

struct quorum_all_memory; /* the segment, or the explorer's model of it */

struct quorum_all_context { /* constant during a handle's life */
    struct quorum_all_memory *memory;
    int32_t rank, size;
    int64_t window;
    uint32_t slices; /* of a version that is reduced in slices; 0: payloads are in the records */
};

/* Action that the caller performs before it calls quorum_all_step() again. */
enum quorum_all_action {
    QUORUM_ALL_STEP,     /* nothing */
    QUORUM_ALL_WAIT,     /* pause (local.why), then step again */
    QUORUM_ALL_WRITE,    /* write the record of version t */
    QUORUM_ALL_PRIVATE,  /* all have come: sum the inputs into x */
    QUORUM_ALL_SHARE,    /* all have come, and there are slices to reduce */
    QUORUM_ALL_REDUCE,   /* reduce slice local.s into the arrays of all that take part */
    QUORUM_ALL_COMPLETE, /* that was the last slice: wake the members that sleep */
    QUORUM_ALL_DELIVER,  /* this rank's array holds the result */
    QUORUM_ALL_RETURN,   /* the call is over */
    QUORUM_ALL_SOUGHT,   /* local.missing lists the ranks that this rank waits for */
    QUORUM_ALL_MISMATCH, /* rank local.other called sync at another version */
    QUORUM_ALL_PEER,     /* rank local.other is needed, and dead or failed */
};

enum quorum_all_why { QUORUM_ALL_WHY_WINDOW, QUORUM_ALL_WHY_MEMBERS, QUORUM_ALL_WHY_SLICES };

struct quorum_all_local {
    /* lasts from call to call; arrays of [size], the caller's */
    int64_t *seen;     /* newest version that each rank was seen to take part in */
    int32_t *group[2]; /* members of the newest version of each parity */
    int32_t group_n[2];
    int64_t group_version[2];
    int64_t slowest; /* all ranks that have not departed have arrived at it */
    uint32_t pc;
    /* of this call; arrays of [size], the caller's */
    uint32_t sync;
    int64_t t; /* version */
    const int32_t *members;
    int32_t *present;      /* ranks that take part */
    int32_t *contributors; /* ranks whose weight is not 0 */
    double *weights;       /* of the contributors */
    int32_t *missing;      /* after QUORUM_ALL_SOUGHT: ranks that this rank waits for */
    int32_t n, present_n, contributors_n, missing_n;
    uint32_t posted;  /* the caller goes away in between */
    uint32_t resting; /* SLICED says that this rank holds no slice */
    int32_t i;        /* index into members or ranks; before it all is well */
    int32_t other;    /* rank of QUORUM_ALL_MISMATCH or QUORUM_ALL_PEER */
    uint32_t s;       /* slice */
    uint32_t why;     /* it waits */
    int64_t low;      /* lowest version seen */
    uint64_t word;    /* that was read */
    double divisor;   /* sum of the weights */
    uint32_t resume;  /* where it waits; the next three find the ranks that it waits for */
    uint32_t fate;    /* of the rank that is looked at */
    int32_t j, lost;  /* index of that rank; a dead one that may hold a slice, or -1 */
};

/* Resets `local`, whose arrays are allocated, for a new handle. */
void quorum_all_init(const struct quorum_all_context *context, struct quorum_all_local *local);

/* Starts the call of version t, one more than the last. `members`: group of this rank at t,
 * ascending (all ranks in a sync version); it must stay valid during the call. `posted`: the caller
 * may go away after QUORUM_ALL_WAIT, and before it knows of any other action. */
void quorum_all_begin(struct quorum_all_local *local, int64_t t, int sync, const int32_t *members,
                      int32_t n, int posted);

/* Skip the slices: the next step treats the version as reduced. Allowed only after
 * QUORUM_ALL_SHARE. */
void quorum_all_pass_slices(struct quorum_all_local *local);

/* Return 1 if the rank holds no slice, and the next step may claim one. */
int quorum_all_is_between_slices(const struct quorum_all_local *local);

/* Make the next step announce that this rank holds no slice: then no rank waits for it if it
 * returns to its caller. Allowed only between slices. */
void quorum_all_rest(struct quorum_all_local *local);

/* Make the next steps look for the ranks that this rank waits for. They end in QUORUM_ALL_SOUGHT or
 * QUORUM_ALL_PEER, or if the wait has ended meanwhile, in the action that follows the wait. Allowed
 * only after QUORUM_ALL_WAIT. */
void quorum_all_seek(const struct quorum_all_context *context, struct quorum_all_local *local);

enum quorum_all_action quorum_all_step(const struct quorum_all_context *context,
                                       struct quorum_all_local *local);

/* Steps until something other than QUORUM_ALL_STEP is asked for. */
enum quorum_all_action quorum_all_run(const struct quorum_all_context *context,
                                      struct quorum_all_local *local);

#endif
