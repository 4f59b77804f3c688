/* The world in which the explorer runs csrc/protocol/quorum_all.c: shared words, records and arrays
 * with torn detection, the ranks' local states and programs, in one flat array of 16-bit cells.
 *
 * A transition is one quorum_all_step() of one rank: at most one shared access. An action on data
 * that the step asks for begins with that transition and ends with the rank's next one; what the
 * other ranks do in between overlaps with it. Reads are checked at both ends, writes are torn in
 * between. A rank may also die, wherever it is, and then does nothing more; what it was writing
 * stays torn. Or it gives up while it waits (a timeout, an interrupt): its user, who is told, may
 * then overwrite the array at once. */
#ifndef EXPLORE_QUORUM_ALL_MODEL_H
#define EXPLORE_QUORUM_ALL_MODEL_H

#include <stdatomic.h>
#include <stdint.h>

#include "protocol/quorum_all.h"
#include "space.h"

enum {
    QUORUM_ALL_RANKS = SPACE_RANKS,
    QUORUM_ALL_PROGRAM = 12,
    QUORUM_ALL_SLICES = 4
}; /* at most */

/* Kinds of cells beyond enum quorum_all_word. */
enum quorum_all_kind {
    KIND_RECORD = QUORUM_ALL_STATE + 1, /* (r, parity) version + 1, or WRITING */
    KIND_ARRAY,                         /* (r, slice) INPUT or RESULT of a version, or WRITING */
    KIND_RANK,                          /* (r, field) */
    KINDS
};

/* Contents of an array's slice. */
#define CONTENT_INPUT(t) ((uint16_t)(((t) + 1) << 1))
#define CONTENT_RESULT(t) ((uint16_t)(((t) + 1) << 1 | 1))
#define CONTENT_TAINTED 0x4000 /* with a result: computed from an array that was overwritten */
#define CONTENT_WRITING(rank) ((uint16_t)(0x8000 | (rank)))

enum quorum_all_field {
    R_PC,
    R_T, /* version + 1; 0: none */
    R_SYNC,
    R_I,
    R_S,
    R_WHY,
    R_LOW, /* + 1; 0xFFFF: all departed */
    R_WORD,
    R_SLOWEST, /* + 1, likewise */
    R_OTHER,   /* + 1 */
    R_RESUME,
    R_FATE,
    R_J,    /* + 1 */
    R_LOST, /* + 1 */
    R_MISSING,
    R_PRESENT, /* bitmaps of ranks */
    R_CONTRIBUTORS,
    R_POSTED, /* 0: not; 1: posted, 2: resting */
    R_GROUP,  /* per parity: version + 1 of the newest, 0: none */
    R_GROUP_SYNC = R_GROUP + 2,
    R_SEEN = R_GROUP_SYNC + 2, /* per rank: version + 1 */
    /* ghosts */
    R_OP = R_SEEN + QUORUM_ALL_RANKS, /* next operation of the program */
    R_ACTION,                         /* on data, in progress; QUORUM_ALL_STEP: none */
    R_MODE,                           /* enum mode */
    R_OVER,                           /* enum over */
    R_TAINTED,                        /* the slice that is being reduced has a torn input */
    R_HOLDS,                          /* it has claimed a slice and not counted it as done */
    RANK_FIELDS
};

enum mode { GOING, WAITING, SEEKING };
enum over { RUNNING, DEPARTING, FAILING, FINISHED, DEPARTED, FAILED, DEAD };

struct quorum_all_config {
    int ranks, group_size, window;
    int slices;  /* of a version; 0: payloads are in the records */
    int deaths;  /* at most so many */
    int give_up; /* ranks may give up waiting */
    char program[QUORUM_ALL_RANKS][QUORUM_ALL_PROGRAM + 1];
    int mismatch; /* programs disagree about a sync version */
    int cells, bytes;
    int base[KINDS], stride[KINDS];
    int32_t members[2][QUORUM_ALL_PROGRAM][QUORUM_ALL_RANKS]
                   [QUORUM_ALL_RANKS]; /* [sync][version][rank] */
    int32_t count[2][QUORUM_ALL_PROGRAM][QUORUM_ALL_RANKS];
};

struct quorum_all_access {
    const char *name; /* NULL: none */
    int word, rank, parity, order, done;
    uint64_t before, after;
};

struct quorum_all_memory { /* what csrc/protocol/quorum_all.c takes for the shared memory */
    const struct quorum_all_config *config;
    uint16_t *cells;
    int rank;
    int accesses;
    struct quorum_all_access access;
    struct quorum_all_local local;
    enum quorum_all_action action;
    const char *invariant; /* NULL, or the first one that was violated */
    char detail[200];
    /* arrays of local */
    int64_t seen[QUORUM_ALL_RANKS];
    int32_t group[2][QUORUM_ALL_RANKS];
    int32_t present[QUORUM_ALL_RANKS], contributors[QUORUM_ALL_RANKS], missing[QUORUM_ALL_RANKS];
    double weights[QUORUM_ALL_RANKS];
};

static inline uint16_t *quorum_all_cell(const struct quorum_all_memory *m, int kind, int i, int j) {
    return m->cells + m->config->base[kind] + i * m->config->stride[kind] + j;
}
static inline uint16_t *quorum_all_field(const struct quorum_all_memory *m, int r, int field) {
    return quorum_all_cell(m, KIND_RANK, r, field);
}
static inline int quorum_all_is_running(int over) {
    return over == RUNNING || over == DEPARTING || over == FAILING;
}
/* Its process is gone without having closed, or it has said that it failed. */
static inline int quorum_all_is_lost(const struct quorum_all_memory *m, int r) {
    const int over = *quorum_all_field(m, r, R_OVER);
    return over == DEAD || over == FINISHED || over == FAILED;
}

/* ---- quorum_all_model.c ---------------------------------------------------------------------- */
/* Fills in what follows from ranks, ..., program. Returns an error message or NULL. */
const char *quorum_all_config_finish(struct quorum_all_config *g);
void quorum_all_model_initial(const struct quorum_all_config *g, uint16_t *cells);

enum quorum_all_choice {
    CHOICE_STEP,
    CHOICE_SEEK,    /* of a rank that waits: look whom for */
    CHOICE_GIVE_UP, /* likewise, or of one that has posted and is away */
    CHOICE_REST,    /* of one that has posted and is between slices: goes away */
    CHOICE_DIE,
    QUORUM_ALL_CHOICES
};
/* One move of m->rank; 0: it is not enabled. Sets m->action, m->access, m->invariant. */
int quorum_all_model_move(struct quorum_all_memory *m, enum quorum_all_choice choice);
uint64_t quorum_all_decode(int word, uint16_t cell);

/* ---- quorum_all_space.c ---------------------------------------------------------------------- */
/* The states and moves of a finished configuration, which must outlive it. */
struct space quorum_all_space(const struct quorum_all_config *g);

/* ---- quorum_all_check.c: the invariants ------------------------------------------------------ */
void quorum_all_violate(struct quorum_all_memory *m, const char *invariant, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void quorum_all_check_weight(struct quorum_all_memory *m, int q, int parity); /* is being read */
void quorum_all_check_begin(struct quorum_all_memory *m); /* an action was asked for */
void quorum_all_check_end(struct quorum_all_memory *m,
                          enum quorum_all_action action); /* it is over */
void quorum_all_check_alone(struct quorum_all_memory *m); /* run alone, the rank asks for a wait */
void quorum_all_check_terminal(struct quorum_all_memory *m);

#endif
