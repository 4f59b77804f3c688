/* The shared-memory round protocol of wait-avoiding versions: one rank's calls as a state machine.
 *
 * A *round* is the pinned input set of one version of one group. The present members pin it (one
 * CAS on the group's slot), reduce its slices into the round's shared result, and hand each late
 * member a reference, so that an absent rank has nothing to do. No rank holds anything that another
 * rank has to wait for.
 *
 *   shared words (64 bit; version 40 | low 24)
 *     PUB[r]            (version, sync 1 | view 1 | left 1 | takes 8 | buffer 13)  newest
 *                       contribution of rank r; `takes`: 1 + buffer that takes its result
 *     AT[r]             a version that rank r has gone past without a contribution of it, because
 *                       its counter jumped (ordered, forward)
 *     HOLD[r]           (version, round), 0: none           newest round that r was late for; owns
 *                                                           a reference
 *     SLOT[L][v mod W]  (version, round)                    round of version v of L's group
 *     CREF[r][b]        rounds that have pinned contribution b of r
 *     DISPUTE           (version, 1 + rank), 0: none        varies: the first rank to find that its
 *                                                           quorum is not that of the pin
 *   per round c (owner c / rounds, used only by its owner)
 *     HEAD   (version, leader 23 | sync flag 1); varies: (version, quorum 23 | sync flag 1)
 *     IN[i]  PUB word of member i, pinned; `left`: the member left the buffer that was to take its
 *            result to the round, and counted it in CREF
 *     REFS   life of the round and its result: one reference per member, counted beforehand
 *     USERS  life of the pinned inputs: a token (dropped when the result is complete, or with the
 *            last reference) and every rank that works on them
 *     NEXT   next slice to claim
 *     DONE   bitmap of finished slices
 *     FREE   1: reusable
 *
 *   WINDOW -> BUFFER -> write -> PUBLISH -> SLOT -+-> pinned: FRESH -+-> USERS -> CLAIM/MARK* -.
 *                                           ^     |         `-> LATE-+                         |
 *                   wait (quorum, grace,    |     v                  |      leave <- COPY* <---'
 *                   round) or CAS lost      `-- QUORUM               |
 *                                           ^     v                  |
 *                                           `-- FREE -> PIN* -> CAS -+-> HAND* -> USERS
 *
 * The policies change these:
 *   world     WINDOW -> LET_GO -> BUFFER; PRIVATE (from the inputs) for USERS ... COPY
 *   ordered   AT -> WINDOW, if the last call gave several results; FREE -> OLD -> RETIRE: rounds
 *             are reused when all are past them; no HAND, no references; LATE takes its slot's
 *             round; leave -> NEXT -+-> return
 *                                   `-> USERS: the slot of u + 1 is set
 *   forward   QUORUM -> QUORUM_AT: who has gone past t does not count; leave -> JUMP -> return
 *   varies    (ordered, one group) AT -> DISPUTE -> WINDOW; after a wait DISPUTE in place of
 *             LET_GO. A round's HEAD has the quorum that it was pinned with. A rank that called the
 *             version compares its own with that, when it takes the round: FRESH_HEAD, or LATE ->
 *             LATE_HEAD -> USERS. If they differ: DISPUTE_SET, and every rank sees it at its next
 *             DISPUTE. Every rank that has called t comes to one of the two: also a version whose
 *             ranks have different quorums is pinned, at the latest when all have arrived.
 *   out of place   RESERVE before the call; UNVIEW -> WINDOW: the last result is looked at no more;
 *             COPY waits for all slices and copies none
 *   from the array   BUFFER finds the buffer that the array shows next; what it showed goes out.
 *             If all members of a round are there from their arrays (TO_ALL), each slice is written
 *             into what all arrays show next, and COPY waits for all slices. If one does not come:
 *             SPARE -> LEAVE_ARRAY -> LEAVE_IN -> COPY: into another buffer, what is done copied
 *
 * docs/round-protocol-checks.md says why nothing deadlocks, and derives the bounds below. Versions
 * in here are 1 + the public ones; 0 is the contribution given at creation.
 *
 * Invariants that the explorer checks after every step: see tests/explore/. Each round_step() makes
 * at most one shared access; the local state is a plain struct. */
#ifndef WAGMA_PROTOCOL_ROUND_H
#define WAGMA_PROTOCOL_ROUND_H

#include <stdint.h>

#include "protocol/topology.h"

/* Words of shared memory, addressed (word, i, j). */
enum round_word {
    ROUND_PUB,  /* (r) */
    ROUND_AT,   /* (r) */
    ROUND_HOLD, /* (r) */
    ROUND_SLOT, /* (leader, v mod W) */
    ROUND_CREF, /* (r, b) */
    ROUND_DISPUTE,
    ROUND_HEAD,  /* (c) */
    ROUND_IN,    /* (c, i) */
    ROUND_REFS,  /* (c) */
    ROUND_USERS, /* (c) */
    ROUND_NEXT,  /* (c) */
    ROUND_DONE,  /* (c) */
    ROUND_FREE,  /* (c) */
};

#define ROUND_LOW_BITS 24
#define ROUND_LOW_MASK ((UINT64_C(1) << ROUND_LOW_BITS) - 1)
#define ROUND_DEPARTED_VERSION ((UINT64_C(1) << 40) - 1)
#define ROUND_DEPARTED (ROUND_DEPARTED_VERSION << ROUND_LOW_BITS)
#define ROUND_PUB_SYNC (UINT32_C(1) << 23)
#define ROUND_PUB_VIEW (UINT32_C(1) << 22)
#define ROUND_PUB_LEFT (UINT32_C(1) << 21)
#define ROUND_BUFFER_BITS 13
#define ROUND_BUFFERS_MAX (UINT32_C(1) << ROUND_BUFFER_BITS)
#define ROUND_TAKES_MAX UINT32_C(255) /* buffers that take a result have lower numbers */

static inline uint64_t round_pack(uint64_t version, uint32_t low) {
    return version << ROUND_LOW_BITS | low;
}
static inline uint64_t round_version(uint64_t word) {
    return word >> ROUND_LOW_BITS;
}
static inline uint32_t round_low(uint64_t word) {
    return (uint32_t)(word & ROUND_LOW_MASK);
}
static inline uint32_t round_buffer(uint64_t pub) {
    return round_low(pub) & (ROUND_BUFFERS_MAX - 1);
}
/* 1 + buffer that takes the result, if all members have one; 0: none. */
static inline uint32_t round_takes(uint64_t pub) {
    return round_low(pub) >> ROUND_BUFFER_BITS & ROUND_TAKES_MAX;
}

/* Bounds on slots, buffers and rounds with which a rank never waits for one (the arguments are in
 * docs/round-protocol-checks.md; the explorer checks them).
 * Slots per leader: versions that can be called at the same time have different slots. */
static inline uint64_t round_slots(uint64_t window) {
    return window + 1;
}
/* Contribution buffers: one that is published, one to write, one that is reserved, and those that
 * stopped ranks keep pinned: one per rank, or two where groups of two exist (a pair reduces
 * privately, so the inputs stay pinned for the partner, which may be stopped while it tries to pin,
 * with an older one). When this rank calls t these are of versions t - 2 window to t - 2. Rounds of
 * all ranks keep their inputs as long as they are referenced: by the hold of every rank, and in a
 * call twice, one of them by the duty to free a hold that was replaced, from t - 3 window on. And
 * one that the array shows, if it is one of them; then a rank that is stopped with a slice may keep
 * two of a version, the contribution and what was to take the result; when this rank has
 * published t and looks for another buffer, contributions are of t - 2 window to t - 1, and what
 * was left is of t - window to t - 1. */
static inline uint32_t round_buffers_bound(const struct topology *topology, int world, int ordered,
                                           uint64_t window, int array) {
    const uint64_t size = (uint64_t)topology->size, most = (uint64_t)topology->group_size;
    const uint64_t groups = (size + most - 1) / most;
    const int pairs = size / groups == 2 || (size + groups - 1) / groups == 2;
    const int takes = array && !world && !ordered;
    const uint64_t stopped = world ? 3 * (size - 1) + 1 : (size - 1) * (pairs || takes ? 2 : 1);
    const uint64_t versions = takes ? 3 * window : (world ? 3 : 2) * window - 1;
    return (uint32_t)(stopped < versions ? stopped : versions) + 3 + (array != 0);
}
/* Rounds: every other rank can be stopped with a reference (or the duty to free) to one in its
 * call, and hold another one, or look at it; this rank takes one. That is one less. Ordered: those
 * that the slowest rank has not gone past, and one. */
static inline uint32_t round_rounds_bound(uint32_t size, int ordered, uint64_t window) {
    return ordered ? (uint32_t)window + 2 : 2 * size;
}

struct round_memory; /* the segment, or the explorer's model of it */

/* Constant during a handle's life, except the two counts that grow on demand, and the quorum. */
struct round_context {
    struct round_memory *memory;
    uint32_t rank, size;
    struct topology topology;
    int world;       /* a round pins all ranks' inputs, whatever the groups */
    int ordered;     /* every rank gets every result, in order ("skip", "carry") */
    int forward;     /* after a late version u a rank goes on with u + 1 ("fast-forward") */
    int varies;      /* `quorum` may change between calls: ordered, and no other group than all */
    uint32_t quorum; /* 0: a drawn member has to be present ("majority") */
    uint32_t slots;  /* W >= window + 1 */
    uint32_t rounds; /* per rank: numbering of rounds */
    uint32_t slices; /* NS, 1..64 */
    uint32_t buffers_usable, rounds_usable; /* committed */
    int spare; /* there are as many buffers as the bound, or will be when they are asked for */
    uint64_t window;
    int32_t *scratch; /* [size] members of a round that is dropped */
};

/* Facts that only the caller knows when a wait is re-evaluated. */
struct round_input {
    int grace_over; /* the grace of this version has run out */
    int redo;       /* the slice waited for is late: recompute it */
};

/* Action that the caller performs before it calls round_step() again. */
enum round_action {
    ROUND_STEP,     /* nothing */
    ROUND_WAIT,     /* pause (local.why), then step again */
    ROUND_WRITE,    /* write the contribution into buffer local.buffer; from the array: it is there,
                       and the array has to show another buffer, local.array - 1, before it is written
                       again */
    ROUND_PASSED,   /* wake those that sleep at the window */
    ROUND_PINNED,   /* wake the members that sleep */
    ROUND_GATHER,   /* copy the weights of IN[] into round local.c, whose inputs are pinned */
    ROUND_PRIVATE,  /* reduce all slices of local.c from its inputs into x */
    ROUND_REDUCE,   /* reduce slice local.s of local.c into its result, and deliver it to x; to_all:
                       into what all members' arrays show next */
    ROUND_COPY,     /* deliver slice local.s of the result of local.c to x */
    ROUND_REDO,     /* deliver slice local.s of local.c to x, computed from the inputs */
    ROUND_COMPLETE, /* all slices of local.c are done: wake the members that sleep */
    ROUND_COLLECT,  /* read contributors, versions and weights of local.c */
    ROUND_RETURN,   /* the call is over: local.outcome */
    ROUND_DISPUTED, /* ranks called a version with different quorums: DISPUTE is local.w */
    ROUND_MISMATCH, /* sync(x) was called at another version by rank local.other */
};

enum round_why {
    ROUND_WHY_WINDOW,
    ROUND_WHY_BUFFER,
    ROUND_WHY_QUORUM,
    ROUND_WHY_GRACE,
    ROUND_WHY_ROUND,
    ROUND_WHY_SLICES
};

enum round_outcome {
    ROUND_ALONE,    /* a group of one: x is the result */
    ROUND_FRESH,    /* x holds the result of version t */
    ROUND_LATE,     /* x was merged with the result of version u >= t */
    ROUND_UNMERGED, /* late, and nothing newer than `last`: x is unchanged */
    ROUND_RESERVED, /* buffer local.reserved - 1 is free to be filled */
    ROUND_GONE,     /* departure is complete */
};

struct round_local {
    /* lasts from call to call */
    uint64_t last;     /* newest version that this rank took part in or merged */
    uint64_t horizon;  /* every rank was seen at this version or beyond */
    uint32_t own;      /* buffer of the published contribution */
    uint32_t reserved; /* 1 + buffer that was handed out to be filled; 0: none */
    uint32_t array;    /* 1 + buffer that the rank's array shows; 0: it is none of them */
    uint32_t jumped;   /* ordered: the last call gave more than one version */
    uint32_t kept;     /* 1 + round whose result is being looked at; 0: none */
    uint32_t pc;
    /* of this call */
    uint64_t t;                         /* version */
    uint64_t u;                         /* version of the round that is taken, >= t */
    uint64_t slot;                      /* word read from the slot */
    uint64_t w;                         /* word of a hold or of a publication that was read */
    uint64_t low;                       /* lowest version seen at WINDOW */
    uint64_t copied, ready;             /* slices delivered / seen done */
    uint32_t sync;                      /* scope world, quorum all */
    uint32_t leader, members, position; /* of the group of version t */
    uint32_t i;                         /* index into members, buffers or rounds */
    uint32_t present, gone, awaited;
    uint32_t buffer, c, s;
    uint32_t inputs;            /* 1: counted in USERS of c */
    uint32_t fresh;             /* in round c */
    uint32_t late;              /* in version t */
    uint32_t out_of_place;      /* the contribution is in the reserved buffer */
    uint32_t from_array;        /* it is in the buffer that the array shows */
    uint32_t view, copying;     /* the result is looked at where it is / it is copied after all */
    uint32_t takes;             /* 1 + buffer that is published as taking the result; 0: none */
    uint32_t to_all;            /* the result is in what the array shows next, unless copying */
    uint32_t drawn, drawn_here; /* 1 + index of the member that is drawn, and that it arrived */
    uint32_t other;
    uint32_t why, outcome;
    /* subroutines: unref(round, k), a look at the hold or at DISPUTE; and drop(round) */
    uint32_t unref_c, unref_k;
    uint32_t resume_pc; /* to go on at after UNREF, LET_GO or DISPUTE; 0: none of them */
    uint32_t drop_c, drop_i, drop_return;
    uint64_t drop_head, drop_in;
};

/* Resets `local` for a new handle whose first contribution is in buffer 0 (PUB = 0). `array`: the
 * rank's array shows buffer 1, which is not the contribution; otherwise none. */
void round_init(struct round_local *local, int array);

/* Place of a call's contribution, which also decides where its result goes. */
enum round_source {
    ROUND_FROM_X,        /* it is written into a buffer (ROUND_WRITE) */
    ROUND_FROM_RESERVED, /* in the buffer that was reserved; the result is looked at where it is */
    ROUND_FROM_ARRAY,    /* in the buffer that the array shows, which then shows another one */
};

/* Starts the call of version t (>= 1, above the last), or the departure. `members`: those of this
 * rank's round at t (round_members_of), ascending; it must stay valid during the call. */
void round_begin(const struct round_context *context, struct round_local *local, uint64_t t,
                 int sync, enum round_source source, const int32_t *members, int count);
/* Reserves a buffer for the contribution of the next version, t, if there is none yet. */
void round_begin_reserve(struct round_local *local, uint64_t t);
void round_begin_departure(struct round_local *local);

/* One step. `members`: as given to round_begin, from then on. */
enum round_action round_step(const struct round_context *context, struct round_local *local,
                             const int32_t *members, struct round_input input);

/* Steps until something other than ROUND_STEP is asked for. */
enum round_action round_run(const struct round_context *context, struct round_local *local,
                            const int32_t *members, struct round_input input);

/* Members of the round of this version that `rank` is in, ascending: those of its group, or all. */
int round_members_of(const struct round_context *context, uint64_t version, uint32_t rank, int sync,
                     int32_t *members);

#endif
