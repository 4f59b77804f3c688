/* Exhaustive search over the states of a space, and random walks. */
#ifndef EXPLORE_SEARCH_H
#define EXPLORE_SEARCH_H

#include "space.h"

struct limits {
    int table_bits; /* the table holds at most 0.9 * 2^table_bits states */
    double seconds; /* 0: none */
    int depth_first, trace;
    uint64_t walks, seed; /* random walks instead, if walks is not 0 */
};

struct result {
    uint64_t states, transitions, depth;
    uint64_t alone; /* steps of the runs alone, made or noted */
    uint64_t terminal;
    int truncated; /* a limit was reached before the frontier was empty */
    struct outcome outcome;
};

void search(const struct space *g, const struct limits *limits, struct result *result);
void walk(const struct space *g, const struct limits *limits, struct result *result);
double seconds_now(void);

/* -- table.c: the set of states seen, by fingerprint ------------------------------------------- */
struct table {
    uint64_t *entries; /* fingerprint 58 bits | flags; 0: empty */
    uint64_t mask, used;
    /* BFS: the states' numbers, in the order of their discovery, and by number ... */
    uint32_t *numbers;
    uint32_t *parents; /* the state that it was first reached from */
    uint32_t *notes;   /* what each of `ranks` ranks does next if it runs alone */
    int ranks;         /* 0: no notes */
};

enum table_flag {
    SEEN = 1,  /* discovered by the search (else only by a run alone) */
    ALONE = 2, /* << rank: this rank, run alone from here, was checked */
    FLAGS = (ALONE << SPACE_RANKS) - 1
};

int table_open(struct table *t, int bits, int breadth_first, int ranks);
void table_close(struct table *t);
/* Where a state is looked for; table_key() begins to fetch it into the cache. */
struct table_key {
    uint64_t home, print;
};
struct table_key table_key(const struct table *t, const void *state, int bytes);
/* Entry of the state, made if it is new. */
uint64_t table_at(struct table *t, struct table_key key);
uint64_t table_find(struct table *t, const void *state, int bytes);

/* -- alone.c: I3 ------------------------------------------------------------------------------- */
struct searching {
    const struct space *g;
    const struct limits *limits;
    struct result *result;
    struct table table;
    double began;
    int notes; /* 1: runs alone are checked in the end, by notes; 0: on the way */
};

/* Every rank alone from `cells`, entry `at`. */
void all_alone(struct searching *x, const uint16_t *cells, uint64_t at);

/* A note: where a step of a rank leads that runs alone (its entry, in the end its number), or
 * that it is over: it returns, waits rightly, or is known to from there on. */
#define NOTE_END (UINT32_C(1) << 31)
#define NOTE_WRONG (UINT32_C(1) << 30) /* the step waits wrongly */
#define NOTE_WHERE (NOTE_WRONG - 1)

static inline uint32_t *note_of(const struct table *t, uint32_t number, int rank) {
    return &t->notes[(size_t)number * (size_t)t->ranks + (size_t)rank];
}
/* The note of a move of `rank`, should it be what is made alone, but for the entry of `to`. */
uint32_t note_move(const struct space *g, const uint16_t *from, const uint16_t *to, int rank,
                   const struct outcome *out);
/* Likewise, of a running rank that makes none: it waits. */
uint32_t note_still(const struct space *g, const uint16_t *from, int rank);
/* After a search of all states: 1 if a run alone fails, first from state number `*found`. It is
 * what all_alone() finds from the states in this order. */
int check_notes(struct searching *x, uint32_t *found);

#endif
