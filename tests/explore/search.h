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
    uint64_t states, transitions, alone, depth; /* alone: steps of the runs alone */
    uint64_t terminal;
    int truncated; /* a limit was reached before the frontier was empty */
    struct outcome outcome;
};

void search(const struct space *g, const struct limits *limits, struct result *result);
void walk(const struct space *g, const struct limits *limits, struct result *result);
double seconds_now(void);

/* -- table.c: the set of states seen, by fingerprint --------------------------------------------
 */
struct table {
    uint64_t *entries; /* fingerprint 58 bits | flags; 0: empty */
    uint32_t *parents; /* BFS: entry that the state was first reached from */
    uint64_t mask, used;
};

enum table_flag {
    SEEN = 1,  /* discovered by the search (else only by a run alone) */
    ALONE = 2, /* << rank: this rank, run alone from here, was checked */
    FLAGS = (ALONE << SPACE_RANKS) - 1
};

int table_open(struct table *t, int bits, int parents);
void table_close(struct table *t);
/* Where a state is looked for; table_key() begins to fetch it into the cache. */
struct table_key {
    uint64_t home, print;
};
struct table_key table_key(const struct table *t, const void *state, int bytes);
/* Entry of the state, made if it is new. */
uint64_t table_at(struct table *t, struct table_key key);
uint64_t table_find(struct table *t, const void *state, int bytes);

#endif
