/* Exchanges of some ranks in the hands of one thread, over simulated transports: a seed decides who
 * begins and polls when, and in which order messages come. */
#ifndef WAGMA_TESTS_EXCHANGE_CREW_H
#define WAGMA_TESTS_EXCHANGE_CREW_H

#include "element.h"
#include "messages/exchange.h"
#include "transport_sim.h"

enum { CREW_RANKS = 12 };

typedef struct part { /* of one rank in one version */
    exchange_start start;
    int absent; /* 1: the rank has no part in this version */
    int begun, ended;
    struct exchange *exchange; /* until crew_release() */
} part;

typedef struct crew {
    int size;
    uint64_t random;
    struct sim *sim;
    struct exchange_pool *pools[CREW_RANKS];
    arena arenas[CREW_RANKS];
    int64_t announced[CREW_RANKS]; /* the newest version that a rank heard of */
} crew;

/* 0, or the number of the error: see wagma_last_error(). */
int crew_open(crew *c, const wagma_options *options, size_t attached, uint64_t seed, int delay);
void crew_close(crew *c);

/* Runs parts[version * size + rank] to their ends. NULL, or what went wrong. */
const char *crew_run(crew *c, part *parts, int versions);
void crew_release(crew *c, part *parts, int versions);

/* Describe a message that is left in flight, or a misuse; NULL: none. */
const char *crew_leftover(crew *c);

uint64_t crew_draw(crew *c, uint64_t below);

#endif
