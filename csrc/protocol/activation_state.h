/* State of the activation core (activation.h), for its parts:
 *   activation.c              events: arrivals, activations, departures
 *   activation_coordinator.c  counts arrivals, and decides when a version may start
 *   activation_state.c        versions in their slots, actions that wait to be taken, the graph
 *   activation_quorum.c       quorums that change from version to version
 *   activation_window.c       the barriers that keep ranks within the window
 *   activation_ask.c          questions
 *
 * A rank has a slot for every version that can matter at a time. Let h = max(1, window / 2). A rank
 * joins barrier j when its counter has reached j h and no lower version is pinned on it. A rank may
 * call versions of block j = t / h when barrier j - 1 has passed, hence when every counter has
 * reached (j - 1) h: at most 2 h - 1 <= max(1, window) ahead. A version that is still PINNED on a
 * rank is at least (j - 2) h. A lower version would have kept the rank from joining barrier j - 1,
 * unless it was pinned after that, by a caller that had not joined barrier j - 1 itself, and whose
 * counter was at least (j - 2) h. Versions that matter lie within (j - 2) h .. (j + 1) h, and 3 h +
 * 2 slots would do. A message about a version whose slot a newer one has taken is old: no member of
 * its scope waits for this rank. */
#ifndef WAGMA_PROTOCOL_ACTIVATION_STATE_H
#define WAGMA_PROTOCOL_ACTIVATION_STATE_H

#include "protocol/activation.h"

enum activation_version_state { ACTIVATION_IDLE, ACTIVATION_PINNED, ACTIVATION_COMPLETE };

struct activation_version {
    int64_t version;    /* -1: none yet */
    int64_t input;      /* as ACTIVATION_PIN says */
    uint64_t first;     /* ns: first arrival; with `arrivals` */
    uint64_t last;      /* ns: last one of those that were expected */
    uint64_t quorum_at; /* ns: with has_quorum */
    uint32_t sent;      /* dimensions over which this rank has activated it */
    int32_t n;          /* members of this rank's group */
    int32_t arrivals;   /* notices, as its coordinator */
    uint8_t state;
    uint8_t sync;       /* PINNED: over the world, all ranks fresh */
    uint8_t has_quorum; /* and waits for the end of the grace */
    uint8_t counted;    /* its spread was told */
    uint8_t sync_seen;  /* another rank called it as sync(x) */
    uint8_t activated;  /* varies: by this rank, or by a message that came here */
    uint16_t quorum;    /* varies: what `claimant` called the version with; 0: none is known */
    int32_t claimant;   /* the first rank whose quorum of the version this rank knows */
    int32_t pad;
    /* uint64_t arrived[words], expected[words], passed[words]: of ranks, as its coordinator
     * int32_t members[group_size] */
};

struct activation {
    struct activation_config config;
    int64_t counter;       /* of the call in progress, or of the next one */
    int64_t newest;        /* version of this rank's newest contribution */
    int64_t newest_pinned; /* greatest version PINNED here that is no sync version */
    int64_t last;          /* greatest one that this rank was fresh in, or merged */
    int64_t target;        /* late: the version that the call takes */
    uint64_t now;
    uint64_t deadline; /* ns: of the first grace to end; 0: none */
    int32_t active;    /* versions PINNED */
    int32_t graces;    /* versions whose quorum is present, and whose grace runs */
    int32_t departed;  /* ranks, this one included */
    int32_t pad3;
    uint8_t calling, arrived, sync, is_explicit, late, gone, troubled, pad;

    /* window: barriers are joined and passed one after the other */
    int64_t half;       /* h */
    int64_t joined;     /* the last one that this rank joined */
    int64_t passed;     /* the last one that all ranks joined */
    int32_t round;      /* of barrier `joined`: rounds in which this rank has sent */
    uint32_t rounds[2]; /* received ones, of barriers of even and odd number */

    /* work that a step left for activation_next(): slots to be looked at again */
    int32_t recheck;
    int32_t leaver;              /* because this rank departed; -1 */
    int64_t passing, passed_all; /* versions passing..passed_all - 1 were jumped over */

    int32_t slots, words, ready, queued; /* actions[ready..ready+queued) mod capacity */
    int32_t capacity;
    int32_t pad2;
    size_t slot_bytes, o_slots, o_departed, o_told, o_lost, o_actions, bytes;
};

static inline void *activation_at(const struct activation *a, size_t offset) {
    return (unsigned char *)a + offset;
}
static inline struct activation_version *activation_slot(const struct activation *a, int64_t i) {
    return activation_at(a, a->o_slots + (size_t)i * a->slot_bytes);
}
static inline uint64_t *activation_arrived(const struct activation *a,
                                           const struct activation_version *v) {
    (void)a;
    return (uint64_t *)(v + 1);
}
static inline uint64_t *activation_expected(const struct activation *a,
                                            const struct activation_version *v) {
    return (uint64_t *)(v + 1) + a->words;
}
/* Return the ranks whose counters have jumped over the version: they will not arrive. */
static inline uint64_t *activation_passed(const struct activation *a,
                                          const struct activation_version *v) {
    return (uint64_t *)(v + 1) + 2 * a->words;
}
/* Members of the group; NULL: all ranks. */
static inline const int32_t *activation_group(const struct activation *a,
                                              const struct activation_version *v) {
    return v->n == a->config.size ? NULL : (int32_t *)((uint64_t *)(v + 1) + 3 * a->words);
}
static inline int activation_member(const int32_t *members, int i) {
    return members ? members[i] : i;
}
static inline int64_t *activation_departures(const struct activation *a) {
    return activation_at(a, a->o_departed);
}
/* Return, per rank, the version that it reported to have arrived at. */
static inline int64_t *activation_tales(const struct activation *a) {
    return activation_at(a, a->o_told);
}
enum { ACTIVATION_ALIVE, ACTIVATION_SAID_FAILED, ACTIVATION_IS_DEAD };
static inline uint8_t *activation_losses(const struct activation *a) {
    return activation_at(a, a->o_lost);
}
static inline int activation_left(const struct activation *a, int rank, int64_t version) {
    return activation_departures(a)[rank] <= version;
}
static inline int activation_is_sync(const struct activation *a, int64_t version) {
    return a->config.sync_period > 0 && (version + 1) % a->config.sync_period == 0;
}
/* Return 1 if a coordinator counts arrivals before a version is activated. */
static inline int activation_counts(const struct activation *a) {
    const struct activation_config *c = &a->config;
    return c->quorum != 0 && (c->quorum != 1 || c->grace != 0 || c->automatic);
}

/* The ranks whose arrivals start the version: its group, or the world. */
struct activation_scope {
    const int32_t *members; /* NULL: all ranks */
    int n, index;           /* of this rank */
};
struct activation_scope activation_scope_of(const struct activation *a,
                                            const struct activation_version *v);

/* Return the slot of `version`, taking it over from an older version; NULL: `version` is old. */
struct activation_version *activation_open(struct activation *a, int64_t version);
/* Return the slot of `version` if it has it, otherwise NULL. */
struct activation_version *activation_find(const struct activation *a, int64_t version);
void activation_push(struct activation *a, struct activation_action action);
void activation_send(struct activation *a, int to, int kind, int64_t version, int detail);
/* Sends a message about the version with the quorum that is known of it and its claimant. */
void activation_send_claim(struct activation *a, int to, int kind,
                           const struct activation_version *v, int detail);
void activation_trouble(struct activation *a, int reason, int64_t version, int rank);

/* Join the barriers that this rank has reached, and continue the one in progress. */
void activation_window(struct activation *a);
void activation_barrier(struct activation *a, int64_t barrier, int round);

/* Note that `rank` calls the version, which is no sync version, with `quorum`. Return 1 if another
 * rank calls it with a different quorum: all ranks are told, and the handle is broken. Return 0 if
 * none is known to, or quorums do not vary. */
int activation_claim(struct activation *a, struct activation_version *v, int rank, int quorum);
/* Tells all ranks of a dispute that this rank has found or heard of, and breaks the handle. */
void activation_dispute(struct activation *a, const struct activation_message *m);
/* Return 1 if the activation of the version may still arrive, with a quorum to compare: so far only
 * data has started the version here. Always 0 if quorums do not vary. */
int activation_is_unclaimed(const struct activation *a, const struct activation_version *v);

/* Activate the version, which was activated over dimension d or (-1) here. */
void activation_activate(struct activation *a, struct activation_version *v, int d);

/* As the version's coordinator, handle a NOTICE, EXPECT or PASS of rank `from`. */
void activation_coordinate(struct activation *a, struct activation_version *v, int kind, int from);
/* As the version's coordinator, activate the version if its time has come. */
void activation_consider(struct activation *a, struct activation_version *v);
/* Send such a message to the coordinator of `version`, which may be this rank. */
void activation_tell_coordinator(struct activation *a, int64_t version, int kind);

/* Looks at slot i again (activation_next). */
void activation_review(struct activation *a, int i);
/* Tells the coordinator of `version` that this rank has jumped over it (activation_next). */
void activation_pass(struct activation *a, int64_t version);

#endif
