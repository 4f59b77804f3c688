/* See activation_model.h. */
#include "activation_model.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/activation_state.h"

/* ---- layout ---------------------------------------------------------------------------------- */
static size_t aligned(size_t bytes) {
    return (bytes + 7) / 8 * 8;
}

static const char *set_programs(struct activation_space_config *g) {
    uint64_t any = 0, all = ~UINT64_C(0);
    int versions = 1;
    for (int r = 0; r < g->ranks; r++) {
        int v = 0;
        for (const char *p = g->program[r]; *p && (*p != 'd' || p[1]); p++, v++) {
            if (*p != NODE_CALLS && *p != NODE_SYNCS)
                return "--programs: only n, s, and d at the end";
            any |= (uint64_t)(*p == NODE_SYNCS) << v;
            all &= ~((uint64_t)(*p == NODE_CALLS) << v);
        }
        versions = v > versions ? v : versions;
    }
    g->rules.explicit_sync = any;
    g->rules.versions = versions;
    return any & ~all ? "--programs: all have to sync at the same versions" : NULL;
}

static const char *set_quorums(struct activation_space_config *g) {
    if (!g->varies)
        return NULL;
    if (!g->ordered || g->group_size != g->ranks || g->majority || g->quorum == 0)
        return "--quorums needs --ordered and all ranks in one group, and no --majority";
    for (int r = 0; r < g->ranks; r++) {
        const char *word = g->quorums[r];
        if (!word[0] || strspn(word, "1234") != strlen(word))
            return "--quorums: words of digits, as many as there are versions at most";
        for (int v = 0; v < g->rules.versions; v++) {
            g->rules.quorums[r][v] = (uint8_t)(*word - '0');
            g->disagree |= g->rules.quorums[r][v] != g->rules.quorums[0][v];
            word += word[1] != 0;
        }
    }
    return NULL;
}

const char *activation_config_finish(struct activation_space_config *g) {
    const char *error = set_programs(g);
    if (!error)
        error = set_quorums(g);
    if (error)
        return error;
    if (g->group_size < 1 || g->group_size > g->ranks)
        return "--group is out of range";
    g->rules.core = (struct activation_config){
        .size = g->ranks,
        .topology = {.size = g->ranks, .group_size = g->group_size, .grouping = g->grouping},
        .quorum = g->majority ? -1 : g->quorum,
        .world = g->world,
        .ordered = g->ordered,
        .forward = g->forward,
        .varies = g->varies,
        .window = g->window,
        .sync_period = g->period,
        .grace = g->grace ? ACTIVATION_GRACE_NS : 0,
    };
    for (int r = 0; r < g->ranks; r++) {
        g->core[r] = g->rules.core;
        g->core[r].rank = r;
    }
    if (activation_bytes(&g->core[0]) > ACTIVATION_CORE)
        return "a core is too large";
    static _Alignas(8) unsigned char core[ACTIVATION_CORE];
    activation_init((struct activation *)(void *)core, &g->core[0]);
    g->core_bytes = ((struct activation *)(void *)core)->o_actions;
    g->oracle_at = (size_t)g->ranks * g->core_bytes;
    g->ranks_at = g->oracle_at + aligned(oracle_bytes(&g->rules));
    g->pairs_at = g->ranks_at + (size_t)g->ranks * sizeof(struct activation_rank);
    const size_t pairs = (size_t)g->ranks * (size_t)g->ranks * sizeof(struct activation_pair);
    g->bytes = (int)((g->pairs_at + pairs + 31) / 32 * 32);
    return (size_t)g->bytes > SPACE_CELLS * sizeof(uint16_t) ? "the state is too large" : NULL;
}

struct oracle *activation_oracle(const struct activation_world *w) {
    return (struct oracle *)(void *)(w->cells + w->g->oracle_at);
}

static struct activation_rank *rank_of(const struct activation_world *w, int rank) {
    return (struct activation_rank *)(void *)(w->cells + w->g->ranks_at) + rank;
}

static struct activation_pair *pair_of(const struct activation_world *w, int from, int to) {
    return (struct activation_pair *)(void *)(w->cells + w->g->pairs_at) + from * w->g->ranks + to;
}

/* The kept part of a core: enough for questions. */
static struct activation *kept(const struct activation_world *w, int rank) {
    return (struct activation *)(void *)(w->cells + (size_t)rank * w->g->core_bytes);
}

void activation_world_initial(struct activation_world *w) {
    static _Alignas(8) unsigned char core[ACTIVATION_CORE];
    memset(w->cells, 0, (size_t)w->g->bytes);
    oracle_init(&w->g->rules, activation_oracle(w));
    for (int r = 0; r < w->g->ranks; r++) {
        activation_init((struct activation *)(void *)core, &w->g->core[r]);
        memcpy(kept(w, r), core, w->g->core_bytes);
        rank_of(w, r)->now = 1;
    }
}

/* ---- messages -------------------------------------------------------------------------------- */
static uint32_t packed(const struct activation_message *m) {
    struct activation_dispute d = {
        .version = m->version, .ranks = {m->detail, 0}, .quorums = {m->quorum, 0}};
    if (m->kind == ACTIVATION_DISPUTE) {
        d = activation_disputed(m);
    } else if (m->detail >= 0) {
        d.ranks[0] = m->detail & ((1 << ACTIVATION_CLAIMANT_SHIFT) - 1);
        d.ranks[1] = m->detail >> ACTIVATION_CLAIMANT_SHIFT;
    }
    return (uint32_t)(m->kind | m->sync << 4 | (d.ranks[0] + 1) << 5 | (d.version + 1) << 9 |
                      d.ranks[1] << 16 | d.quorums[0] << 20 | d.quorums[1] << 24);
}

static struct activation_message unpacked(uint32_t word) {
    const int first = (int)(word >> 5 & 15) - 1, second = (int)(word >> 16 & 15);
    const int dispute = (word & 15) == ACTIVATION_DISPUTE;
    return (struct activation_message){
        .kind = word & 15,
        .sync = word >> 4 & 1,
        .quorum = word >> 20 & 15,
        .detail = first | second << (dispute ? 16 : ACTIVATION_CLAIMANT_SHIFT),
        .version = ((int64_t)(word >> 9 & 127) - 1) | (int64_t)(word >> 24 & 15) << 48};
}

static void send(struct node *n, int to, const struct activation_message *message) {
    struct activation_pair *pair = pair_of(n->world, n->rank, to);
    const struct activation_message back = unpacked(packed(message));
    if (pair->queued == ACTIVATION_QUEUE || memcmp(&back, message, sizeof back) != 0) {
        fprintf(stderr, "explore: the model is too small for a message\n");
        abort();
    }
    pair->queue[pair->queued++] = packed(message);
}

static struct activation_message fetch(struct activation_pair *pair) {
    const struct activation_message message = unpacked(pair->queue[0]);
    pair->queued--;
    memmove(pair->queue, pair->queue + 1, pair->queued * sizeof pair->queue[0]);
    pair->queue[pair->queued] = 0;
    return message;
}

static void trouble(struct node *n, const struct activation_action *action) {
    const struct activation_world *w = n->world;
    if (action->reason == ACTIVATION_QUORUMS) {
        const struct activation_dispute d = activation_disputed(&action->message);
        rank_of(w, n->rank)->told = 1;
        if (d.quorums[0] != d.quorums[1] &&
            w->g->rules.quorums[d.ranks[0]][d.version] == d.quorums[0] &&
            w->g->rules.quorums[d.ranks[1]][d.version] == d.quorums[1])
            return;
    }
    n->bad->invariant = "trouble";
    snprintf(n->bad->detail, sizeof n->bad->detail, "rank %d: reason %d", n->rank, action->reason);
}

/* ---- moves ----------------------------------------------------------------------------------- */
/* The rank as a node, with room for the actions of its core; to be closed after its step. */
static struct node open_node(struct activation_world *w, int rank) {
    static _Alignas(
        8) unsigned char core[ACTIVATION_CORE]; /* beyond core_bytes zeros: no actions */
    memcpy(core, kept(w, rank), w->g->core_bytes);
    return (struct node){
        .rules = &w->g->rules,
        .oracle = activation_oracle(w),
        .core = (struct activation *)(void *)core,
        .rank = rank,
        .now = rank_of(w, rank)->now,
        .log = w->log,
        .bad = &w->bad,
        .world = w,
        .send = send,
        .trouble = trouble,
    };
}

static int close_node(const struct node *n, int made) {
    const struct activation_world *w = n->world;
    memcpy(kept(w, n->rank), n->core, w->g->core_bytes);
    rank_of(w, n->rank)->now = n->now;
    return made;
}

static enum node_move next_of(const struct activation_world *w, int rank) {
    const int v = oracle_player(activation_oracle(w), rank)->version;
    const char *program = w->g->program[rank];
    const int n = (int)strlen(program), departs = n && program[n - 1] == NODE_DEPARTS;
    return v < n - departs ? (enum node_move)program[v] : departs ? NODE_DEPARTS : NODE_STAYS;
}

int activation_is_running(const struct activation_world *w, int rank) {
    const struct oracle_player *p = oracle_player(activation_oracle(w), rank);
    return !rank_of(w, rank)->told && p->phase != ORACLE_GONE &&
           (p->phase != ORACLE_OUTSIDE || next_of(w, rank) != NODE_STAYS);
}

static int control(struct activation_world *w, int from, int to) {
    struct activation_pair *pair = pair_of(w, from, to);
    if (!pair->queued)
        return 0;
    const struct activation_message message = fetch(pair);
    struct node n = open_node(w, to);
    node_receive(&n, from, &message);
    return close_node(&n, 1);
}

static int has(const struct activation_world *w, int rank, int version, enum oracle_flag flag) {
    return oracle_cell(&w->g->rules, activation_oracle(w), rank, version)->flags & flag;
}

/* What data may do on a rank now: 0: nothing; 1: it comes, from *from; 2: it is all there. */
static int data_due(const struct activation_world *w, int rank, int version, int *from) {
    int32_t members[ORACLE_RANKS];
    if (has(w, rank, version, ORACLE_COMPLETE))
        return 0;
    const int n = oracle_members(&w->g->rules, rank, version, members);
    const int answered = w->g->gather && rank != members[0],
              pinned = has(w, rank, version, ORACLE_PINNED);
    *from = -1;
    for (int i = n - 1; i >= 0; i--) {
        if (has(w, members[i], version, ORACLE_PINNED))
            *from = members[i];
        else if (pinned)
            return 0;
    }
    if (pinned)
        return !answered || has(w, members[0], version, ORACLE_COMPLETE) ? 2 : 0;
    return *from >= 0 && !answered && !(rank_of(w, rank)->heard >> version & 1);
}

/* It comes once to a rank that has not pinned the version: otherwise nothing happens. */
static int data(struct activation_world *w, int rank, int version) {
    int from;
    const int due = data_due(w, rank, version, &from);
    if (!due)
        return 0;
    struct node n = open_node(w, rank);
    rank_of(w, rank)->heard |= (uint64_t)(due == 1) << version;
    if (due == 1)
        node_receive_data(&n, from, version);
    else
        node_complete(&n, version);
    return close_node(&n, 1);
}

static int caller(struct activation_world *w, int rank, int *returned) {
    if (rank_of(w, rank)->told)
        return 0;
    struct node n = open_node(w, rank);
    return close_node(&n, node_caller(&n, next_of(w, rank), returned));
}

static int has_grace(const struct activation_world *w, int rank) {
    return !rank_of(w, rank)->told && activation_deadline(kept(w, rank)) != 0;
}

static int tick(struct activation_world *w, int rank) {
    struct node n = open_node(w, rank);
    return close_node(&n, node_tick(&n));
}

/* The first move of the engines, else the caller's. */
static int alone(struct activation_world *w, int rank, int *returned) {
    for (int to = 0; to < w->g->ranks; to++) {
        for (int from = 0; from < w->g->ranks; from++)
            if (control(w, from, to))
                return 1;
        for (int v = 0; v < w->g->rules.versions; v++)
            if (data(w, to, v))
                return 1;
        if (has_grace(w, to) && tick(w, to))
            return 1;
    }
    return caller(w, rank, returned);
}

int activation_is_enabled(const struct activation_world *w, int rank, int choice) {
    int from = choice - ACTIVATION_CONTROL;
    if (choice == ACTIVATION_CALLER)
        return activation_is_running(w, rank);
    if (choice == ACTIVATION_TIME)
        return has_grace(w, rank);
    if (choice < ACTIVATION_DATA)
        return from < w->g->ranks && pair_of(w, from, rank)->queued;
    return data_due(w, rank, choice - ACTIVATION_DATA, &from) != 0;
}

/* 1: the next message of the pair tells its receiver nothing: an activation of a version that is
 * pinned there, and has been sent over the dimensions above. It never will again, and nothing that
 * happens meanwhile is different for it. */
static int is_inert(struct activation_world *w, int from, int to) {
    const struct activation_message message = unpacked(pair_of(w, from, to)->queue[0]);
    struct activation_action action;
    if (!pair_of(w, from, to)->queued || message.kind != ACTIVATION_ACTIVATE)
        return 0;
    const struct node n = open_node(w, to);
    activation_step(n.core, &(struct activation_event){.kind = ACTIVATION_EVENT_MESSAGE,
                                                       .from = from,
                                                       .now = kept(w, to)->now,
                                                       .message = message});
    return !activation_next(n.core, &action) && memcmp(n.core, kept(w, to), w->g->core_bytes) == 0;
}

/* Messages that tell nothing come at once: the states in between lead nowhere else. */
static void collapse(struct activation_world *w) {
    for (int r = 0; r < w->g->ranks; r++)
        for (int v = 0; v < w->g->rules.versions; v++)
            if (has(w, r, v, ORACLE_PINNED)) /* it does not matter any more */
                rank_of(w, r)->heard &= ~(UINT64_C(1) << v);
    for (int from = 0; from < w->g->ranks; from++)
        for (int to = 0; to < w->g->ranks && !w->g->single; to++)
            while (!w->bad.invariant && is_inert(w, from, to))
                control(w, from, to);
}

static int told(const struct activation_world *w) {
    int n = 0;
    for (int r = 0; r < w->g->ranks; r++)
        n += rank_of(w, r)->told != 0;
    return n;
}

/* 1: two ranks have come to a version with different quorums. */
static int is_disputed(const struct activation_world *w) {
    const struct oracle_rules *rules = &w->g->rules;
    for (int v = 0; v < rules->versions; v++)
        for (int r = 1; r < w->g->ranks && !oracle_is_sync(rules, v); r++)
            for (int q = 0; q < r; q++)
                if (has(w, r, v, ORACLE_HERE) && has(w, q, v, ORACLE_HERE) &&
                    rules->quorums[r][v] != rules->quorums[q][v])
                    return 1;
    return 0;
}

/* In quiet states all have been told, or nobody. 1: they have. */
static int check_told(struct activation_world *w) {
    const int n = told(w);
    if (n == 0 && !(w->g->disagree && is_disputed(w)))
        return 0;
    if (n < w->g->ranks && !w->bad.invariant) {
        w->bad.invariant = "dispute-told";
        snprintf(w->bad.detail, sizeof w->bad.detail, "%d of %d ranks are told of a dispute", n,
                 w->g->ranks);
    }
    return 1;
}

/* In states without control messages: what is pinned by some is pinned by all and ends; and when
 * all ranks are idle, which is when they close, no data is on its way. */
static void check_quiet(struct activation_world *w) {
    const struct activation_space_config *g = w->g;
    int idle = 1, graces = 0, datas = 0, from;
    if (told(w))
        return;
    for (int r = 0; r < g->ranks; r++) {
        idle &= activation_idle(kept(w, r));
        graces += has_grace(w, r);
        for (int q = 0; q < g->ranks; q++)
            if (pair_of(w, r, q)->queued)
                return;
        for (int v = 0; v < g->rules.versions; v++)
            datas += data_due(w, r, v, &from) != 0;
    }
    if (datas == 0 && graces == 0) {
        oracle_quiet(&g->rules, activation_oracle(w), &w->bad);
    } else if (datas && idle) {
        w->bad.invariant = "A7-end";
        snprintf(w->bad.detail, sizeof w->bad.detail, "all are idle, and data is on its way");
    }
}

int activation_world_move(struct activation_world *w, int rank, int choice, int *returned) {
    int made;
    *returned = 0;
    if (choice == ACTIVATION_ALONE)
        made = alone(w, rank, returned);
    else if (choice == ACTIVATION_CALLER)
        made = caller(w, rank, returned);
    else if (choice == ACTIVATION_TIME)
        made = tick(w, rank);
    else if (choice < ACTIVATION_DATA)
        made = control(w, choice - ACTIVATION_CONTROL, rank);
    else
        made = data(w, rank, choice - ACTIVATION_DATA);
    if (made)
        collapse(w);
    if (made && !w->bad.invariant)
        check_quiet(w);
    return made;
}

/* ---- where nothing goes on ------------------------------------------------------------------- */
void activation_check_waiting(struct activation_world *w, int rank) {
    if (check_told(w))
        return;
    const struct node n = open_node(w, rank);
    node_check_waiting(&n);
}

void activation_check_terminal(struct activation_world *w) {
    int gone = 0, stay = 0;
    if (check_told(w))
        return;
    for (int r = 0; r < w->g->ranks; r++) {
        const int phase = oracle_player(activation_oracle(w), r)->phase;
        activation_check_waiting(w, r);
        gone += phase == ORACLE_GONE;
        stay += phase == ORACLE_OUTSIDE && next_of(w, r) == NODE_STAYS;
    }
    if (!w->bad.invariant && gone < w->g->ranks && stay == 0) {
        w->bad.invariant = "no-deadlock";
        snprintf(w->bad.detail, sizeof w->bad.detail, "ranks wait for each other");
    }
    for (int r = 0; r < w->g->ranks && gone == w->g->ranks && !w->bad.invariant; r++)
        if (!activation_idle(kept(w, r)) || activation_active(kept(w, r))) {
            w->bad.invariant = "A7-end";
            snprintf(w->bad.detail, sizeof w->bad.detail,
                     "all have departed, and rank %d has %d versions", r,
                     activation_active(kept(w, r)));
        }
}
