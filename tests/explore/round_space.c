/* The round protocol as a space. */
#include "round_space.h"

#include "moves.h"

_Static_assert((int)MAX_CELLS <= (int)SPACE_CELLS && (int)MAX_RANKS <= (int)SPACE_RANKS,
               "a state of the model fits into the search's");

static void initial(const void *config, uint16_t *cells) {
    model_initial(config, cells);
}

static int next(const void *config, const uint16_t *from, struct cursor *at, uint16_t *to,
                struct cursor *moved, struct outcome *out, FILE *log) {
    return moves_next(config, from, at, to, moved, out, log);
}

static int make(const void *config, const uint16_t *from, struct cursor move, uint16_t *to,
                struct outcome *out, FILE *log) {
    return moves_make(config, from, move, to, out, log);
}

static int is_running(const void *config, const uint16_t *cells, int rank) {
    return rank_field(config, cells, rank, R_OVER) == RUNNING;
}

static int returns(int action) {
    return is_return((enum round_action)action);
}

static void terminal(const void *config, const uint16_t *cells, struct outcome *out) {
    moves_check_terminal(config, cells, out);
}

static void alone(const void *config, const uint16_t *before, const uint16_t *after, int rank,
                  int why, struct outcome *out) {
    moves_check_alone(config, before, after, rank, (enum round_why)why, out);
}

/* Where `next` does not try whether something has expired, it makes no difference. */
static int alone_order(const void *config, struct cursor move, int rank) {
    (void)config;
    if (move.rank != rank || move.choice == CHOICE_FLUSH)
        return 0;
    return move.choice == CHOICE_EXPIRED ? 2 : 1;
}

struct space round_space(const struct config *g) {
    return (struct space){
        .config = g,
        .bytes = g->bytes,
        .ranks = g->ranks,
        /* tso: a stopped rank's stores become visible, there is no state to run alone from */
        .runs_alone = !g->tso,
        .wait = ROUND_WAIT,
        .early = CHOICE_EARLY,
        .expired = CHOICE_EXPIRED,
        .initial = initial,
        .next = next,
        .make = make,
        .is_running = is_running,
        .is_return = returns,
        .check_terminal = terminal,
        .check_alone = alone,
        .alone_order = alone_order,
    };
}
