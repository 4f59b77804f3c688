#include <string.h>

#include "moves.h"

/* What is read after a step or a flush that need not have written it: clearing the rest would take
 * longer than a step. */
static void open_memory(struct round_memory *m, const struct config *g, uint16_t *cells, int rank) {
    m->config = g;
    m->cells = cells;
    m->rank = rank;
    m->blocked = 0;
    m->action = ROUND_STEP;
    m->local.why = 0;
    m->invariant = NULL;
}

static void report(const struct round_memory *m, struct outcome *out) {
    out->action = m->action;
    out->why = (enum round_why)m->local.why;
    out->invariant = m->invariant;
    if (m->invariant)
        memcpy(out->detail, m->detail, sizeof out->detail);
}

static const char *name_of(int kind) {
    static const char *const names[KINDS] = {
        "PUB",  "AT",   "HOLD", "SLOT", "CREF",   "DISPUTE", "HEAD", "IN",        "REFS", "USERS",
        "NEXT", "DONE", "FREE", "data", "result", "weights", "life", "installed", "rank", "stores"};
    return names[kind];
}

static void print_word(FILE *log, int kind, uint64_t word) {
    if (word == ROUND_DEPARTED)
        fprintf(log, "departed");
    else if (kind == ROUND_PUB || kind == ROUND_IN)
        fprintf(log, "(v%d%s%s, buffer %d, takes %d)", (int)round_version(word),
                round_low(word) & ROUND_PUB_SYNC ? " sync" : "",
                round_low(word) & ROUND_PUB_LEFT ? " left" : "", (int)round_buffer(word),
                (int)round_takes(word) - 1);
    else if (kind == ROUND_HOLD || kind == ROUND_SLOT)
        fprintf(log, "(v%d, round %d)", (int)round_version(word), (int)round_low(word));
    else if (kind == ROUND_HEAD)
        fprintf(log, "(v%d, leader or quorum %d%s)", (int)round_version(word),
                (int)round_low(word) >> 1, round_low(word) & 1 ? ", sync" : "");
    else
        fprintf(log, "%d", (int)word);
}

static void print_step(FILE *log, const struct round_memory *m, int t) {
    static const char *const orders[] = {"relaxed", "consume", "acquire",
                                         "release", "acq_rel", "seq_cst"};
    static const char *const actions[] = {"",        "WAIT",      "WRITE...",   "PASSED",
                                          "PINNED",  "GATHER...", "PRIVATE...", "REDUCE...",
                                          "COPY...", "REDO...",   "COMPLETE",   "COLLECT...",
                                          "RETURN",  "DISPUTED",  "MISMATCH"};
    static const char *const whys[] = {"window", "buffer", "quorum", "grace", "round", "slices"};
    const struct access *a = &m->access;
    fprintf(log, "    rank %d", m->rank);
    if (t)
        fprintf(log, " in v%d: ", t);
    else
        fprintf(log, ":       ");
    if (a->kind != ACCESS_NONE) {
        fprintf(log, "%s %s[%d", a->name, name_of(a->word), a->i);
        if (m->config->stride[a->word] > 1)
            fprintf(log, "][%d", a->j);
        fprintf(log, "] ");
        print_word(log, a->word, a->before);
        if (a->kind != ACCESS_LOAD) {
            fprintf(log, a->done ? " -> " : ": not as expected");
            if (a->done)
                print_word(log, a->word, a->after);
        }
        fprintf(log, "  [%s]", orders[a->order]);
    }
    if (m->action != ROUND_STEP)
        fprintf(log, "  %s", actions[m->action]);
    if (m->action == ROUND_WAIT)
        fprintf(log, " (%s)", whys[m->local.why]);
    fprintf(log, "\n");
}

static int names(uint16_t word, int c) {
    return word != 0 && word != 0xFFFF && word != 0xFFFE && (int)round_low(decode(word)) == c;
}

/* Is there any pointer to round c but in the local state of `rank`? */
static int is_named(const struct config *g, const uint16_t *cells, int c, int rank) {
    for (int k = g->base[ROUND_HOLD]; k < g->base[ROUND_CREF]; k++) /* HOLD and SLOT */
        if (names(cells[k], c))
            return 1;
    for (int q = 0; q < g->ranks; q++) {
        const uint16_t *f = cells + cell_index(g, KIND_RANK, q, 0);
        if (f[R_kept] == c + 1)
            return 1;
        if (q != rank &&
            ((f[R_u] && f[R_c] == c) || names(f[R_slot], c) || names(f[R_w], c) ||
             (f[R_resume_pc] && f[R_unref_c] == c) || (f[R_drop_return] && f[R_drop_c] == c)))
            return 1;
    }
    return 0;
}

/* Has this access, which the rank made in `before`, been one that no other rank can observe or
 * influence, at that time or later? Then its order with the others' steps does not matter, and it
 * is enough to explore it right after the rank's preceding step. Each case rests on something that
 * is checked: who makes it untrue is caught. */
static int is_invisible(const struct config *g, const uint16_t *before,
                        const struct round_memory *m) {
    const struct access *a = &m->access;
    const int load = a->kind == ACCESS_LOAD, i = a->i;
    if (m->action == ROUND_WAIT) /* depends on the environment's choice */
        return 0;
    if (a->kind == ACCESS_NONE)
        return 1;
    switch (a->word) {
    case ROUND_AT:
    case ROUND_PUB: /* of this rank, or of one that is over: nobody else changes it */
        return load && (i == m->rank || rank_field(g, before, i, R_OVER) != RUNNING);
    case ROUND_CREF: /* only its owner looks at it; the others add and subtract */
        return !load && (i == m->rank || rank_field(g, before, i, R_OVER) != RUNNING);
    case ROUND_SLOT: /* constant while a rank is in the version that it is set for */
        return load && (int)round_version(a->before) == rank_field(g, before, m->rank, R_t);
    case ROUND_FREE: /* 1 is changed by the owner only, 0 is of interest to the owner only */
        return i / g->rounds == m->rank && (a->before == 1 || !is_named(g, before, i, m->rank));
    case ROUND_HEAD:
    case ROUND_IN: /* constant from the pin until the round is freed */
        if (load &&
            (i / g->rounds == m->rank || (rank_field(g, before, m->rank, R_drop_return) != 0 &&
                                          rank_field(g, before, m->rank, R_drop_c) == i)))
            return 1;
        break;
    case ROUND_DONE:
    case ROUND_NEXT:
    case ROUND_USERS: /* only who has a reference, prepares the round or ends it, uses them */
        if (before[cell_index(g, ROUND_REFS, i, 0)] == 0)
            return 1;
        break;
    default: break;
    }
    return a->word >= ROUND_HEAD && a->word <= ROUND_DONE && !is_named(g, before, i, m->rank);
}

/* After a step that asked for nothing that takes time: the steps that nobody can observe. */
static void collapse(const struct config *g, uint16_t *cells, int rank, struct outcome *out,
                     FILE *log) {
    uint16_t trial[MAX_CELLS];
    while (!out->invariant && rank_field(g, cells, rank, R_OVER) == RUNNING &&
           rank_field(g, cells, rank, R_ACTION) == 0 && !is_return(out->action) &&
           out->action != ROUND_WAIT) {
        memcpy(trial, cells, (size_t)g->bytes);
        struct round_memory m;
        open_memory(&m, g, trial, rank);
        model_step(&m, (struct round_input){0, 0});
        if (!is_invisible(g, cells, &m))
            return;
        if (log)
            print_step(log, &m, rank_field(g, cells, rank, R_t));
        memcpy(cells, trial, (size_t)g->bytes);
        report(&m, out);
    }
}

int moves_make(const struct config *g, const uint16_t *from, struct cursor move, uint16_t *to,
               struct outcome *out, FILE *log) {
    const int flush = move.choice == CHOICE_FLUSH, expired = move.choice == CHOICE_EXPIRED;
    if (flush ? !model_has_stores(g, from, move.rank)
              : rank_field(g, from, move.rank, R_OVER) != RUNNING)
        return 0;
    struct round_memory m;
    open_memory(&m, g, to, move.rank);
    memcpy(to, from, (size_t)g->bytes);
    if (flush)
        model_flush(&m);
    else
        model_step(&m, (struct round_input){.grace_over = expired, .redo = expired});
    if (m.blocked)
        return 0;
    report(&m, out);
    if (log)
        print_step(log, &m, rank_field(g, from, move.rank, R_t));
    if (g->collapse && !flush)
        collapse(g, to, move.rank, out, log);
    return 1;
}

int moves_next(const struct config *g, const uint16_t *from, struct cursor *at, uint16_t *to,
               struct cursor *moved, struct outcome *out, FILE *log) {
    for (; at->rank < g->ranks; at->rank++, at->choice = at->waits = 0) {
        while (at->choice < CHOICES) {
            *moved = *at;
            at->choice++;
            if (moved->choice == CHOICE_EXPIRED && !moved->waits)
                continue;
            if (!moves_make(g, from, *moved, to, out, log))
                continue;
            if (moved->choice == CHOICE_EARLY)
                at->waits = out->action == ROUND_WAIT &&
                            (out->why == ROUND_WHY_GRACE || out->why == ROUND_WHY_SLICES);
            return 1;
        }
    }
    return 0;
}

void moves_check_terminal(const struct config *g, const uint16_t *cells, struct outcome *out) {
    struct round_memory m = {.config = g, .cells = (uint16_t *)cells};
    check_terminal(&m);
    report(&m, out);
}

void moves_check_alone(const struct config *g, const uint16_t *before, const uint16_t *after,
                       int rank, enum round_why why, struct outcome *out) {
    struct round_memory m = {.config = g, .cells = (uint16_t *)after, .rank = rank};
    m.local.t = rank_field(g, before, rank, R_t);
    m.local.sync = rank_field(g, before, rank, R_sync);
    m.local.leader = rank_field(g, before, rank, R_leader);
    m.local.members = rank_field(g, before, rank, R_members);
    m.local.fresh = rank_field(g, before, rank, R_fresh);
    m.local.why = why;
    check_alone(&m);
    report(&m, out);
}
