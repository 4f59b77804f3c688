/* States of the model: layout, start, and one step of one rank. */
#include <string.h>

#include "model.h"

static int32_t scratch[MAX_RANKS];

#define SIZE(name) +sizeof(((struct round_local *)0)->name)
_Static_assert((0 LOCAL_LONG(SIZE) LOCAL_SHORT(SIZE) SIZE(why) SIZE(outcome) + 7) / 8 * 8 ==
                   sizeof(struct round_local),
               "LOCAL_LONG and LOCAL_SHORT must name every field of round_local");
#undef SIZE

static void unpack(const uint16_t *f, struct round_local *l) {
    memset(l, 0, sizeof *l); /* padding may hide a field that the lists do not name */
#define LONG(name) l->name = decode(f[R_##name]);
#define SHORT(name) l->name = f[R_##name];
    LOCAL_LONG(LONG)
    LOCAL_SHORT(SHORT)
#undef LONG
#undef SHORT
}

static void pack(const struct round_local *l, uint16_t *f) {
#define LONG(name) f[R_##name] = encode(l->name);
#define SHORT(name) f[R_##name] = (uint16_t)l->name;
    LOCAL_LONG(LONG)
    LOCAL_SHORT(SHORT)
#undef LONG
#undef SHORT
}

static int versions_of(const char *program) {
    return (int)strspn(program, "nzsopxy");
}

/* Starts the next operation of the program; nothing shared is touched. */
static void begin_next(struct round_memory *m) {
    const struct config *g = m->config;
    uint16_t *f = cell(m, KIND_RANK, m->rank, 0);
    const char *program = g->program[m->rank];
    const int op = f[R_OP];
    struct round_local *l = &m->local;
    if (program[op] == 'd') {
        f[R_OP]++;
        round_begin_departure(l);
    } else if ((program[op] == 'o' || program[op] == 'p') && !l->reserved) {
        round_begin_reserve(l, (uint64_t)op + 1);
    } else if (program[op]) {
        const int t = ++f[R_OP], sync = is_sync(program[op]);
        f[R_WARNED] = g->varies && *cell(m, ROUND_DISPUTE, 0, 0) != 0;
        const enum round_source source = program[op] == 'o'          ? ROUND_FROM_RESERVED
                                         : strchr("xy", program[op]) ? ROUND_FROM_ARRAY
                                                                     : ROUND_FROM_X;
        round_begin(&g->context[m->rank], l, (uint64_t)t, sync, source,
                    g->members[sync][t][m->rank], g->count[sync][t][m->rank]);
        if (f[R_NEWEST] <= t)
            f[R_NEWEST] = 0; /* what the slot tells anyway */
    } else {
        f[R_OVER] = op && program[op - 1] == 'd' ? DEPARTED : FINISHED;
        f[R_OP] = f[R_NEWEST] = f[R_TAKEN] = f[R_VIEW] = f[R_VIEW_LAST] = f[R_WARNED] = 0;
        *l = (struct round_local){.kept = l->kept, .array = l->array};
    }
}

/* Versions that every rank has left cannot be pinned or looked up again: forget that they were. (A
 * rank can only want to reuse their slots after that, so it makes no difference what it expects to
 * find there.) */
static void forget_left(struct round_memory *m) {
    const struct config *g = m->config;
    int lowest = MAX_PROGRAM;
    for (int r = 0; r < g->ranks; r++) {
        const int t = rank_field(g, m->cells, r, R_t);
        const int over = rank_field(g, m->cells, r, R_OVER);
        if ((over == RUNNING || (over == FAILED && g->varies)) && t && t < lowest)
            lowest = t; /* a dispute is looked up for ever */
    }
    for (int r = 0; r < g->ranks; r++) {
        uint16_t *bits = cell(m, KIND_INSTALLED, r, 0);
        bits[0] = lowest < 16 ? (uint16_t)(bits[0] >> lowest << lowest) : 0;
        for (int k = 0; k < g->stride[ROUND_SLOT]; k++) {
            uint16_t *slot = cell(m, ROUND_SLOT, r, k);
            if (*slot && (int)round_version(decode(*slot)) < lowest)
                *slot = 0;
        }
    }
    for (int c = 0; g->ordered && c < g->ranks * g->rounds; c++) {
        const uint16_t life = *cell(m, KIND_LIFE, c, 0);
        int looked_at = 0;
        for (int r = 0; r < g->ranks; r++)
            looked_at |= rank_field(g, m->cells, r, R_VIEW) != 0;
        if (life & INSTALLED && (life & ~INSTALLED) < lowest && !looked_at)
            forget_round(m, c);
    }
}

/* The pinner goes on: by now every late member must be able to find the round. */
static void handed_over(struct round_memory *m) {
    const struct config *g = m->config;
    const int t = (int)m->local.t;
    for (int k = 0; k < (int)m->local.members; k++) {
        const int q = g->members[m->local.sync][t][m->rank][k];
        uint16_t *f = cell(m, KIND_RANK, q, 0);
        if (f[R_OVER] == RUNNING && f[R_t] && f[R_t] < t && f[R_NEWEST] < t)
            f[R_NEWEST] = (uint16_t)t;
    }
}

static int has_data(enum round_action action) {
    return action == ROUND_WRITE || action == ROUND_GATHER || action == ROUND_PRIVATE ||
           action == ROUND_REDUCE || action == ROUND_COPY || action == ROUND_REDO ||
           action == ROUND_COLLECT;
}

void model_step(struct round_memory *m, struct round_input input) {
    const struct config *g = m->config;
    uint16_t *f = cell(m, KIND_RANK, m->rank, 0);
    struct round_context context = g->context[m->rank];
    context.memory = m;
    context.scratch = scratch;
    if (g->varies)
        context.quorum = (uint32_t)quorum_at(g, m->rank, f[R_t]);
    m->accesses = m->blocked = m->looked_up = 0;
    m->access.kind = ACCESS_NONE;
    unpack(f, &m->local);
    if (f[R_ACTION]) {
        check_end(m);
        if (g->tso) { /* the stores that end it wait in the buffer: a transition of its own */
            f[R_ACTION] = m->action = ROUND_STEP;
            return;
        }
    }
    if (m->invariant)
        return;
    const int sync = (int)m->local.sync, t = (int)m->local.t;
    if (f[R_OP] == f[R_t] || !f[R_t]) /* a call or departure, not a reservation */
        f[R_VIEW] = f[R_VIEW_LAST] = 0;
    m->action = round_step(&context, &m->local, g->members[sync][t][m->rank], input);
    if (m->blocked || m->invariant)
        return;
    if (m->accesses > 1)
        violate(m, "one-access", "%d shared accesses in one step", m->accesses);
    if (m->looked_up && m->local.u)
        check_lookup(m);
    if (m->action == ROUND_PINNED) {
        f[R_HANDING] = !g->ordered;
    } else if (f[R_HANDING] && m->action != ROUND_STEP) {
        f[R_HANDING] = 0;
        handed_over(m);
    }
    f[R_ACTION] = has_data(m->action) ? (uint16_t)m->action : 0;
    check_begin(m);
    if (m->action == ROUND_RETURN) {
        check_return(m);
        f[R_DELIVERED] = 0;
        if (g->ordered && m->local.t && m->local.outcome != ROUND_RESERVED) {
            f[R_VIEW] = (uint16_t)m->local.t;
            f[R_VIEW_LAST] = (uint16_t)m->local.u;
        }
        if (m->local.t && m->local.u > m->local.t && (g->ordered || g->forward))
            f[R_OP] = (uint16_t)m->local.u;
        begin_next(m);
    } else if (m->action == ROUND_MISMATCH) {
        f[R_OVER] = FAILED;
        if (!g->mismatch)
            violate(m, "mismatch", "reported although all ranks agree about the sync versions");
    } else if (m->action == ROUND_DISPUTED) {
        f[R_OVER] = FAILED;
        check_disputed(m);
    }
    pack(&m->local, f);
    if (m->action == ROUND_RETURN && !g->mismatch)
        forget_left(m);
}

/* -- configuration ----------------------------------------------------------------------------- */
static int least(int a, int b) {
    return a < b ? a : b;
}

static const char *check_numbers(const struct config *g) {
    if (g->ranks < 1 || g->ranks > MAX_RANKS)
        return "--ranks is out of range";
    if (g->group_size < 1 || g->group_size > g->ranks)
        return "--group is out of range";
    if (g->quorum < 1 || g->quorum > (g->world ? g->ranks : g->group_size))
        return "--quorum is out of range";
    if (g->window < 1 || g->slices < 1 || g->slices > MAX_SLICES)
        return "--window or --slices is out of range";
    for (int r = 0; r < g->ranks && g->varies; r++)
        if (!g->quorums[r][0] || strspn(g->quorums[r], "12345") != strlen(g->quorums[r]))
            return "--quorums: words of digits, as many as there are versions at most";
    if (g->varies && (!g->ordered || g->group_size != g->ranks || g->majority || g->tso))
        return "--quorums needs --ordered and all ranks in one group, and no --majority, no --tso";
    for (int r = 0; r < g->ranks; r++)
        if (strspn(g->program[r], "nzsopxyd") != strlen(g->program[r]) || !g->program[r][0])
            return "a program is a word of n, z, s, o, p, x, y and, at its end, d";
    return NULL;
}

static void lay_out(struct config *g) {
    const int p = g->ranks, c = p * g->rounds;
    const int count[KINDS] = {
        [ROUND_PUB] = p,   [ROUND_HOLD] = p,
        [ROUND_SLOT] = p,  [ROUND_AT] = p,
        [ROUND_CREF] = p,  [ROUND_DISPUTE] = g->varies,
        [ROUND_HEAD] = c,  [ROUND_IN] = c,
        [ROUND_REFS] = c,  [ROUND_USERS] = c,
        [ROUND_NEXT] = c,  [ROUND_DONE] = c,
        [ROUND_FREE] = c,  [KIND_DATA] = p,
        [KIND_RESULT] = c, [KIND_META] = c,
        [KIND_LIFE] = c,   [KIND_INSTALLED] = p,
        [KIND_RANK] = p,   [KIND_STORES] = g->tso ? p : 0,
    };
    for (int k = 0; k < KINDS; k++) {
        g->stride[k] = 1;
        if (k == ROUND_SLOT)
            g->stride[k] = (int)g->context[0].slots;
        else if (k == ROUND_CREF || k == KIND_DATA)
            g->stride[k] = g->buffers;
        else if (k == ROUND_IN)
            g->stride[k] = p;
        else if (k == KIND_RESULT)
            g->stride[k] = g->slices;
        else if (k == KIND_RANK)
            g->stride[k] = RANK_FIELDS;
        else if (k == KIND_STORES)
            g->stride[k] = 1 + 2 * STORE_BUFFER;
        g->base[k] = g->cells;
        g->cells += count[k] * g->stride[k];
    }
    g->bytes = (g->cells * (int)sizeof(uint16_t) + 31) / 32 * 32;
}

const char *config_finish(struct config *g) {
    const char *error = check_numbers(g);
    if (error)
        return error;
    for (int r = 0; r < g->ranks; r++) {
        const int n = versions_of(g->program[r]);
        g->versions = n > g->versions ? n : g->versions;
        for (int k = 0; k < n && k < versions_of(g->program[0]); k++) {
            g->mismatch |= is_sync(g->program[r][k]) != is_sync(g->program[0][k]);
            g->disagree |= quorum_at(g, r, k + 1) != quorum_at(g, 0, k + 1);
        }
    }
    const struct topology topology = {g->ranks, g->group_size, g->grouping, (uint64_t)g->seed};
    int reserves = 0;
    for (int r = 0; r < g->ranks; r++) {
        reserves |= strpbrk(g->program[r], "op") != NULL;
        g->arrays |= strpbrk(g->program[r], "xy") != NULL;
    }
    /* A rank pins at most one round per version, writes one contribution, and leaves one buffer to
     * the round: more than that are never touched. */
    if (!g->buffers)
        g->buffers = least((int)round_buffers_bound(&topology, g->world, g->ordered,
                                                    (uint64_t)g->window, g->arrays) -
                               !reserves,
                           g->versions * (1 + g->arrays) + 1 + reserves + g->arrays);
    if (!g->rounds)
        g->rounds =
            least((int)round_rounds_bound((uint32_t)g->ranks, g->ordered, (uint64_t)g->window),
                  g->versions);
    for (int r = 0; r < g->ranks; r++)
        g->context[r] = (struct round_context){
            .rank = (uint32_t)r,
            .size = (uint32_t)g->ranks,
            .topology = topology,
            .world = g->world,
            .ordered = g->ordered,
            .forward = g->forward,
            .varies = g->varies,
            .quorum = g->majority ? 0 : (uint32_t)g->quorum,
            .slots = (uint32_t)round_slots((uint64_t)g->window),
            .rounds = (uint32_t)g->rounds,
            .slices = (uint32_t)g->slices,
            .buffers_usable = (uint32_t)g->buffers,
            .rounds_usable = (uint32_t)g->rounds,
            .spare = !g->limited || g->spare,
            .window = (uint64_t)g->window,
        };
    for (int sync = 0; sync < 2; sync++)
        for (int t = 1; t <= g->versions; t++)
            for (int r = 0; r < g->ranks; r++)
                g->count[sync][t][r] = round_members_of(&g->context[r], (uint64_t)t, (uint32_t)r,
                                                        sync, g->members[sync][t][r]);
    lay_out(g);
    return g->cells > MAX_CELLS || g->versions > MAX_PROGRAM ? "the configuration is too large"
                                                             : NULL;
}

void model_initial(const struct config *g, uint16_t *cells) {
    memset(cells, 0, (size_t)g->bytes);
    struct round_memory m = {.config = g, .cells = cells};
    for (int c = 0; c < g->ranks * g->rounds; c++)
        *cell(&m, ROUND_FREE, c, 0) = 1;
    for (m.rank = 0; m.rank < g->ranks; m.rank++) {
        round_init(&m.local, g->arrays);
        if (g->arrays)
            *cell(&m, KIND_DATA, m.rank, 1) = TORN;
        begin_next(&m);
        pack(&m.local, cell(&m, KIND_RANK, m.rank, 0));
    }
}
