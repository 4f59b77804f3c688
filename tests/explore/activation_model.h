/* The world in which the explorer runs csrc/protocol/activation.c: the cores of all ranks, what the
 * oracle knows (tests/engine/activation_oracle.h), and what is on its way, in one block.
 *
 * A move is one event: a caller's step, the end of a grace, the arrival of a message, or something
 * about data. Control messages keep their order per pair of ranks, any pair may be next. Data
 * overtakes everything, and is not followed message by message: where a member has pinned a
 * version, its data may come to another at any time.
 *   direct   it may come to every member (and starts the version there); the exchange may end on a
 *            member when all have pinned
 *   gather   it goes to the lowest member, which answers: the exchange may end there when all have
 *            pinned, then on the others. Nobody but the lowest hears of a version by its data
 *            before it has pinned it, as in the leaves of a reduction. */
#ifndef EXPLORE_ACTIVATION_MODEL_H
#define EXPLORE_ACTIVATION_MODEL_H

#include "activation_node.h"
#include "space.h"

/* At most. */
enum {
    ACTIVATION_RANKS = 4,
    ACTIVATION_PROGRAM = 7,
    ACTIVATION_QUEUE = 14,
    ACTIVATION_CORE = 16384
};
enum { ACTIVATION_GRACE_NS = 10 };

struct activation_space_config {
    int ranks, group_size, quorum, majority, window, world, ordered, forward, period, grouping;
    int grace, gather;
    int varies,
        disagree; /* the quorum of a version is a digit of the rank's word, or the last one */
    char quorums[ACTIVATION_RANKS][ACTIVATION_PROGRAM + 1];
    int single; /* messages that tell nothing are moves, too */
    char program[ACTIVATION_RANKS][ACTIVATION_PROGRAM + 1];
    /* filled in by activation_config_finish() */
    int bytes;
    struct oracle_rules rules;
    struct activation_config core[ACTIVATION_RANKS];
    size_t core_bytes;                    /* of a core without actions: all that is kept of it */
    size_t oracle_at, ranks_at, pairs_at; /* cores are at 0 */
};

struct activation_rank { /* beside its core */
    uint64_t now;
    uint64_t heard; /* bit v: data of version v has come, before it was pinned */
    uint64_t told;  /* 1: of a dispute about quorums: its core does nothing any more */
};

struct activation_pair { /* on the way from one rank to another */
    uint32_t queue[ACTIVATION_QUEUE];
    uint32_t queued;
};

/* One state, and the move that is made in it. */
struct activation_world {
    const struct activation_space_config *g;
    unsigned char *cells;
    struct oracle_violation bad;
    FILE *log; /* NULL: nothing is printed */
};

/* A move of a rank: `choice`. */
enum activation_choice {
    ACTIVATION_CALLER,  /* calls, arrives, returns, departs */
    ACTIVATION_TIME,    /* its grace is over */
    ACTIVATION_CONTROL, /* + rank: a control message comes from there */
    ACTIVATION_DATA =
        ACTIVATION_CONTROL + ACTIVATION_RANKS, /* + version: its data comes, or its end */
    ACTIVATION_ALONE = 255, /* the first of those that only engines make, or a caller's step */
};

/* Checks the configuration and fills in what follows from it; an error message or NULL. */
const char *activation_config_finish(struct activation_space_config *g);

struct oracle *activation_oracle(const struct activation_world *w);

void activation_world_initial(struct activation_world *w);
/* 0: the move cannot be made; to be asked before its state is copied. */
int activation_is_enabled(const struct activation_world *w, int rank, int choice);
/* Makes the move; 0: it is not enabled. *returned: it ended a call. */
int activation_world_move(struct activation_world *w, int rank, int choice, int *returned);
/* 1: the rank has not come to the end of its program. */
int activation_is_running(const struct activation_world *w, int rank);
void activation_check_waiting(struct activation_world *w, int rank);
void activation_check_terminal(struct activation_world *w);

#endif
