/* The world in which the explorer runs csrc/protocol/quorum_all.c: shared words, records and arrays
 * with torn detection, the ranks' local states and programs, in one flat array of 16-bit cells.
 *
 * A transition is one inplace_step() of one rank: at most one shared access. An action on data that
 * the step asks for begins with that transition and ends with the rank's next one; what the other
 * ranks do in between overlaps with it. Reads are checked at both ends, writes are torn in between.
 * A rank may also die, wherever it is, and then does nothing more; what it was writing stays torn.
 * Or it gives up while it waits (a timeout, an interrupt): its user, who is told, may then
 * overwrite the array at once. */
#ifndef EXPLORE_INPLACE_MODEL_H
#define EXPLORE_INPLACE_MODEL_H

#include <stdatomic.h>
#include <stdint.h>

#include "protocol/quorum_all.h"
#include "space.h"

enum { INPLACE_RANKS = SPACE_RANKS, INPLACE_PROGRAM = 12, INPLACE_SLICES = 4 }; /* at most */

/* Kinds of cells beyond enum inplace_word. */
enum inplace_kind {
    KIND_RECORD = INPLACE_STATE + 1, /* (r, parity) version + 1, or WRITING */
    KIND_ARRAY,                      /* (r, slice) INPUT or RESULT of a version, or WRITING */
    KIND_RANK,                       /* (r, field) */
    KINDS
};

/* Contents of an array's slice. */
#define CONTENT_INPUT(t) ((uint16_t)(((t) + 1) << 1))
#define CONTENT_RESULT(t) ((uint16_t)(((t) + 1) << 1 | 1))
#define CONTENT_TAINTED 0x4000 /* with a result: computed from an array that was overwritten */
#define CONTENT_WRITING(rank) ((uint16_t)(0x8000 | (rank)))

enum inplace_field {
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
    R_OP = R_SEEN + INPLACE_RANKS, /* next operation of the program */
    R_ACTION,                      /* on data, in progress; INPLACE_STEP: none */
    R_MODE,                        /* enum mode */
    R_OVER,                        /* enum over */
    R_TAINTED,                     /* the slice that is being reduced has a torn input */
    R_HOLDS,                       /* it has claimed a slice and not counted it as done */
    RANK_FIELDS
};

enum mode { GOING, WAITING, SEEKING };
enum over { RUNNING, DEPARTING, FAILING, FINISHED, DEPARTED, FAILED, DEAD };

struct inplace_config {
    int ranks, group_size, window;
    int slices;  /* of a version; 0: payloads are in the records */
    int deaths;  /* at most so many */
    int give_up; /* ranks may give up waiting */
    char program[INPLACE_RANKS][INPLACE_PROGRAM + 1];
    int mismatch; /* programs disagree about a sync version */
    int cells, bytes;
    int base[KINDS], stride[KINDS];
    int32_t members[2][INPLACE_PROGRAM][INPLACE_RANKS][INPLACE_RANKS]; /* [sync][version][rank] */
    int32_t count[2][INPLACE_PROGRAM][INPLACE_RANKS];
};

struct inplace_access {
    const char *name; /* NULL: none */
    int word, rank, parity, order, done;
    uint64_t before, after;
};

struct inplace_memory { /* what csrc/protocol/quorum_all.c takes for the shared memory */
    const struct inplace_config *config;
    uint16_t *cells;
    int rank;
    int accesses;
    struct inplace_access access;
    struct inplace_local local;
    enum inplace_action action;
    const char *invariant; /* NULL, or the first one that was violated */
    char detail[200];
    /* arrays of local */
    int64_t seen[INPLACE_RANKS];
    int32_t group[2][INPLACE_RANKS];
    int32_t present[INPLACE_RANKS], contributors[INPLACE_RANKS], missing[INPLACE_RANKS];
    double weights[INPLACE_RANKS];
};

static inline uint16_t *inplace_cell(const struct inplace_memory *m, int kind, int i, int j) {
    return m->cells + m->config->base[kind] + i * m->config->stride[kind] + j;
}
static inline uint16_t *inplace_field(const struct inplace_memory *m, int r, int field) {
    return inplace_cell(m, KIND_RANK, r, field);
}
static inline int inplace_is_running(int over) {
    return over == RUNNING || over == DEPARTING || over == FAILING;
}
/* Its process is gone without having closed, or it has said that it failed. */
static inline int inplace_is_lost(const struct inplace_memory *m, int r) {
    const int over = *inplace_field(m, r, R_OVER);
    return over == DEAD || over == FINISHED || over == FAILED;
}

/* -- inplace_model.c ----------------------------------------------------------------------------
 */
/* Fills in what follows from ranks, ..., program. Returns an error message or NULL. */
const char *inplace_config_finish(struct inplace_config *g);
void inplace_model_initial(const struct inplace_config *g, uint16_t *cells);

enum inplace_choice {
    CHOICE_STEP,
    CHOICE_SEEK,    /* of a rank that waits: look whom for */
    CHOICE_GIVE_UP, /* likewise, or of one that has posted and is away */
    CHOICE_REST,    /* of one that has posted and is between slices: goes away */
    CHOICE_DIE,
    INPLACE_CHOICES
};
/* One move of m->rank; 0: it is not enabled. Sets m->action, m->access, m->invariant. */
int inplace_model_move(struct inplace_memory *m, enum inplace_choice choice);
uint64_t inplace_decode(int word, uint16_t cell);

/* -- inplace_space.c ----------------------------------------------------------------------------
 */
/* The states and moves of a finished configuration, which must outlive it. */
struct space inplace_space(const struct inplace_config *g);

/* -- inplace_check.c: the invariants ------------------------------------------------------------
 */
void inplace_violate(struct inplace_memory *m, const char *invariant, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void inplace_check_weight(struct inplace_memory *m, int q, int parity); /* is being read */
void inplace_check_begin(struct inplace_memory *m); /* an action was asked for */
void inplace_check_end(struct inplace_memory *m, enum inplace_action action); /* it is over */
void inplace_check_alone(struct inplace_memory *m); /* run alone, the rank asks for a wait */
void inplace_check_terminal(struct inplace_memory *m);

#endif
