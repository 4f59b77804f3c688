/* Transitions between states: one step of one rank (or one store becoming visible), and the
 * invisible steps that follow it. */
#ifndef EXPLORE_MOVES_H
#define EXPLORE_MOVES_H

#include "model.h"
#include "space.h"

enum choice {
    CHOICE_EARLY,   /* grace has not run out, no slice is late */
    CHOICE_EXPIRED, /* both have; only where the rank asked to wait for that */
    CHOICE_FLUSH,   /* the oldest store of the rank becomes visible (tso) */
    CHOICES
};

/* The next move of `from`, made in `to`; 0: there is none. `*moved`: the move. If `log` is not NULL
 * every step is printed there. */
int moves_next(const struct config *g, const uint16_t *from, struct cursor *at, uint16_t *to,
               struct cursor *moved, struct outcome *out, FILE *log);

/* Makes one move; 0: it is not enabled. */
int moves_make(const struct config *g, const uint16_t *from, struct cursor move, uint16_t *to,
               struct outcome *out, FILE *log);

/* 1: the action of a step ended the call (or the rank's program). */
static inline int is_return(enum round_action action) {
    return action == ROUND_RETURN || action == ROUND_MISMATCH;
}

/* Called in a state without moves. */
void moves_check_terminal(const struct config *g, const uint16_t *cells, struct outcome *out);
/* Called where `rank`, run alone, asked to wait. */
void moves_check_alone(const struct config *g, const uint16_t *before, const uint16_t *after,
                       int rank, enum round_why why, struct outcome *out);

#endif
