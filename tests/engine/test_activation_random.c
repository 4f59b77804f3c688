/* csrc/protocol/activation.c under random schedules: up to 64 ranks over transport_sim, policies
 * drawn at random, several that start versions at once, messages that overtake each other, ranks
 * that are slow, sleep, depart or stay away for ever. The oracle checks every event, and in the end
 * that whoever waits has to.
 *
 *   test_activation_random             all schedules; a violation is shown with its last events
 *   test_activation_random SEED        one schedule, every event
 *   test_activation_random FROM TO     schedules of these seeds
 *
 * The data of a version are control messages here, in one of two patterns: all to all, or all to
 * the lowest member, which answers (nobody else hears of a version by its data before it pins). */
#include "activation_node.h"
#include "check.h"
#include "base/mix.h"
#include "support.h"
#include "transport_sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEDULES = 12000, SHOWN = 80, DATA = 64 };

struct data_message {
    uint8_t kind; /* DATA */
    int32_t version;
};

struct schedule {
    struct oracle_rules rules;
    uint64_t random;
    struct sim *sim;
    struct oracle *oracle;
    unsigned char *cores;
    size_t core_bytes;
    uint64_t got[ORACLE_RANKS][ORACLE_VERSIONS]; /* ranks whose data has come */
    uint64_t now, asleep[ORACLE_RANKS];
    int ends[ORACLE_RANKS];  /* the version before which it departs, or stays away */
    int stays[ORACLE_RANKS]; /* for ever */
    int pace[ORACLE_RANKS];  /* 1..8, of its caller */
    int gather, delay;
    int holds; /* a pair of ranks is held for so many steps of each rank; 0: none is */
    int held;  /* 1 + rank * P + rank; 0: none is */
    char name[200];
    struct oracle_violation bad;
    FILE *log;
};

static struct { /* what the schedules have covered */
    int64_t events, calls, late, jumps, stayed;
} seen;

static uint64_t draw(struct schedule *x, uint64_t below) {
    return mix(x->random++) % below;
}

/* ---- a schedule's parameters ----------------------------------------------------------------- */
static int draw_size(struct schedule *x) {
    const uint64_t kind = draw(x, 16);
    return 1 + (int)(kind < 9 ? draw(x, 8) : kind < 15 ? draw(x, 20) : draw(x, ORACLE_RANKS));
}

static void draw_rules(struct schedule *x) {
    struct activation_config *c = &x->rules.core;
    const int size = draw_size(x), pairs = draw(x, 8) == 0 && size > 1;
    c->size = size;
    c->topology = (struct topology){
        .size = size,
        .group_size = pairs ? 2 : 1 + (int)draw(x, (uint64_t)size),
        .grouping = pairs        ? WAGMA_GROUPING_PAIRS
                    : draw(x, 8) ? 0
                                 : WAGMA_GROUPING_FIXED,
    };
    c->seed = c->topology.seed = draw(x, 1000);
    const uint64_t quorum = draw(x, 10);
    c->world = quorum > 0 && draw(x, 4) == 0;
    const int most = c->world ? size : c->topology.group_size;
    c->quorum = quorum == 0  ? 0
                : quorum < 5 ? 1
                : quorum < 7 ? -1
                             : 1 + (int)draw(x, (uint64_t)most);
    const uint64_t late = quorum == 0 ? 0 : draw(x, 5);
    c->ordered = late == 1;
    c->forward = late >= 3;
    c->window = 1 + (int64_t)(draw(x, 2) ? draw(x, 4) : draw(x, 24));
    c->sync_period = draw(x, 3) ? 0 : 2 + (int64_t)draw(x, 5);
    c->grace = quorum == 0 || draw(x, 2) ? 0 : 1 + draw(x, 400);
    c->automatic = c->grace != 0 && draw(x, 2);
    x->rules.versions = 2 + (int)draw(x, size > 20 ? 5 : 14);
    for (int v = 0; v < x->rules.versions; v++)
        x->rules.explicit_sync |= (uint64_t)(draw(x, 16) == 0) << v;
    x->gather = (int)draw(x, 2);
    x->delay = (int)(draw(x, 3) ? draw(x, 4) : draw(x, 40));
    x->holds = draw(x, 2) ? 1 << draw(x, 10) : 0;
}

static void draw_players(struct schedule *x) {
    const int leave = draw(x, 3) == 0, stay = draw(x, 6) == 0;
    for (int r = 0; r < x->rules.core.size; r++) {
        const int early = leave && draw(x, 3) == 0;
        x->pace[r] = 1 + (int)(draw(x, 3) ? 7 : draw(x, 8));
        x->ends[r] = early ? (int)draw(x, (uint64_t)x->rules.versions) : x->rules.versions;
        x->stays[r] = stay && draw(x, 3) == 0;
        if (x->stays[r] && draw(x, 2))
            x->ends[r] = (int)draw(x, (uint64_t)x->rules.versions);
    }
}

static void begin(struct schedule *x, uint64_t seed, FILE *log) {
    memset(x, 0, sizeof *x);
    x->random = mix(seed + 1);
    x->log = log;
    draw_rules(x);
    draw_players(x);
    const struct activation_config *c = &x->rules.core;
    snprintf(x->name, sizeof x->name,
             "seed %" PRIu64 ": P=%d S=%d grouping=%d quorum=%d%s%s%s window=%" PRId64
             " period=%" PRId64 " grace=%" PRIu64 "%s versions=%d delay=%d%s",
             seed, c->size, c->topology.group_size, c->topology.grouping, c->quorum,
             c->world ? " world" : "", c->ordered ? " ordered" : "", c->forward ? " forward" : "",
             c->window, c->sync_period, c->grace, c->automatic ? " automatic" : "",
             x->rules.versions, x->delay, x->gather ? " gather" : "");
    x->sim = sim_create(c->size, seed, (struct sim_options){.delay = x->delay});
    x->oracle = malloc(oracle_bytes(&x->rules));
    x->core_bytes = activation_bytes(c);
    x->cores = malloc((size_t)c->size * x->core_bytes);
    if (!x->oracle || !x->cores)
        abort();
    oracle_init(&x->rules, x->oracle);
    for (int r = 0; r < c->size; r++) {
        struct activation_config mine = *c;
        mine.rank = r;
        activation_init((struct activation *)(void *)(x->cores + (size_t)r * x->core_bytes), &mine);
    }
    if (log)
        fprintf(log, "%s\n", x->name);
}

static void end(struct schedule *x) {
    sim_free(x->sim);
    free(x->oracle);
    free(x->cores);
}

static void violate(struct schedule *x, const char *invariant, const char *what, int rank,
                    int64_t number) {
    if (x->bad.invariant)
        return;
    x->bad.invariant = invariant;
    snprintf(x->bad.detail, sizeof x->bad.detail, "rank %d: %s (%" PRId64 ")", rank, what, number);
}

/* ---- messages -------------------------------------------------------------------------------- */
static void send(struct node *n, int to, const struct activation_message *message) {
    struct schedule *x = n->world;
    wagma_transport *t = sim_transport(x->sim, n->rank);
    t->calls->send_control(t, to, message, sizeof *message);
}

static void send_data(struct node *n, int to, int version) {
    struct schedule *x = n->world;
    wagma_transport *t = sim_transport(x->sim, n->rank);
    const struct data_message message = {.kind = DATA, .version = version};
    t->calls->send_control(t, to, &message, sizeof message);
}

static int has(struct schedule *x, int rank, int version, enum oracle_flag flag) {
    return (oracle_cell(&x->rules, x->oracle, rank, version)->flags & flag) != 0;
}

/* Sends the rank's data of a version that it has pinned, as far as the pattern lets it, and ends
 * the version when all has come; `began`: it was pinned just now. */
static void exchange(struct node *n, int version, int began) {
    struct schedule *x = n->world;
    int32_t members[ORACLE_RANKS];
    const int count = oracle_members(&x->rules, n->rank, version, members);
    const int is_lowest = n->rank == members[0];
    uint64_t needed = 0;
    if (!has(x, n->rank, version, ORACLE_PINNED) || has(x, n->rank, version, ORACLE_COMPLETE))
        return;
    for (int i = 0; i < count; i++)
        if (members[i] != n->rank && (!x->gather || is_lowest || i == 0))
            needed |= UINT64_C(1) << members[i];
    const int over = (x->got[n->rank][version] & needed) == needed;
    for (int i = 0; i < count; i++) {
        const int speaks = !x->gather ? began : is_lowest ? over : began && i == 0;
        if (members[i] != n->rank && speaks)
            send_data(n, members[i], version);
    }
    if (over)
        node_complete(n, version);
}

static void pinned(struct node *n, int version) {
    exchange(n, version, 1);
}

static void trouble(struct node *n, const struct activation_action *action) {
    violate(n->world, "trouble", "the core finds trouble", n->rank, action->reason);
}

static struct node node_of(struct schedule *x, int rank) {
    return (struct node){
        .rules = &x->rules,
        .oracle = x->oracle,
        .core = (struct activation *)(void *)(x->cores + (size_t)rank * x->core_bytes),
        .rank = rank,
        .now = x->now,
        .log = x->log,
        .bad = &x->bad,
        .world = x,
        .send = send,
        .pinned = pinned,
        .trouble = trouble,
    };
}

/* Gives the core one message; 0: there is none yet. */
static int poll(struct schedule *x, int rank) {
    wagma_transport *t = sim_transport(x->sim, rank);
    struct node n = node_of(x, rank);
    int from;
    const void *bytes;
    size_t length;
    if (t->calls->poll_control(t, &from, &bytes, &length) != 1)
        return 0;
    if (length == sizeof(struct data_message)) {
        struct data_message data;
        memcpy(&data, bytes, sizeof data);
        x->got[rank][data.version] |= UINT64_C(1) << from;
        node_receive_data(&n, from, data.version);
        if (!x->bad.invariant)
            exchange(&n, data.version, 0);
    } else {
        struct activation_message message;
        memcpy(&message, bytes, sizeof message);
        node_receive(&n, from, &message);
    }
    return 1;
}

/* ---- the ranks ------------------------------------------------------------------------------- */
static enum node_move next_of(struct schedule *x, int rank) {
    const int version = oracle_player(x->oracle, rank)->version;
    if (version >= x->ends[rank] || version >= x->rules.versions)
        return x->stays[rank] ? NODE_STAYS : NODE_DEPARTS;
    return x->rules.explicit_sync >> version & 1 ? NODE_SYNCS : NODE_CALLS;
}

static int call(struct schedule *x, int rank) {
    struct node n = node_of(x, rank);
    const int before = oracle_player(x->oracle, rank)->version;
    const int late = activation_ask(n.core).late;
    int returned;
    if (!node_caller(&n, next_of(x, rank), &returned))
        return 0;
    if (returned) {
        seen.calls++;
        seen.late += late;
        seen.jumps += oracle_player(x->oracle, rank)->version > before + 1;
        if (draw(x, 8) == 0) /* computes for long */
            x->asleep[rank] = x->now + draw(x, 200 * (uint64_t)x->rules.core.size);
    }
    return 1;
}

static int tick(struct schedule *x, int rank) {
    struct node n = node_of(x, rank);
    const uint64_t deadline = activation_deadline(n.core);
    return deadline != 0 && x->now >= deadline && node_tick(&n);
}

/* Lets the messages of a pair come again, and holds those of another one (-1: of none). */
static void hold(struct schedule *x, int pair) {
    const int size = x->rules.core.size;
    if (x->held)
        sim_hold(x->sim, (x->held - 1) / size, (x->held - 1) % size, 0);
    if (pair >= 0)
        sim_hold(x->sim, pair / size, pair % size, 1);
    x->held = pair + 1;
}

/* A rank does something, or nothing. */
static int act(struct schedule *x) {
    const int r = (int)draw(x, (uint64_t)x->rules.core.size);
    int done = 0;
    x->now += draw(x, 20);
    if (x->holds && draw(x, (uint64_t)x->holds * (uint64_t)x->rules.core.size) == 0)
        hold(x, (int)draw(x, (uint64_t)(x->rules.core.size * x->rules.core.size)));
    for (uint64_t k = draw(x, 6); k > 0 && !x->bad.invariant; k--)
        done += poll(x, r);
    if (!x->bad.invariant)
        done += tick(x, r);
    if (!x->bad.invariant && x->now >= x->asleep[r] && draw(x, 8) < (uint64_t)x->pace[r])
        done += call(x, r);
    seen.events += done;
    return done;
}

/* Everything that can happen on every rank; 0: nothing can. */
static int sweep(struct schedule *x) {
    int done = 0;
    for (int r = 0; r < x->rules.core.size && !x->bad.invariant; r++) {
        for (int k = 0; k < x->delay + 2 && !x->bad.invariant; k++)
            done += poll(x, r);
        const struct node n = node_of(x, r);
        const uint64_t deadline = activation_deadline(n.core);
        x->now = deadline > x->now ? deadline : x->now;
        x->asleep[r] = 0;
        if (!x->bad.invariant)
            done += tick(x, r);
        if (!x->bad.invariant)
            done += call(x, r);
    }
    return done;
}

/* A waiting rank has asked everybody: those that it names have not come. */
static void check_missing(struct schedule *x, int rank) {
    int32_t missing[ORACLE_RANKS];
    int needed;
    const struct node n = node_of(x, rank);
    const int t = oracle_player(x->oracle, rank)->version;
    const int count = activation_missing(n.core, missing, &needed);
    if (count < 1 || needed < 1 || needed > count)
        violate(x, "missing", "waits for nobody", rank, count);
    for (int i = 0; i < count; i++) {
        const struct oracle_player *p = oracle_player(x->oracle, missing[i]);
        if (p->newest >= t || (p->phase == ORACLE_GONE && p->version <= t))
            violate(x, "missing", "waits for one that has come", rank, missing[i]);
    }
}

/* Nothing goes on any more: who waits has to, and all that was begun is over. */
static void check_end(struct schedule *x) {
    const int size = x->rules.core.size;
    int gone = 0, stay = 0, waiting[ORACLE_RANKS];
    oracle_quiet(&x->rules, x->oracle, &x->bad);
    if (sim_pending(x->sim) || sim_trouble(x->sim))
        violate(x, "A7-end", "messages are left", -1, sim_pending(x->sim));
    for (int r = 0; r < size && !x->bad.invariant; r++) {
        struct node n = node_of(x, r);
        const struct oracle_player *p = oracle_player(x->oracle, r);
        node_check_waiting(&n);
        gone += p->phase == ORACLE_GONE;
        stay += p->phase == ORACLE_OUTSIDE && next_of(x, r) == NODE_STAYS;
        waiting[r] = p->phase == ORACLE_CALLED || p->phase == ORACLE_ARRIVED;
        if (waiting[r] && !x->bad.invariant)
            node_step(&n, (struct activation_event){.kind = ACTIVATION_EVENT_INQUIRE});
    }
    while (!x->bad.invariant && sweep(x) + sim_pending(x->sim))
        ;
    for (int r = 0; r < size && !x->bad.invariant; r++) {
        const struct node n = node_of(x, r);
        if (waiting[r])
            check_missing(x, r);
        if (gone == size && (!activation_idle(n.core) || activation_active(n.core)))
            violate(x, "A7-end", "all have departed, it has versions", r,
                    activation_active(n.core));
    }
    if (gone < size && stay == 0)
        violate(x, "no-deadlock", "ranks wait for each other", -1, size - gone);
    seen.stayed += stay > 0;
}

static void run(struct schedule *x) {
    const int patience = 8 * x->rules.core.size;
    for (int idle = 0; !x->bad.invariant;) {
        idle = act(x) ? 0 : idle + 1;
        if (idle < patience)
            continue;
        idle = 0;
        hold(x, -1);
        if (!x->bad.invariant && !sweep(x) && sim_pending(x->sim) == 0)
            break;
    }
    if (!x->bad.invariant)
        check_end(x);
}

/* ---- many of them ---------------------------------------------------------------------------- */
/* The last events of a trace. */
static void show(FILE *trace) {
    char line[256];
    int lines = 0;
    rewind(trace);
    while (fgets(line, sizeof line, trace))
        lines++;
    rewind(trace);
    for (int k = 0; fgets(line, sizeof line, trace); k++)
        if (k >= lines - SHOWN)
            fputs(line, stdout);
}

/* 1: everything holds. */
static int play(uint64_t seed, FILE *log) {
    static struct schedule x;
    begin(&x, seed, log);
    run(&x);
    end(&x);
    if (!x.bad.invariant || log)
        return !x.bad.invariant;
    FILE *trace = tmpfile();
    if (trace) {
        play(seed, trace);
        show(trace);
        fclose(trace);
    }
    printf("VIOLATED %s: %s\n  %s\n", x.bad.invariant, x.bad.detail, x.name);
    return 0;
}

static uint64_t first_seed, last_seed = SCHEDULES / SLOWDOWN - 1;

static void test_schedules(void) {
    for (uint64_t seed = first_seed; seed <= last_seed; seed++)
        CHECK(play(seed, NULL), "once more with every event: test_activation_random %" PRIu64,
              seed);
}

static void test_schedules_cover(void) {
    printf("  %" PRId64 " events, %" PRId64 " calls, %" PRId64 " of them late, %" PRId64
           " jumps, %" PRId64 " schedules with ranks that stay away\n",
           seen.events, seen.calls, seen.late, seen.jumps, seen.stayed);
    CHECK(seen.late > seen.calls / 50 && seen.late < seen.calls / 2, "late calls");
    CHECK(seen.jumps > 0 && seen.stayed > 0, "jumps, ranks that stay away");
}

int main(int argc, char **argv) {
    if (argc == 2)
        return !play(strtoull(argv[1], NULL, 10), stdout);
    if (argc == 3) {
        first_seed = strtoull(argv[1], NULL, 10);
        last_seed = strtoull(argv[2], NULL, 10);
    }
    RUN(test_schedules);
    if (argc == 1)
        RUN(test_schedules_cover);
    return check_summary();
}
