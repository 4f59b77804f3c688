/* State space that search.c and walk.c explore: a protocol's states, as 16-bit cells, and the moves
 * between them. round_space.c, quorum_all_space.c and activation_main.c define it for each
 * protocol. */
#ifndef EXPLORE_SPACE_H
#define EXPLORE_SPACE_H

#include <stdint.h>
#include <stdio.h>

enum { SPACE_CELLS = 8192, SPACE_RANKS = 5 }; /* at most */

struct cursor { /* iterates over the moves of a state; starts as all zeros */
    int rank, choice, waits;
};

struct outcome {
    int action; /* of the last step */
    int why;
    const char *invariant; /* NULL, or what was violated */
    char detail[200];
};

struct space {
    const void *config;
    int bytes; /* of a state, a multiple of 32 */
    int ranks;
    int runs_alone; /* 1: each rank is also run alone from every state */
    int wait;       /* action of a rank that cannot go on */
    int early;      /* choices of a rank that waits: nothing has happened, ... */
    int expired;    /* ... everything that the environment can tell it */
    void (*initial)(const void *config, uint16_t *cells);
    /* The next move of `from`, made in `to`; 0: there is none. `*moved`: the move. If `log` is not
     * NULL every step is printed there. */
    int (*next)(const void *config, const uint16_t *from, struct cursor *at, uint16_t *to,
                struct cursor *moved, struct outcome *out, FILE *log);
    /* Makes one move; 0: it is not enabled. */
    int (*make)(const void *config, const uint16_t *from, struct cursor move, uint16_t *to,
                struct outcome *out, FILE *log);
    int (*is_running)(const void *config, const uint16_t *cells, int rank);
    /* 1: the action of a step ended the call (or the rank's program). */
    int (*is_return)(int action);
    /* Called in a state without moves. */
    void (*check_terminal)(const void *config, const uint16_t *cells, struct outcome *out);
    /* Called where `rank`, run alone, asked to wait. */
    void (*check_alone)(const void *config, const uint16_t *before, const uint16_t *after, int rank,
                        int why, struct outcome *out);
    /* What `rank` run alone makes of a state's moves that `next` makes: the one with the highest
     * number here, of equal ones the first, none with 0. It is then what `make` does with `expired`
     * (which waits if there is none). */
    int (*alone_order)(const void *config, struct cursor move, int rank);
};

#endif
