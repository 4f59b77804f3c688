/* What must hold of csrc/protocol/activation.h, whatever drives it: the explorer, the random
 * simulation and the golden traces tell the oracle what ranks do and what their cores ask for, and
 * it compares with what is true of all of them together. One block of memory without pointers, so
 * that it can be a part of an explored state.
 *
 * Invariants, by the names under which they are reported (A and I as in activation.h and in
 * docs/activation.md):
 *   A1-pinned-once, A1-newest, A2-fresh, A3-all-pinned, A4-once, A5-waits, A6-window, A7-end
 *   quorum     a version that was started by arrivals had its quorum of them
 *   slots      versions that are not over yet are close together: slots and tags of data repeat
 *   scope      a message or a contribution belongs to the group that it was sent for
 *   staleness  a contribution is at most window + 1 versions old
 *   result     what a call takes is complete, newest, not taken before; no result is left out
 *   I4-sync    a sync version has everybody's contribution of it */
#ifndef WAGMA_TESTS_ACTIVATION_ORACLE_H
#define WAGMA_TESTS_ACTIVATION_ORACLE_H

#include <stddef.h>

#include "protocol/activation.h"

enum { ORACLE_RANKS = 64, ORACLE_VERSIONS = 64 }; /* at most */

struct oracle_rules {
    struct activation_config core; /* `rank` means nothing */
    int versions;                  /* that ranks may call */
    uint64_t explicit_sync;        /* bit v: version v is sync(x) */
    /* core.varies: with what each rank calls each version */
    uint8_t quorums[ORACLE_RANKS][ORACLE_VERSIONS];
};

/* ---- what is true ---------------------------------------------------------------------------- */
enum oracle_phase { ORACLE_OUTSIDE, ORACLE_CALLED, ORACLE_ARRIVED, ORACLE_GONE };

struct oracle_player {
    int16_t version;  /* that it calls, or calls next */
    int16_t newest;   /* contribution */
    int16_t position; /* every version up to it was arrived at or jumped over */
    int16_t last;     /* newest version that it took part in or merged */
    int16_t pinned;   /* newest version that it could take as it arrived; -1: none */
    int16_t phase;
};

enum oracle_flag {
    ORACLE_HERE = 1, /* arrived */
    ORACLE_PINNED = 2,
    ORACLE_COMPLETE = 4,
    ORACLE_WORLD = 8, /* pinned as a sync version */
    ORACLE_SENT = 16, /* << dimension */
};
struct oracle_cell { /* of one rank and version */
    int16_t input;   /* ORACLE_ABSENT, ORACLE_WEIGHTLESS or a contribution's version */
    uint16_t flags;
};
enum { ORACLE_ABSENT = -2, ORACLE_WEIGHTLESS = -3 };

struct oracle; /* players, then cells; see oracle_bytes() */

struct oracle_violation {
    const char *invariant; /* NULL: none; the first one stays */
    char detail[160];
};

size_t oracle_bytes(const struct oracle_rules *rules);
void oracle_init(const struct oracle_rules *rules, struct oracle *o);
struct oracle_player *oracle_player(struct oracle *o, int rank);
struct oracle_cell *oracle_cell(const struct oracle_rules *rules, struct oracle *o, int rank,
                                int version);

int oracle_is_sync(const struct oracle_rules *rules, int version);
/* Members that reduce `version` with `rank`; and those whose arrivals start it. */
int oracle_members(const struct oracle_rules *rules, int rank, int version, int32_t *members);
int oracle_starters(const struct oracle_rules *rules, int rank, int version, int32_t *members);

/* ---- what happens; each returns with *bad set if it must not --------------------------------- */
void oracle_call(struct oracle *o, int rank);
void oracle_arrive(const struct oracle_rules *rules, struct oracle *o, int rank,
                   struct oracle_violation *bad);
void oracle_pin(const struct oracle_rules *rules, struct oracle *o, int rank,
                const struct activation_action *action, struct oracle_violation *bad);
void oracle_complete(const struct oracle_rules *rules, struct oracle *o, int rank, int version,
                     struct oracle_violation *bad);
void oracle_send(const struct oracle_rules *rules, struct oracle *o, int rank,
                 const struct activation_action *action, struct oracle_violation *bad);
/* The call ends as `call` says. */
void oracle_return(const struct oracle_rules *rules, struct oracle *o, int rank,
                   const struct activation_call *call, struct oracle_violation *bad);
void oracle_depart(struct oracle *o, int rank);

/* ---- in a quiet state: nothing is on its way, every grace is over ---------------------------- */
/* The rank's call may wait for ranks that have not come; `may_arrive`, `call`: what the core says.
 * Wrong unless they are really needed. */
void oracle_waits(const struct oracle_rules *rules, struct oracle *o, int rank, int may_arrive,
                  const struct activation_call *call, struct oracle_violation *bad);
/* No version is pinned by some of its members only, or pinned and not complete, that nobody is
 * missing from. */
void oracle_quiet(const struct oracle_rules *rules, struct oracle *o, struct oracle_violation *bad);

#endif
