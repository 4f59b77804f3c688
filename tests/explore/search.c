/* BFS (shortest counterexample) and DFS (little memory) over all states. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "search.h"

double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int over_limit(struct searching *x) {
    const struct limits *l = x->limits;
    if (x->table.used > (x->table.mask + 1) / 10 * 9 ||
        (l->seconds > 0 && (x->result->transitions & 0xFFF) == 0 &&
         seconds_now() - x->began > l->seconds))
        x->result->truncated = 1;
    return x->result->truncated;
}

/* -- BFS: a queue of states, in chunks that are used again once they are read ------------------ */
enum { CHUNK = 256 };
struct chunk {
    struct chunk *next;
    uint64_t entries[CHUNK];
    _Alignas(32) unsigned char states[]; /* some spaces have structs in their cells */
};
struct queue {
    struct chunk *head, *tail, *spare;
    uint64_t put, taken; /* states */
};

static void enqueue(struct queue *q, const void *state, size_t bytes, uint64_t entry) {
    const size_t k = q->put++ % CHUNK;
    if (k == 0) {
        struct chunk *c = q->spare;
        if (c)
            q->spare = c->next;
        else
            c = aligned_alloc(_Alignof(struct chunk), sizeof *c + CHUNK * bytes);
        if (!c)
            abort();
        c->next = NULL;
        if (q->tail)
            q->tail->next = c;
        else
            q->head = c;
        q->tail = c;
    }
    q->tail->entries[k] = entry;
    memcpy(q->tail->states + k * bytes, state, bytes);
}

/* The next state, valid until the next one is taken. The queue is not empty. */
static const uint16_t *dequeue(struct queue *q, size_t bytes, uint64_t *entry) {
    const size_t k = q->taken++ % CHUNK;
    if (k == 0 && q->taken > 1) {
        struct chunk *read = q->head;
        q->head = read->next;
        read->next = q->spare;
        q->spare = read;
    }
    *entry = q->head->entries[k];
    return (const uint16_t *)(const void *)(q->head->states + k * bytes);
}

static void free_chunks(struct chunk *c) {
    while (c) {
        struct chunk *next = c->next;
        free(c);
        c = next;
    }
}

/* The path to state number `at`, replayed from the start and printed (log NULL: not); the last
 * state is left in `cells`. */
static void replay(struct searching *x, uint32_t at, uint16_t *cells, FILE *log) {
    const struct space *g = x->g;
    uint64_t length = 0;
    for (uint32_t k = at; k != 0; k = x->table.parents[k])
        length++;
    uint32_t *path = malloc((length + 1) * sizeof *path);
    if (!path)
        abort();
    for (uint64_t n = length; n > 0; at = x->table.parents[at])
        path[--n] = at;
    g->initial(g->config, cells);
    uint16_t to[SPACE_CELLS];
    struct outcome out;
    struct cursor moved = {0};
    for (uint64_t n = 0; n < length; n++) {
        struct cursor cursor = {0};
        while (g->next(g->config, cells, &cursor, to, &moved, &out, NULL))
            if (x->table.numbers[table_find(&x->table, to, g->bytes)] == path[n])
                break;
        g->make(g->config, cells, moved, to, &out, log);
        memcpy(cells, to, (size_t)g->bytes);
    }
    free(path);
}

/* Prints how a violation is reached: the path to state number `at`, and the move that violates, if
 * it is one. */
static void explain_move(struct searching *x, uint32_t at, const struct cursor *moved) {
    uint16_t cells[SPACE_CELLS], to[SPACE_CELLS];
    const struct outcome found = x->result->outcome;
    if (!x->limits->trace)
        return;
    replay(x, at, cells, stdout);
    if (moved)
        x->g->make(x->g->config, cells, *moved, to, &x->result->outcome, stdout);
    x->result->outcome = found;
}

/* Likewise of a run alone. Notes do not say which invariant it violates: they are believed only
 * where a run alone from there finds nothing. */
static void explain_alone(struct searching *x, uint32_t at) {
    uint16_t cells[SPACE_CELLS];
    const struct outcome found = x->result->outcome;
    struct searching again = *x;
    struct limits limits = *x->limits;
    limits.trace = limits.trace ? 2 : 0;
    again.limits = &limits;
    replay(x, at, cells, limits.trace ? stdout : NULL);
    for (uint64_t k = 0; k <= x->table.mask; k++)
        x->table.entries[k] &= ~((uint64_t)FLAGS & ~(uint64_t)SEEN);
    x->result->outcome.invariant = NULL;
    all_alone(&again, cells, table_find(&x->table, cells, x->g->bytes));
    if (!x->notes || !x->result->outcome.invariant)
        x->result->outcome = found;
}

/* Some moves of a state are made before their states are looked up: the table is larger than
 * caches, and so the looks overlap. */
enum { TOGETHER = 8 };
struct batch {
    struct cursor next, moved; /* moved: the last one, which violates, if one does */
    int count;
    struct {
        struct cursor moved;
        struct table_key key;
        uint32_t note;
    } moves[TOGETHER];
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
        m->moves[m->count].moved = m->moved;
        m->moves[m->count].key = table_key(&x->table, to, g->bytes);
        if (x->notes)
            m->moves[m->count].note = note_move(g, from, to, m->moved.rank, out);
    }
    return m->count;
}

/* Makes all moves of `from`, entry `at`, number `here`, until one violates an invariant. */
static void expand(struct searching *x, const uint16_t *from, uint64_t at, uint32_t here,
                   struct batch *m, struct queue *queue) {
    const struct space *g = x->g;
    struct table *t = &x->table;
    uint32_t notes[SPACE_RANKS] = {0};
    int orders[SPACE_RANKS] = {0};
    m->next = (struct cursor){0};
    while (next_batch(x, from, m))
        for (int n = 0; n < m->count; n++) {
            const uint64_t to = table_at(t, m->moves[n].key);
            for (int r = 0; x->notes && r < g->ranks; r++) {
                const int order = g->alone_order(g->config, m->moves[n].moved, r);
                if (order > orders[r]) {
                    orders[r] = order;
                    notes[r] = m->moves[n].note | (uint32_t)to;
                }
            }
            if (t->entries[to] & SEEN)
                continue;
            t->entries[to] |= SEEN;
            t->numbers[to] = (uint32_t)x->result->states;
            t->parents[x->result->states++] = here;
            enqueue(queue, m->to[n], (size_t)g->bytes, to);
        }
    for (int r = 0; x->notes && r < g->ranks; r++) {
        const int running = g->is_running(g->config, from, r);
        x->result->alone += running != 0;
        if (running && !orders[r])
            notes[r] = note_still(g, from, r) | (uint32_t)at;
        *note_of(t, here, r) = running ? notes[r] : NOTE_END;
    }
}

/* Goes on from a state; 0: that was the last one, although there may be more. What violates is
 * explained in the search without notes, which then follows. */
static int visit(struct searching *x, const uint16_t *from, uint64_t at, uint32_t here,
                 struct queue *queue) {
    static struct batch batch;
    const struct space *g = x->g;
    struct result *result = x->result;
    const uint64_t before = result->transitions;
    expand(x, from, at, here, &batch, queue);
    if (result->outcome.invariant) {
        if (!x->notes)
            explain_move(x, here, &batch.moved);
        return 0;
    }
    if (!x->notes) {
        all_alone(x, from, at);
        if (result->outcome.invariant) {
            explain_alone(x, here);
            return 0;
        }
    }
    if (result->transitions == before) {
        result->terminal++;
        g->check_terminal(g->config, from, &result->outcome);
        if (result->outcome.invariant) {
            if (!x->notes)
                explain_move(x, here, NULL);
            return 0;
        }
    }
    return !over_limit(x);
}

/* 1: every state was visited. */
static int breadth_first(struct searching *x) {
    const struct space *g = x->g;
    struct result *result = x->result;
    struct queue queue = {0};
    uint16_t first[SPACE_CELLS];
    uint64_t level = 1; /* the states before this one are not deeper */
    int complete = 1;
    g->initial(g->config, first);
    uint64_t at = table_find(&x->table, first, g->bytes);
    x->table.entries[at] |= SEEN;
    enqueue(&queue, first, (size_t)g->bytes, at);
    result->states = 1;
    while (complete && queue.taken < queue.put) {
        const uint32_t here = (uint32_t)queue.taken; /* they are taken in the order of numbers */
        if (here == level) {
            level = result->states;
            result->depth++;
        }
        const uint16_t *from = dequeue(&queue, (size_t)g->bytes, &at);
        complete = visit(x, from, at, here, &queue);
    }
    result->depth += complete;
    free_chunks(queue.head);
    free_chunks(queue.spare);
    return complete;
}

/* -- DFS --------------------------------------------------------------------------------------- */
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
    uint16_t to[SPACE_CELLS];
    if (!frames || !states)
        abort();
    g->initial(g->config, to);
    memcpy(states, to, (size_t)g->bytes);
    frames[0] = (struct frame){0};
    const uint64_t root = table_find(&x->table, to, g->bytes);
    x->table.entries[root] |= SEEN;
    result->states = 1;
    all_alone(x, to, root);
    for (;;) {
        struct frame *f = &frames[depth];
        const uint16_t *from = (const void *)(states + depth * (size_t)g->bytes);
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

/* One search; 0: it is to be repeated without notes. */
static int search_once(struct searching *x) {
    const struct limits *limits = x->limits;
    const int ranks = x->notes ? x->g->ranks : 0;
    memset(x->result, 0, sizeof *x->result);
    if (table_open(&x->table, limits->table_bits, !limits->depth_first, ranks)) {
        x->result->truncated = 1;
        return !x->notes;
    }
    int done = 1;
    uint32_t found;
    if (limits->depth_first)
        depth_first(x);
    else
        done = breadth_first(x) || !x->notes;
    if (done && x->notes && check_notes(x, &found))
        explain_alone(x, found);
    table_close(&x->table);
    return done;
}

void search(const struct space *g, const struct limits *limits, struct result *result) {
    struct searching x = {.g = g, .limits = limits, .result = result, .began = seconds_now()};
    x.notes = g->runs_alone && !limits->depth_first &&
              (UINT64_C(1) << limits->table_bits) - 1 <= NOTE_WHERE;
    if (search_once(&x))
        return;
    /* Another invariant was violated, or a limit reached. A run alone may fail nearer to the start,
     * or where the search had yet to come. */
    const struct outcome found = result->outcome;
    x.notes = 0;
    x.began = seconds_now();
    (void)search_once(&x);
    if (!result->outcome.invariant)
        result->outcome = found;
}
