/* The world in which the explorer runs csrc/protocol/round.c: shared words, data with torn
 * detection, the ranks' local states, and ghost state for the invariants, all in one flat array of
 * 16-bit cells, so that a state is copied, hashed and compared as bytes.
 *
 * A transition is one round_step() of one rank: at most one shared access. An action on data that
 * the step asks for *begins* with that transition and *ends* with the rank's next one: everything
 * that the other ranks do in between overlaps with it. Reads are checked at both ends, writes are
 * torn in between. (Nothing is lost by not stopping between an access and the begin next to it:
 * versions only grow, so what a reader finds wrong there it also finds wrong at the other end.) */
#ifndef EXPLORE_MODEL_H
#define EXPLORE_MODEL_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include "protocol/round.h"

enum { MAX_RANKS = 5, MAX_PROGRAM = 15, MAX_SLICES = 4, STORE_BUFFER = 12, MAX_CELLS = 4096 };

enum { CELL_PLAIN = 256 }; /* numbers below are their own cells */

/* Kinds of cells beyond enum round_word. */
enum kind {
    KIND_DATA = ROUND_FREE + 1, /* (r, b)  version of the contribution | TORN */
    KIND_RESULT,                /* (c, s)  version of the life that wrote it | TORN; 0: unwritten */
    KIND_META,                  /* (c)     weights of the inputs, likewise */
    KIND_LIFE,                  /* (c)     ghost: version of this life | INSTALLED once in a slot */
    KIND_INSTALLED,             /* (L)     ghost: bitmap of versions that L's slots have held */
    KIND_RANK,                  /* (r, field) */
    KIND_STORES,                /* (r, k)  store buffer: count, then (cell, value) pairs */
    KINDS
};

#define TORN 0x8000
#define EMPTY 0x4000 /* of weight 0: never written, and not to be read */
#define INSTALLED 0x8000

/* Fields of round_local that are part of the state; `why` and `outcome` only speak to the caller.
 */
/* clang-format off */
#define LOCAL_LONG(X)                                                                              \
    X(last) X(horizon) X(t) X(u) X(slot) X(w) X(low) X(copied) X(ready) X(drop_head) X(drop_in)
#define LOCAL_SHORT(X)                                                                             \
    X(own)                                                                                         \
    X(pc)                                                                                          \
    X(sync) X(leader) X(members) X(position) X(i) X(present) X(gone) X(awaited) X(buffer) X(c)     \
        X(s) X(inputs) X(fresh) X(other) X(unref_c) X(unref_k) X(resume_pc) X(drop_c) X(drop_i) \
            X(drop_return) X(reserved) X(jumped) X(kept) X(late) X(out_of_place) X(view) X(copying) X(drawn) \
                X(drawn_here) X(array) X(from_array) X(takes) X(to_all)
/* clang-format on */

enum rank_field {
#define FIELD(name) R_##name,
    LOCAL_LONG(FIELD) LOCAL_SHORT(FIELD)
#undef FIELD
        R_OP,    /* next operation of the rank's program */
    R_ACTION,    /* action in progress, ROUND_STEP: none */
    R_DELIVERED, /* ghost: slices that x has received */
    R_TAKEN,     /* ghost: newest version taken part in or merged */
    R_HANDING,   /* ghost: 1 from the pin until its late members must have been told */
    R_NEWEST,    /* ghost: newest version whose round this rank must be able to find */
    R_VIEW,      /* ghost, ordered: first and last version whose results are looked at */
    R_VIEW_LAST,
    R_CALLED, /* ghost, varies: bitmap of versions whose calls were over, without a dispute */
    R_WARNED, /* ghost, varies: there was a dispute when the call began */
    R_OVER,   /* enum over */
    R_FLOOR,  /* ghost, per member: newest publication when the pin began */
    RANK_FIELDS = R_FLOOR + MAX_RANKS
};

enum over { RUNNING, FINISHED, DEPARTED, FAILED };

struct config {
    int ranks, group_size, quorum, window, slices, versions, tso, collapse;
    int rounds, buffers; /* per rank */
    int world, ordered;  /* as in round_context */
    int majority;        /* instead of the quorum */
    int forward;         /* after a late version u the rank goes on with u + 1 */
    int grouping, seed;
    int arrays; /* the ranks' arrays show buffers: a program has an x */
    /* n: version, z: with weight 0, s: sync version, o: out of place, p: with a buffer reserved
     * that is not used, x: from the array, y: sync version from the array, d: departure */
    char program[MAX_RANKS][MAX_PROGRAM + 1];
    int varies; /* the quorum of a version is a digit of the rank's word, or the last one */
    char quorums[MAX_RANKS][MAX_PROGRAM + 1];
    int disagree; /* the words do */
    int limited;  /* buffers or rounds are fewer than the bounds: waiting for them is allowed */
    int no_waits; /* who runs alone must not wait: for tests of the search, which has to find it */
    int spare;    /* and yet arrays take results, as when there is less memory than was said */
    int mismatch; /* programs disagree about a sync version */
    int cells;    /* of a state */
    int bytes;    /* of a state, a multiple of 32 */
    int base[KINDS], stride[KINDS];
    struct round_context context[MAX_RANKS];
    /* members[sync][version][rank] and their number */
    int32_t members[2][MAX_PROGRAM + 1][MAX_RANKS][MAX_RANKS];
    int count[2][MAX_PROGRAM + 1][MAX_RANKS];
};

enum access_kind { ACCESS_NONE, ACCESS_LOAD, ACCESS_STORE, ACCESS_RMW };

struct access { /* the one shared access of a step */
    enum access_kind kind;
    const char *name;
    int word, i, j, order, done;
    uint64_t before, after;
};

struct round_memory { /* what csrc/protocol/round.c takes for the shared memory */
    const struct config *config;
    uint16_t *cells;
    int rank;
    struct access access;
    int accesses;
    int blocked;   /* the access has to wait until the store buffer is empty */
    int looked_up; /* the rank read its own hold */
    struct round_local local;
    enum round_action action;
    const char *invariant; /* NULL, or the first one that was violated */
    char detail[200];
};

static inline int cell_index(const struct config *g, int kind, int i, int j) {
    return g->base[kind] + i * g->stride[kind] + j;
}
static inline uint16_t *cell(const struct round_memory *m, int kind, int i, int j) {
    return m->cells + cell_index(m->config, kind, i, j);
}
static inline uint16_t rank_field(const struct config *g, const uint16_t *cells, int r, int field) {
    return cells[cell_index(g, KIND_RANK, r, field)];
}

/* For those that are not their own cells. */
uint16_t encode_word(uint64_t word);
uint64_t decode_word(uint16_t cell);
/* 16 bits for a word or a small number. */
static inline uint16_t encode(uint64_t word) {
    return word < CELL_PLAIN ? (uint16_t)word : encode_word(word);
}
static inline uint64_t decode(uint16_t cell) {
    return cell < CELL_PLAIN ? cell : decode_word(cell);
}
void forget_round(struct round_memory *m, int c);

/* With which rank r calls version t. */
static inline int quorum_at(const struct config *g, int r, int t) {
    if (!g->varies)
        return g->quorum;
    const char *word = g->quorums[r];
    for (; t > 1 && word[1]; t--)
        word++;
    return *word - '0';
}

static inline int is_sync(char operation) {
    return operation == 's' || operation == 'y';
}

/* -- model.c ---------------------------------------------------------------------------------- */
/* Fills in what follows from ranks, group_size, ..., program. Returns an error message or NULL. */
const char *config_finish(struct config *g);
void model_initial(const struct config *g, uint16_t *cells);
/* One step of m->rank, which is running. Sets m->access and m->blocked, and m->action and
 * m->invariant unless they stay what they are. */
void model_step(struct round_memory *m, struct round_input input);
/* Does the rank's buffer hold stores? */
int model_has_stores(const struct config *g, const uint16_t *cells, int rank);
/* Makes the oldest of m->rank's visible; there is one. */
void model_flush(struct round_memory *m);

/* -- memory.c: what protocol/round.c does to memory (round.c) ---------------------------------- */
uint64_t model_load(struct round_memory *m, int kind, uint32_t i, uint32_t j, int order);
void model_store(struct round_memory *m, int kind, uint32_t i, uint32_t j, uint64_t value,
                 int order);
int model_cas(struct round_memory *m, int kind, uint32_t i, uint32_t j, uint64_t *expected,
              uint64_t desired, int order);
enum rmw { RMW_SWAP, RMW_ADD, RMW_SUB, RMW_OR };
uint64_t model_rmw(struct round_memory *m, enum rmw op, int kind, uint32_t i, uint32_t j,
                   uint64_t value, int order);
/* Data and ghosts: not steps of their own. */
uint16_t data_read(const struct round_memory *m, int kind, int i, int j);
void data_write(struct round_memory *m, int kind, int i, int j, uint16_t value);

/* -- check.c, check_data.c, check_calls.c: the invariants -------------------------------------- */
void violate(struct round_memory *m, const char *invariant, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Before `value` replaces what the cell holds. */
void check_commit(struct round_memory *m, enum access_kind kind, int word, int i, int j,
                  uint16_t value);
void check_recorded(struct round_memory *m, int c, int k); /* IN[c][k] has been written */
void check_freed(struct round_memory *m, int c);           /* FREE[c] has been set */
void check_pinned(struct round_memory *m, int leader, uint64_t before, uint64_t word);
void check_begin(struct round_memory *m);    /* an action was asked for */
void check_end(struct round_memory *m);      /* the action in progress is over */
void check_lookup(struct round_memory *m);   /* the rank has read its hold */
void check_return(struct round_memory *m);   /* the call is over */
void check_disputed(struct round_memory *m); /* it ended so */
void check_alone(struct round_memory *m);    /* run alone, the rank asks for a wait */
void check_terminal(struct round_memory *m); /* nobody can step */

#endif
