/* Invariant I3, "run alone from every reachable state each rank returns". */
#include <string.h>

#include "search.h"

enum { PATIENCE = 5000 }; /* steps in which a rank that runs alone must have returned */

/* -- on the way: one step per state and rank --------------------------------------------------- */
/* Runs `rank` alone from `cells`, entry `at`, until it returns, waits rightly, or meets an earlier
 * run. The first wait can be the end of a scan that saw what is no longer so; the next one counts.
 */
static void run_alone(struct searching *x, const uint16_t *cells, uint64_t at, int rank,
                      FILE *log) {
    static uint64_t path[PATIENCE + 1];
    const struct space *g = x->g;
    const uint64_t flag = (uint64_t)ALONE << rank;
    struct outcome *out = &x->result->outcome;
    uint16_t state[2][SPACE_CELLS];
    int length = 0, waits = 0;
    memcpy(state[0], cells, (size_t)g->bytes);
    for (;;) {
        uint16_t *from = state[length & 1], *to = state[~length & 1];
        if (x->table.entries[at] & flag && !log)
            break;
        path[length++] = at;
        if (!g->is_running(g->config, from, rank))
            break;
        g->make(g->config, from, (struct cursor){.rank = rank, .choice = g->expired}, to, out, log);
        x->result->alone++;
        if (!out->invariant && out->action == g->wait) {
            g->check_alone(g->config, from, to, rank, out->why, out);
            if (!out->invariant)
                break;
            if (waits++ == 0)
                out->invariant = NULL;
        }
        if (!out->invariant && length > PATIENCE) {
            out->invariant = "I3-run-alone";
            snprintf(out->detail, sizeof out->detail, "rank %d does not return in %d steps", rank,
                     PATIENCE);
        }
        if (out->invariant)
            return;
        if (g->is_return(out->action))
            break;
        at = table_find(&x->table, to, g->bytes);
    }
    while (length)
        x->table.entries[path[--length]] |= flag;
}

void all_alone(struct searching *x, const uint16_t *cells, uint64_t at) {
    const struct space *g = x->g;
    if (!g->runs_alone)
        return;
    for (int r = 0; r < g->ranks && !x->result->outcome.invariant; r++) {
        if (x->table.entries[at] & (uint64_t)ALONE << r)
            continue;
        run_alone(x, cells, at, r, NULL);
        if (x->result->outcome.invariant && x->limits->trace == 2) {
            printf("  rank %d, run alone:\n", r);
            run_alone(x, cells, at, r, stdout);
        }
    }
}

/* -- in the end: no step, only notes ----------------------------------------------------------- */
uint32_t note_move(const struct space *g, const uint16_t *from, const uint16_t *to, int rank,
                   const struct outcome *out) {
    if (out->action == g->wait) {
        struct outcome wait = {0};
        g->check_alone(g->config, from, to, rank, out->why, &wait);
        return wait.invariant ? NOTE_WRONG : NOTE_END;
    }
    return g->is_return(out->action) ? NOTE_END : 0;
}

uint32_t note_still(const struct space *g, const uint16_t *from, int rank) {
    const struct outcome wait = {.action = g->wait};
    return note_move(g, from, from, rank, &wait);
}

/* Notes say entries, of which only the table knows which states they are. */
static void number(struct table *t, uint64_t notes) {
    enum { AHEAD = 16 };
    for (uint64_t k = 0; k < notes; k++) {
        if (k + AHEAD < notes)
            __builtin_prefetch(&t->numbers[t->notes[k + AHEAD] & NOTE_WHERE & t->mask]);
        if (!(t->notes[k] & NOTE_END))
            t->notes[k] = (t->notes[k] & NOTE_WRONG) | t->numbers[t->notes[k] & NOTE_WHERE];
    }
}

/* What run_alone() does, from state number `at`; 1: that fails. */
static int follow(const struct table *t, uint32_t at, int rank) {
    static uint32_t *path[PATIENCE];
    int length = 0, waits = 0;
    uint32_t *note = note_of(t, at, rank);
    while (!(*note & NOTE_END)) {
        waits += (*note & NOTE_WRONG) != 0;
        if (waits > 1 || length == PATIENCE)
            return 1;
        path[length++] = note;
        note = note_of(t, *note & NOTE_WHERE, rank);
    }
    while (length)
        *path[--length] = NOTE_END;
    return 0;
}

int check_notes(struct searching *x, uint32_t *found) {
    struct outcome *out = &x->result->outcome;
    struct table *t = &x->table;
    number(t, x->result->states * (uint64_t)t->ranks);
    for (uint32_t k = 0; k < x->result->states; k++)
        for (int r = 0; r < t->ranks; r++)
            if (follow(t, k, r)) {
                *found = k;
                out->invariant = "I3-run-alone";
                snprintf(out->detail, sizeof out->detail, "rank %d does not return", r);
                return 1;
            }
    return 0;
}
