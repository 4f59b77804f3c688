/* See activation_script.h. */
#include "activation_script.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct letter {
    struct letter *next;
    struct activation_message message;
};

struct script {
    struct oracle_rules rules;
    struct oracle *oracle;
    struct activation *cores[ORACLE_RANKS];
    struct letter *queues[ORACLE_RANKS][ORACLE_RANKS]; /* [from][to], oldest first */
    uint64_t now;
    int64_t sent;
    struct oracle_violation bad;
    FILE *log;
};

static void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes);
    if (!memory)
        abort();
    return memory;
}

/* ---- configuration --------------------------------------------------------------------------- */
static const char *option(const char *line, const char *name, int64_t *value) {
    const char *at = strstr(line, name);
    if (at && value)
        *value = strtoll(at + strlen(name), NULL, 10);
    return at;
}

struct script *script_open(const char *line, FILE *log) {
    int64_t ranks = 0, group = 0, quorum = 1, window = 8, period = 0, grace = 0, versions = 8;
    int64_t sync = -1;
    if (!option(line, "ranks ", &ranks) || !option(line, "group ", &group) || ranks < 1 ||
        ranks > ORACLE_RANKS)
        return NULL;
    option(line, "quorum ", &quorum);
    option(line, "window ", &window);
    option(line, "period ", &period);
    option(line, "grace ", &grace);
    option(line, "versions ", &versions);
    option(line, "sync ", &sync);
    struct script *s = allocate(sizeof *s);
    s->log = log;
    s->rules.versions = (int)versions;
    s->rules.explicit_sync = sync >= 0 ? UINT64_C(1) << sync : 0;
    s->rules.core = (struct activation_config){
        .size = (int)ranks,
        .topology = {.size = (int)ranks, .group_size = (int)group},
        .quorum = strstr(line, "majority") ? -1 : (int)quorum,
        .world = strstr(line, "world") != NULL,
        .ordered = strstr(line, "ordered") != NULL,
        .forward = strstr(line, "forward") != NULL,
        .window = window,
        .sync_period = period,
        .grace = (uint64_t)grace,
        .automatic = strstr(line, "automatic") != NULL,
    };
    s->oracle = allocate(oracle_bytes(&s->rules));
    oracle_init(&s->rules, s->oracle);
    for (int r = 0; r < s->rules.core.size; r++) {
        struct activation_config mine = s->rules.core;
        mine.rank = r;
        s->cores[r] = allocate(activation_bytes(&mine));
        activation_init(s->cores[r], &mine);
    }
    if (log)
        fprintf(log, "> %s\n", line);
    return s;
}

void script_close(struct script *s) {
    for (int r = 0; r < s->rules.core.size; r++) {
        free(s->cores[r]);
        for (int q = 0; q < s->rules.core.size; q++)
            while (s->queues[r][q]) {
                struct letter *next = s->queues[r][q]->next;
                free(s->queues[r][q]);
                s->queues[r][q] = next;
            }
    }
    free(s->oracle);
    free(s);
}

/* ---- the world of the nodes ------------------------------------------------------------------ */
static void send(struct node *n, int to, const struct activation_message *message) {
    struct script *s = n->world;
    struct letter **end = &s->queues[n->rank][to];
    while (*end)
        end = &(*end)->next;
    *end = allocate(sizeof **end);
    (*end)->message = *message;
    s->sent++;
}

static void trouble(struct node *n, const struct activation_action *action) {
    (void)n, (void)action; /* it is in the log */
}

static struct node node_of(struct script *s, int rank) {
    return (struct node){
        .rules = &s->rules,
        .oracle = s->oracle,
        .core = s->cores[rank],
        .rank = rank,
        .now = s->now,
        .log = s->log,
        .bad = &s->bad,
        .world = s,
        .send = send,
        .trouble = trouble,
    };
}

/* ---- events ---------------------------------------------------------------------------------- */
static int get(struct script *s, int to, int from) {
    struct letter *first = s->queues[from][to];
    if (!first)
        return 0;
    const struct activation_message message = first->message;
    struct node n = node_of(s, to);
    s->queues[from][to] = first->next;
    free(first);
    node_receive(&n, from, &message);
    return 1;
}

static int deliver(struct script *s) {
    for (int again = 1; again && !s->bad.invariant;) {
        again = 0;
        for (int to = 0; to < s->rules.core.size; to++)
            for (int from = 0; from < s->rules.core.size; from++)
                while (!s->bad.invariant && get(s, to, from))
                    again = 1;
    }
    return 1;
}

static int caller(struct script *s, int rank, enum node_move next) {
    static const char *const why[] = {"the window", "a quorum", "data", "nobody"};
    struct node n = node_of(s, rank);
    int returned;
    if (!node_caller(&n, next, &returned) && s->log)
        fprintf(s->log, "    rank %d waits for %s\n", rank, why[activation_ask(n.core).state]);
    return 1;
}

static int missing(struct script *s, int rank) {
    int32_t ranks[ORACLE_RANKS];
    int needed;
    const int n = activation_missing(s->cores[rank], ranks, &needed);
    if (!s->log)
        return 1;
    fprintf(s->log, "    rank %d waits for %d of", rank, needed);
    for (int i = 0; i < n; i++)
        fprintf(s->log, " %d", ranks[i]);
    fprintf(s->log, "\n");
    return 1;
}

static int is_rank(const struct script *s, int rank) {
    return rank >= 0 && rank < s->rules.core.size;
}

static int execute(struct script *s, const char *line) {
    char word[16];
    int a = 0, b = 0, c = 0;
    const int n = sscanf(line, "%15s %d %d %d", word, &a, &b, &c);
    if (n == 1 && strcmp(word, "deliver") == 0)
        return deliver(s);
    if (n == 2 && strcmp(word, "time") == 0) {
        s->now = (uint64_t)a;
        return 1;
    }
    if (n < 2 || !is_rank(s, a))
        return 0;
    struct node node = node_of(s, a);
    if (strcmp(word, "call") == 0 || strcmp(word, "arrive") == 0 || strcmp(word, "return") == 0)
        return caller(s, a, NODE_CALLS);
    if (strcmp(word, "sync") == 0)
        return caller(s, a, NODE_SYNCS);
    if (strcmp(word, "depart") == 0)
        return caller(s, a, NODE_DEPARTS);
    if (strcmp(word, "missing") == 0)
        return missing(s, a);
    if (strcmp(word, "tick") == 0)
        node_step(&node, (struct activation_event){.kind = ACTIVATION_EVENT_TICK});
    else if (strcmp(word, "inquire") == 0)
        node_step(&node, (struct activation_event){.kind = ACTIVATION_EVENT_INQUIRE});
    else if (n == 3 && strcmp(word, "get") == 0 && is_rank(s, b))
        return get(s, a, b);
    else if (n == 4 && strcmp(word, "data") == 0 && is_rank(s, c))
        node_receive_data(&node, c, b);
    else if (n == 3 && strcmp(word, "over") == 0)
        node_complete(&node, b);
    else
        return 0;
    return 1;
}

int script_do(struct script *s, const char *line) {
    if (s->log)
        fprintf(s->log, "> %s\n", line);
    const int done = execute(s, line) && !s->bad.invariant;
    if (s->log && !done)
        fprintf(s->log, "    %s: %s\n", s->bad.invariant ? s->bad.invariant : "cannot be done",
                s->bad.invariant ? s->bad.detail : line);
    return done;
}

/* ---- questions ------------------------------------------------------------------------------- */
const char *script_violation(const struct script *s) {
    return s->bad.invariant;
}

struct activation *script_core(struct script *s, int rank) {
    return s->cores[rank];
}

int64_t script_sent(const struct script *s) {
    return s->sent;
}

int script_queued(const struct script *s, int from, int to) {
    int n = 0;
    for (const struct letter *l = s->queues[from][to]; l; l = l->next)
        n++;
    return n;
}
