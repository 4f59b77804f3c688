/* BFS (shortest counterexample) and DFS (little memory) over all states.
 *
 * Invariant I3, "run alone from every reachable state each rank returns", costs one step per state
 * and rank: a run alone follows one path of the state graph, so it stops where an earlier run alone
 * of the same rank has passed (flag ALONE), and every state on its way is one of the graph. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "search.h"

enum { PATIENCE = 5000 }; /* steps in which a rank that runs alone must have returned */

double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

struct searching {
    const struct space *g;
    const struct limits *limits;
    struct result *result;
    struct table table;
    double began;
};

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

/* Every rank alone from `cells`, entry `at`. */
static void all_alone(struct searching *x, const uint16_t *cells, uint64_t at) {
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

static int over_limit(struct searching *x) {
    const struct limits *l = x->limits;
    if (x->table.used > (x->table.mask + 1) / 10 * 9 ||
        (l->seconds > 0 && (x->result->transitions & 0xFFF) == 0 &&
         seconds_now() - x->began > l->seconds))
        x->result->truncated = 1;
    return x->result->truncated;
}

/* -- queue of states, in chunks that are freed as soon as they are read ---------------------------
 */
enum { CHUNK = 4096 };
struct chunk {
    struct chunk *next;
    int used;
    uint64_t entries[CHUNK];
    unsigned char states[];
};
struct queue {
    struct chunk *head, *tail;
};

static void enqueue(struct queue *q, const void *state, int bytes, uint64_t entry) {
    if (!q->tail || q->tail->used == CHUNK) {
        struct chunk *c = malloc(sizeof *c + (size_t)CHUNK * (size_t)bytes);
        if (!c)
            abort();
        c->next = NULL;
        c->used = 0;
        if (q->tail)
            q->tail->next = c;
        else
            q->head = c;
        q->tail = c;
    }
    q->tail->entries[q->tail->used] = entry;
    memcpy(q->tail->states + (size_t)q->tail->used++ * (size_t)bytes, state, (size_t)bytes);
}

/* The path to entry `at`, replayed from the start and printed; the last state is left in `cells`.
 */
static void print_path(struct searching *x, uint64_t at, uint64_t root, uint16_t *cells) {
    const struct space *g = x->g;
    uint64_t length = 0;
    for (uint64_t k = at; k != root; k = x->table.parents[k])
        length++;
    uint64_t *path = malloc((length + 1) * sizeof *path);
    if (!path)
        abort();
    for (uint64_t k = at, n = length; n > 0; k = x->table.parents[k])
        path[--n] = k;
    g->initial(g->config, cells);
    uint16_t to[SPACE_CELLS];
    struct outcome out;
    struct cursor moved = {0};
    for (uint64_t n = 0; n < length; n++) {
        struct cursor cursor = {0};
        while (g->next(g->config, cells, &cursor, to, &moved, &out, NULL))
            if (table_find(&x->table, to, g->bytes) == path[n])
                break;
        g->make(g->config, cells, moved, to, &out, stdout);
        memcpy(cells, to, (size_t)g->bytes);
    }
    free(path);
}

/* Prints how the violation is reached: the path to `state` and the move that violates. */
static void explain(struct searching *x, uint64_t at, uint64_t root, const struct cursor *moved) {
    uint16_t cells[SPACE_CELLS], to[SPACE_CELLS];
    const struct outcome found = x->result->outcome;
    if (!x->limits->trace)
        return;
    print_path(x, at, root, cells);
    if (moved) {
        x->g->make(x->g->config, cells, *moved, to, &x->result->outcome, stdout);
    } else {
        struct limits loud = *x->limits;
        struct searching again = *x;
        loud.trace = 2;
        again.limits = &loud;
        for (uint64_t k = 0; k <= x->table.mask; k++)
            x->table.entries[k] &= ~((uint64_t)FLAGS & ~(uint64_t)SEEN);
        x->result->outcome.invariant = NULL;
        all_alone(&again, cells, at);
    }
    x->result->outcome = found;
}

/* Some moves of a state are made before their states are looked up: the table is larger than
 * caches, and so the looks overlap. */
enum { TOGETHER = 8 };
struct batch {
    struct cursor next, moved; /* moved: the move that violates, if one does */
    int count;
    struct table_key keys[TOGETHER];
    _Alignas(8) uint16_t to[TOGETHER][SPACE_CELLS]; /* some spaces have structs in their cells */
};

/* Makes the next moves of `from`; 0: there are none, or one violates an invariant. */
static int next_batch(struct searching *x, const uint16_t *from, struct batch *m) {
    const struct space *g = x->g;
    struct outcome *out = &x->result->outcome;
    for (m->count = 0; m->count < TOGETHER; m->count++) {
        uint16_t *to = m->to[m->count];
        if (!g->next(g->config, from, &m->next, to, &m->moved, out, NULL))
            break;
        x->result->transitions++;
        if (out->invariant)
            return 0;
        m->keys[m->count] = table_key(&x->table, to, g->bytes);
    }
    return m->count;
}

static void breadth_first(struct searching *x) {
    static struct batch batch;
    const struct space *g = x->g;
    struct result *result = x->result;
    uint16_t from[SPACE_CELLS];
    struct queue level = {0}, next = {0};
    g->initial(g->config, from);
    const uint64_t root = table_find(&x->table, from, g->bytes);
    x->table.entries[root] |= SEEN;
    x->table.parents[root] = (uint32_t)root;
    enqueue(&level, from, g->bytes, root);
    result->states = 1;
    for (; level.head; level = next, next = (struct queue){0}, result->depth++) {
        while (level.head) {
            struct chunk *chunk = level.head;
            for (int k = 0; k < chunk->used; k++) {
                memcpy(from, chunk->states + (size_t)k * (size_t)g->bytes, (size_t)g->bytes);
                const uint64_t here = chunk->entries[k];
                const uint64_t before = result->transitions;
                batch.next = (struct cursor){0};
                while (next_batch(x, from, &batch))
                    for (int n = 0; n < batch.count; n++) {
                        const uint64_t at = table_at(&x->table, batch.keys[n]);
                        if (x->table.entries[at] & SEEN)
                            continue;
                        x->table.entries[at] |= SEEN;
                        x->table.parents[at] = (uint32_t)here;
                        result->states++;
                        enqueue(&next, batch.to[n], g->bytes, at);
                    }
                if (result->outcome.invariant) {
                    explain(x, here, root, &batch.moved);
                    return;
                }
                all_alone(x, from, here);
                if (result->outcome.invariant) {
                    explain(x, here, root, NULL);
                    return;
                }
                if (result->transitions == before) {
                    result->terminal++;
                    g->check_terminal(g->config, from, &result->outcome);
                    if (result->outcome.invariant) {
                        print_path(x, here, root, from);
                        return;
                    }
                }
                if (over_limit(x))
                    return;
            }
            level.head = chunk->next;
            free(chunk);
        }
    }
}

/* -- DFS -----------------------------------------------------------------------------------------
 */
struct frame {
    struct cursor cursor, moved;
    int moves;
};

static void depth_first(struct searching *x) {
    const struct space *g = x->g;
    struct result *result = x->result;
    size_t room = 1024, depth = 0;
    struct frame *frames = malloc(room * sizeof *frames);
    unsigned char *states = malloc(room * (size_t)g->bytes);
    uint16_t from[SPACE_CELLS], to[SPACE_CELLS];
    if (!frames || !states)
        abort();
    g->initial(g->config, from);
    memcpy(states, from, (size_t)g->bytes);
    frames[0] = (struct frame){0};
    const uint64_t root = table_find(&x->table, from, g->bytes);
    x->table.entries[root] |= SEEN;
    result->states = 1;
    all_alone(x, from, root);
    for (;;) {
        struct frame *f = &frames[depth];
        memcpy(from, states + depth * (size_t)g->bytes, (size_t)g->bytes);
        if (!result->outcome.invariant &&
            !g->next(g->config, from, &f->cursor, to, &f->moved, &result->outcome, NULL)) {
            if (!f->moves) {
                result->terminal++;
                g->check_terminal(g->config, from, &result->outcome);
            }
            if (!result->outcome.invariant) {
                if (depth-- == 0)
                    break;
                continue;
            }
        }
        if (result->outcome.invariant || over_limit(x))
            break;
        f->moves++;
        result->transitions++;
        const uint64_t at = table_find(&x->table, to, g->bytes);
        if (x->table.entries[at] & SEEN)
            continue;
        x->table.entries[at] |= SEEN;
        result->states++;
        if (++depth == room) {
            room *= 2;
            frames = realloc(frames, room * sizeof *frames);
            states = realloc(states, room * (size_t)g->bytes);
            if (!frames || !states)
                abort();
        }
        result->depth = depth > result->depth ? depth : result->depth;
        frames[depth] = (struct frame){0};
        memcpy(states + depth * (size_t)g->bytes, to, (size_t)g->bytes);
        all_alone(x, to, at);
    }
    free(frames);
    free(states);
}

void search(const struct space *g, const struct limits *limits, struct result *result) {
    struct searching x = {.g = g, .limits = limits, .result = result, .began = seconds_now()};
    memset(result, 0, sizeof *result);
    if (table_open(&x.table, limits->table_bits, !limits->depth_first)) {
        result->truncated = 1;
        return;
    }
    if (limits->depth_first)
        depth_first(&x);
    else
        breadth_first(&x);
    table_close(&x.table);
}
