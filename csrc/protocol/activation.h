/* Decides which versions run, and with which contributions: the executor's logic for groups that
 * span nodes. Pure: activation_step() takes events, activation_next() returns actions; no clock, no
 * memory allocation, no messages of its own. tests/explore and tests/engine/test_activation*.c
 * drive the same file. docs/activation.md has a picture and the proof that nothing waits for ever.
 *
 * A version t on one rank (versions are independent: none waits for another):
 *
 *            CALL/ARRIVAL of a rank         quorum present, grace over (coordinator), or quorum 1
 *   IDLE ---------------------------> IDLE --------------------------------------+
 *    |        EXPECT(t+1) to the coordinator of t+1, before any data of t        |
 *    |        NOTICE(t) to that of t                                             v
 *    +-- ACTIVATE(t) over a dimension, or data of t ---------------------> PINNED: input fixed,
 *                                          ACTIVATE(t) over the dimensions       |  exchange begins
 *                                          above it that were not sent          | COMPLETE
 *                                                                                v
 *                                                                      COMPLETE: slot reusable
 * Invariants (each checked by the explorer and the simulation):
 *   A1  a rank pins t at most once, with one contribution: its newest, never of a version above t
 *   A2  fresh (input == t) iff the rank arrived at t before it pinned t
 *   A3  once a member has pinned t, every member pins t without any rank's help but its engine's
 *   A4  every rank sends over each dimension of t at most once
 *   A5  an arrived rank never waits for an absent one, but at sync versions and for the window
 *   A6  a rank is at most `window` versions ahead of the slowest one that has not departed
 *   A7  at the end nothing is on its way and no version is PINNED */
#ifndef WAGMA_PROTOCOL_ACTIVATION_H
#define WAGMA_PROTOCOL_ACTIVATION_H

#include <stdint.h>

#include "protocol/topology.h"

/* ---- messages between ranks: control messages of 16 bytes ------------------------------------ */
enum activation_kind {
    ACTIVATION_ACTIVATE = 1, /* `version` was activated; detail: dimension, or ACTIVATION_NUDGE */
    ACTIVATION_NOTICE,       /* to the coordinator: the sender has arrived at `version` */
    ACTIVATION_EXPECT,       /* to the coordinator: the sender has arrived at `version` - 1 */
    ACTIVATION_BARRIER,      /* window barrier number `version`; detail: round */
    ACTIVATION_DEPARTED,     /* the sender has closed: weight 0 from `version` on */
    ACTIVATION_FAILED,       /* the sender has failed; `cause`, and what belongs to it */
    ACTIVATION_INQUIRE,      /* the sender waits for long, for `version`: where are you? */
    ACTIVATION_TELL,         /* the answer: the sender has arrived at `version`. From its executor:
                                sync: it is in a call; detail: the rank whose data its exchange of
                                the version asked about lacks, or -1 */
    ACTIVATION_PASS,    /* to the coordinator: the sender's counter has jumped over `version` */
    ACTIVATION_DISPUTE, /* ranks called a version with different quorums: activation_disputed() */
};
/* Where quorums vary, NOTICE and ACTIVATE carry a quorum that the version is called with: NOTICE
 * that of its sender; ACTIVATE that of the rank that its `detail` names from this bit on, beside
 * the dimension. */
#define ACTIVATION_CLAIMANT_SHIFT 8
/* detail of ACTIVATE: a member of the version's scope has pinned the version and waits for the
 * receiver. The receiver pins it as well, whatever else it knows, and forwards nothing. */
#define ACTIVATION_NUDGE (-1)

/* `cause` of FAILED: the first cause, however many ranks have failed because of it since. */
enum activation_cause {
    ACTIVATION_BY_ITSELF,   /* an error of its own, or it left */
    ACTIVATION_BY_MISMATCH, /* ranks disagree about `version` */
    ACTIVATION_BY_FAILED,   /* the failure of rank `detail` */
    ACTIVATION_BY_DEAD,     /* the death of rank `detail` */
    ACTIVATION_BY_AWAITED,  /* rank `detail` did not come within the timeout */
};

struct activation_message {
    uint8_t kind;
    uint8_t sync; /* NUDGE, INQUIRE: the sender has pinned the version, which is over all ranks */
    union {
        struct {
            uint8_t cause;
            uint8_t pad;
        };
        uint16_t quorum;
    };
    int32_t detail;
    int64_t version;
};

/* Two ranks that called `version` with different quorums. */
struct activation_dispute {
    int64_t version;
    int32_t ranks[2], quorums[2];
};
/* Reads a DISPUTE. */
struct activation_dispute activation_disputed(const struct activation_message *m);

/* ---- events ---------------------------------------------------------------------------------- */
enum activation_event_kind {
    ACTIVATION_EVENT_CALL,    /* this rank calls `version` (sync: as a sync version; is_explicit) */
    ACTIVATION_EVENT_ARRIVAL, /* its contribution is written; only when activation_may_arrive() */
    ACTIVATION_EVENT_RETURN,  /* the call is over; `version`: the next one that the rank calls */
    ACTIVATION_EVENT_MESSAGE, /* `message` came from `from` */
    ACTIVATION_EVENT_DATA,    /* data of `version` came from `from`: activates it. sync: its sender
                                 takes it for a sync version; is_explicit: and called sync(x) */
    ACTIVATION_EVENT_COMPLETE, /* the exchange of `version` is complete on this rank */
    ACTIVATION_EVENT_TICK,     /* it is `now` */
    ACTIVATION_EVENT_DEPART,   /* this rank closes; no call is in progress */
    ACTIVATION_EVENT_INQUIRE,  /* the call has waited for long: asks all ranks for their versions */
    ACTIVATION_EVENT_DEAD,     /* `from` is known to be dead */
};

struct activation_event {
    enum activation_event_kind kind;
    int from, sync, is_explicit;
    int64_t version;
    uint64_t now; /* ns, in every event */
    struct activation_message message;
};

/* ---- actions --------------------------------------------------------------------------------- */
enum activation_action_kind {
    ACTIVATION_SEND,   /* `message` to `to` (never to this rank itself) */
    ACTIVATION_PIN,    /* begin the exchange of `version` with contribution `input` over its scope:
                          the world if `sync`, otherwise the rank's group */
    ACTIVATION_SPREAD, /* for grace "auto": `ns` from the first to the last awaited arrival */
    ACTIVATION_TROUBLE /* `reason`; the handle is broken. `version`, `to`: the rank, or -1;
                          ACTIVATION_QUORUMS: `message` is the DISPUTE */
};
enum activation_reason {
    ACTIVATION_MISMATCH = 1, /* this rank and `to` disagree on whether `version` is sync(x) */
    ACTIVATION_QUORUMS,  /* ranks called `version` with different quorums; this rank tells all */
    ACTIVATION_PROTOCOL, /* cannot happen: a bug, or a message of something else */
};

/* `input` of ACTIVATION_PIN, where it is not the version of a contribution (-1: the first one). */
#define ACTIVATION_ABSENT INT64_MIN     /* skip, carry: not arrived; or a version jumped over */
#define ACTIVATION_GONE (INT64_MIN + 1) /* this rank has departed: weight 0 */

struct activation_action {
    enum activation_action_kind kind;
    int to, sync, reason;
    int64_t version, input;
    uint64_t ns;
    struct activation_message message;
};

/* ---- the state ------------------------------------------------------------------------------- */
struct activation_config {
    int rank, size;
    struct topology topology;
    int quorum;  /* 0: all; -1: majority; else members */
    int world;   /* activation "world" */
    int ordered; /* late "skip" or "carry" */
    int forward; /* missed "fast-forward" */
    int varies;  /* activation_quorum() may be called: only if `ordered`, with the world as group */
    int64_t window;
    int64_t sync_period; /* 0: none */
    uint64_t seed;
    uint64_t
        grace; /* ns; 0: none. With `automatic` the executor changes it by activation_grace() */
    int automatic;
};

struct activation; /* one block of memory without pointers into it: copied and compared as bytes */

size_t activation_bytes(const struct activation_config *config);
void activation_init(struct activation *a, const struct activation_config *config);

void activation_step(struct activation *a, const struct activation_event *event);
/* Store the next action in *action and return 1; return 0 if none is left. Call this after each
 * step until it returns 0. */
int activation_next(struct activation *a, struct activation_action *action);

/* ---- questions ------------------------------------------------------------------------------- */
/* Return 1 if the rank may arrive at the version that it called; 0: the window is used up. */
int activation_may_arrive(const struct activation *a);

enum activation_state {
    ACTIVATION_WAITS_WINDOW,
    ACTIVATION_WAITS_QUORUM, /* arrived, not pinned */
    ACTIVATION_WAITS_DATA,   /* of version `taken` */
    ACTIVATION_DONE,
};
struct activation_call {
    enum activation_state state;
    int late;
    int merged;    /* DONE: 0: `taken` had been merged, x stays */
    int64_t taken; /* the version whose result the call takes; ordered: the last of
                      call.version..taken, all of which it delivers */
};
/* Return where the call in progress stands. */
struct activation_call activation_ask(const struct activation *a);

/* Return 1 if a call may still ask for the result of `version`, which is complete. */
int activation_keeps(const struct activation *a, int64_t version);
/* Return 1 if `version`, which is no sync version, is or was PINNED here: this rank's contribution
 * to it is fixed. */
int activation_pinned(const struct activation *a, int64_t version);
/* Return the number of versions PINNED here: the engine polls continuously while it is not 0. */
int activation_active(const struct activation *a);
/* Return the time (ns) of the next TICK that matters; 0: none. */
uint64_t activation_deadline(const struct activation *a);
void activation_grace(struct activation *a, uint64_t ns);
/* Sets the quorum of the versions that this rank calls from now on, 1 to size; between calls. */
void activation_quorum(struct activation *a, int quorum);
/* Write the ranks that the call in progress may be waiting for into ranks[size]; return their
 * number, and in *needed how many of them have to arrive. This is the best knowledge of this rank:
 * exact once the answers to INQUIRE have arrived. */
int activation_missing(const struct activation *a, int32_t *ranks, int *needed);
/* Return 1 if, as far as is known, the rank has not reached the version that the call in progress
 * needs. */
int activation_behind(const struct activation *a, int rank);
/* Return a dead or failed rank that the call in progress needs, -1: none. *failed is 1 if the rank
 * itself reported its failure. */
int activation_lost(const struct activation *a, int *failed);
/* Return 1 if every rank has departed and no version is PINNED here: no version can start any more.
 */
int activation_idle(const struct activation *a);
int activation_has_departed(const struct activation *a, int rank);

/* ---- the graph (pure) ------------------------------------------------------------------------ */
/* Return the number of dimensions of the activation graph over n members: ceil(log2 n). */
int activation_dimensions(int n);
/* Return the member to which member i of n sends over dimension d: i ^ 2^d (n a power of two), else
 * (i + 2^d) mod n. */
int activation_partner(int i, int n, int d);
/* Return the coordinator: the rank that counts the arrivals of a version of these members. */
int activation_coordinator(uint64_t seed, int64_t version, const int32_t *members, int n);

#endif
