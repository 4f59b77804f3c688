/* Quorum "all" as a space: its moves, and how they are printed. */
#include <string.h>

#include "quorum_all_model.h"

static void report(const struct quorum_all_memory *m, struct outcome *out) {
    out->action = (int)m->action;
    out->why = 0;
    out->invariant = m->invariant;
    if (m->invariant)
        memcpy(out->detail, m->detail, sizeof out->detail);
}

static void print_word(FILE *log, int word, uint64_t value) {
    static const char *const states[] = {"absent", "joined", "ready", "departed", "failed"};
    const uint64_t count = value & ((UINT64_C(1) << QUORUM_ALL_SLICE_BITS) - 1);
    switch (word) {
    case QUORUM_ALL_STAMP:
        fprintf(log, "(v%d%s)", (int)quorum_all_stamp_version(value), value & 1 ? " sync" : "");
        break;
    case QUORUM_ALL_CLAIM:
    case QUORUM_ALL_DONE:
        fprintf(log, "(v%d, %d slices)", (int)(value >> QUORUM_ALL_SLICE_BITS) - 1, (int)count);
        break;
    case QUORUM_ALL_STATE: fprintf(log, "%s", value ? states[value] : "here"); break;
    default: fprintf(log, "v%d", (int)value - 1);
    }
}

static void print_move(FILE *log, const struct quorum_all_memory *m, int t, int over, int choice) {
    static const char *const orders[] = {"relaxed", "consume", "acquire",
                                         "release", "acq_rel", "seq_cst"};
    static const char *const words[] = {"STAMP", "ARRIVE", "FINISH", "SLICED",
                                        "CLAIM", "DONE",   "STATE"};
    static const char *const actions[] = {"",         "WAIT",      "WRITE...", "PRIVATE...",
                                          "SHARE...", "REDUCE...", "COMPLETE", "DELIVER...",
                                          "RETURN",   "SOUGHT",    "MISMATCH", "PEER"};
    const struct quorum_all_access *a = &m->access;
    fprintf(log, "    rank %d", m->rank);
    if (choice == CHOICE_DIE || choice == CHOICE_GIVE_UP || over != RUNNING) {
        fprintf(log, " %s\n",
                choice == CHOICE_DIE       ? "dies"
                : choice == CHOICE_GIVE_UP ? "gives up"
                : over == DEPARTING        ? "departs"
                                           : "has failed, and its user overwrites the array");
        return;
    }
    fprintf(log, " in v%d: ", t - 1);
    if (a->name) {
        fprintf(log, "%s %s[%d]", a->name, words[a->word], a->rank);
        if (m->config->stride[a->word] > 1)
            fprintf(log, "[%d]", a->parity);
        fprintf(log, " ");
        print_word(log, a->word, a->before);
        if (!a->done)
            fprintf(log, ": not as expected");
        if (a->after != a->before) {
            fprintf(log, " -> ");
            print_word(log, a->word, a->after);
        }
        fprintf(log, "  [%s]", orders[a->order]);
    }
    fprintf(log, "  %s", actions[m->action]);
    if (m->action == QUORUM_ALL_REDUCE)
        fprintf(log, " slice %d", (int)m->local.s);
    fprintf(log, "\n");
}

static void initial(const void *config, uint16_t *cells) {
    quorum_all_model_initial(config, cells);
}

static int make(const void *config, const uint16_t *from, struct cursor move, uint16_t *to,
                struct outcome *out, FILE *log) {
    const struct quorum_all_config *g = config;
    struct quorum_all_memory m = {.config = g, .cells = to, .rank = move.rank};
    memcpy(to, from, (size_t)g->bytes);
    const int t = *quorum_all_field(&m, m.rank, R_T), over = *quorum_all_field(&m, m.rank, R_OVER);
    int choice = move.choice;
    if (choice == CHOICE_SEEK && *quorum_all_field(&m, m.rank, R_MODE) != WAITING)
        choice = CHOICE_STEP;
    if (!quorum_all_model_move(&m, (enum quorum_all_choice)choice))
        return 0;
    report(&m, out);
    if (log)
        print_move(log, &m, t, over, choice);
    return 1;
}

static uint16_t field(const struct quorum_all_config *g, const uint16_t *cells, int rank, int k) {
    return cells[g->base[KIND_RANK] + rank * g->stride[KIND_RANK] + k];
}

/* 0: the move of a running rank is not enabled, as is seen without copying the state. */
static int may_move(const struct quorum_all_config *g, const uint16_t *from, int rank, int choice) {
    switch (choice) {
    case CHOICE_SEEK: return field(g, from, rank, R_MODE) == WAITING;
    case CHOICE_GIVE_UP: return g->give_up;
    case CHOICE_REST: return field(g, from, rank, R_POSTED);
    case CHOICE_DIE: return g->deaths;
    default: return 1;
    }
}

static int next(const void *config, const uint16_t *from, struct cursor *at, uint16_t *to,
                struct cursor *moved, struct outcome *out, FILE *log) {
    const struct quorum_all_config *g = config;
    for (; at->rank < g->ranks; at->rank++, at->choice = 0) {
        if (!quorum_all_is_running(field(g, from, at->rank, R_OVER)))
            continue;
        while (at->choice < QUORUM_ALL_CHOICES) {
            *moved = *at;
            at->choice++;
            if (may_move(g, from, moved->rank, moved->choice) &&
                make(config, from, *moved, to, out, log))
                return 1;
        }
    }
    return 0;
}

static int is_running(const void *config, const uint16_t *cells, int rank) {
    return quorum_all_is_running(field(config, cells, rank, R_OVER));
}

static int is_return(int action) {
    return action == QUORUM_ALL_RETURN || action == QUORUM_ALL_PEER ||
           action == QUORUM_ALL_MISMATCH;
}

static void terminal(const void *config, const uint16_t *cells, struct outcome *out) {
    struct quorum_all_memory m = {.config = config, .cells = (uint16_t *)cells};
    quorum_all_check_terminal(&m);
    report(&m, out);
}

static void alone(const void *config, const uint16_t *before, const uint16_t *after, int rank,
                  int why, struct outcome *out) {
    struct quorum_all_memory m = {.config = config, .cells = (uint16_t *)after, .rank = rank};
    (void)before;
    (void)why;
    quorum_all_check_alone(&m);
    out->invariant = m.invariant;
    if (m.invariant)
        memcpy(out->detail, m.detail, sizeof out->detail);
}

/* Who does not wait goes on, whether it is to seek or not. */
static int alone_order(const void *config, struct cursor move, int rank) {
    (void)config;
    if (move.rank != rank || (move.choice != CHOICE_STEP && move.choice != CHOICE_SEEK))
        return 0;
    return move.choice == CHOICE_SEEK ? 2 : 1;
}

struct space quorum_all_space(const struct quorum_all_config *g) {
    return (struct space){
        .config = g,
        .bytes = g->bytes,
        .ranks = g->ranks,
        .runs_alone = 1,
        .wait = QUORUM_ALL_WAIT,
        .early = CHOICE_STEP,
        .expired = CHOICE_SEEK,
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
