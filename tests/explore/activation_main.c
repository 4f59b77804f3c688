#include "activation_main.h"

#include <string.h>

#include "activation_model.h"
#include "command.h"

static const char usage[] =
    "explore --activation --ranks P --group S --programs W[,W...] [options]\n"
    "  --programs  what each rank does (the last word counts for the rest): n version, s sync(x),\n"
    "              d departure at the end; a rank whose word is over otherwise stays away for "
    "ever\n"
    "  --quorum N  members that start a version (1); 0: all\n"
    "  --quorums W[,W...]  digits: members that start each version, the last digit the rest\n"
    "  --majority  a drawn member starts it             --grace     recent members are awaited\n"
    "  --window N  versions ahead (3)                   --period N  every N-th is a sync version\n"
    "  --world     ranks start all groups at once       --ordered   every result for every rank\n"
    "  --forward   on after the version merged          --pairs, --fixed  grouping\n"
    "  --gather    data goes to the lowest member first (else to all at once)\n"
    "  --no-collapse  messages that tell nothing are moves, too\n";

static struct space activation_space(const struct activation_space_config *g);

int activation_main(int argc, char **argv) {
    static struct activation_space_config g = {.quorum = 1, .window = 3};
    const struct setting settings[] = {
        {"ranks", &g.ranks, 1, 0},
        {"group", &g.group_size, 1, 0},
        {"quorum", &g.quorum, 1, 0},
        {"window", &g.window, 1, 0},
        {"period", &g.period, 1, 0},
        {"majority", &g.majority, 0, 1},
        {"grace", &g.grace, 0, 1},
        {"world", &g.world, 0, 1},
        {"ordered", &g.ordered, 0, 1},
        {"forward", &g.forward, 0, 1},
        {"gather", &g.gather, 0, 1},
        {"no-collapse", &g.single, 0, 1},
        {"pairs", &g.grouping, 0, WAGMA_GROUPING_PAIRS},
        {"fixed", &g.grouping, 0, WAGMA_GROUPING_FIXED},
    };
    struct command command;
    const char *error =
        command_read(argc, argv, settings, (int)(sizeof settings / sizeof *settings), &command);
    if (!error && (g.ranks < 1 || g.ranks > ACTIVATION_RANKS))
        error = "--ranks is out of range";
    if (!error)
        error = command_programs(command.programs, g.ranks, g.program[0], sizeof g.program[0],
                                 ACTIVATION_PROGRAM);
    if (!error && command.quorums) {
        g.varies = 1;
        error = command_programs(command.quorums, g.ranks, g.quorums[0], sizeof g.quorums[0],
                                 ACTIVATION_PROGRAM);
    }
    if (!error)
        error = activation_config_finish(&g);
    if (error)
        return command_wrong(error, usage);
    const struct space space = activation_space(&g);
    return command_run(&space, &command.limits);
}

/* ---- the space ------------------------------------------------------------------------------- */
enum { MOVED, WAITS, RETURNED };

static struct activation_world world(const void *config, const uint16_t *cells) {
    return (struct activation_world){.g = config, .cells = (unsigned char *)cells};
}

static void report(const struct activation_world *w, int action, struct outcome *out) {
    out->action = action;
    out->why = 0;
    out->invariant = w->bad.invariant;
    if (w->bad.invariant)
        memcpy(out->detail, w->bad.detail, sizeof w->bad.detail);
}

static void initial(const void *config, uint16_t *cells) {
    struct activation_world w = world(config, cells);
    activation_world_initial(&w);
}

static int make(const void *config, const uint16_t *from, struct cursor move, uint16_t *to,
                struct outcome *out, FILE *log) {
    struct activation_world w = world(config, to);
    int returned = 0;
    w.log = log;
    memcpy(to, from, (size_t)w.g->bytes);
    const int made = activation_world_move(&w, move.rank, move.choice, &returned);
    const int waits = !made && move.choice == ACTIVATION_ALONE;
    report(&w, returned ? RETURNED : waits ? WAITS : MOVED, out);
    return made || waits;
}

static int next(const void *config, const uint16_t *from, struct cursor *at, uint16_t *to,
                struct cursor *moved, struct outcome *out, FILE *log) {
    const struct activation_space_config *g = config;
    const int choices = ACTIVATION_DATA + g->rules.versions;
    const struct activation_world w = world(config, from);
    for (; at->rank < g->ranks; at->rank++, at->choice = 0)
        while (at->choice < choices) {
            *moved = *at;
            at->choice++;
            if (activation_is_enabled(&w, moved->rank, moved->choice) &&
                make(config, from, *moved, to, out, log))
                return 1;
        }
    return 0;
}

static int is_running(const void *config, const uint16_t *cells, int rank) {
    const struct activation_world w = world(config, cells);
    return activation_is_running(&w, rank);
}

static int is_return(int action) {
    return action == RETURNED;
}

static void terminal(const void *config, const uint16_t *cells, struct outcome *out) {
    struct activation_world w = world(config, cells);
    activation_check_terminal(&w);
    report(&w, WAITS, out);
}

static void alone(const void *config, const uint16_t *before, const uint16_t *after, int rank,
                  int why, struct outcome *out) {
    struct activation_world w = world(config, after);
    (void)before;
    (void)why;
    activation_check_waiting(&w, rank);
    report(&w, WAITS, out);
}

/* The engines' moves, rank by rank, last what only time brings; if there is none, the caller's. */
static int alone_order(const void *config, struct cursor move, int rank) {
    const struct activation_space_config *g = config;
    if (move.choice == ACTIVATION_CALLER)
        return move.rank == rank;
    return 2 * (g->ranks - move.rank) + (move.choice != ACTIVATION_TIME);
}

static struct space activation_space(const struct activation_space_config *g) {
    return (struct space){
        .config = g,
        .bytes = g->bytes,
        .ranks = g->ranks,
        .runs_alone = 1,
        .wait = WAITS,
        .early = ACTIVATION_CALLER,
        .expired = ACTIVATION_ALONE,
        .initial = initial,
        .next = next,
        .make = make,
        .is_running = is_running,
        .is_return = is_return,
        .check_terminal = terminal,
        .check_alone = alone,
        .alone_order = alone_order,
    };
}
