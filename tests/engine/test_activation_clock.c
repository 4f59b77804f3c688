/* csrc/protocol/activation.c under a virtual clock: ranks that compute for given times, messages
 * that take a given time, and no executor. tests/simulate compares simulations with it.
 *
 *   test_activation_clock                  tests
 *   test_activation_clock - < WORKLOAD     for each version a line with a character for each rank:
 *                                          '.' fresh, 'L' late, ' ' jumped over
 *
 * A workload is whole numbers: ranks, group size, quorum (0: all), sync period, window, ordered
 * (0, 1), fast-forward (0, 1), grace, time of a control message, time of an exchange, versions;
 * then the compute times, version by version and rank by rank. Times are ns. */
/* short run: c */
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "protocol/activation.h"

enum { RANKS = 64 }; /* at most: bits of a word */

enum kind { CONTROL, DATA, CALLS, TICKS };

struct event {
    uint64_t at, order;
    enum kind kind;
    int to, from;
    int64_t version;
    struct activation_message message;
};

struct world {
    struct activation_config config;
    uint64_t control, exchange; /* ns */
    int64_t versions;
    uint64_t *compute; /* [versions][P] ns */
    char *fate;        /* [versions][P] */
    uint64_t *got;     /* [versions][P] members whose data has come, and the rank once it pins */
    struct activation *core[RANKS];
    int64_t version[RANKS]; /* that it calls, or calls next */
    int called[RANKS], arrived[RANKS];
    uint64_t now, order, ticks[RANKS];
    struct event *heap;
    size_t events, room;
};

/* ---- what will happen ------------------------------------------------------------------------ */

static int before(const struct event *a, const struct event *b) {
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push(struct world *w, struct event e) {
    if (w->events == w->room) {
        w->room = w->room ? 2 * w->room : 1024;
        w->heap = realloc(w->heap, w->room * sizeof *w->heap);
        if (!w->heap)
            abort();
    }
    e.order = w->order++;
    size_t i = w->events++;
    for (; i > 0 && before(&e, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = e;
}

static struct event pop(struct world *w) {
    const struct event first = w->heap[0], last = w->heap[--w->events];
    size_t i = 0;
    for (size_t k = 1; k < w->events; k = 2 * i + 1) {
        if (k + 1 < w->events && before(&w->heap[k + 1], &w->heap[k]))
            k++;
        if (!before(&w->heap[k], &last))
            break;
        w->heap[i] = w->heap[k];
        i = k;
    }
    w->heap[i] = last;
    return first;
}

static size_t cell(const struct world *w, int64_t version, int rank) {
    return (size_t)version * (size_t)w->config.size + (size_t)rank;
}

/* The rank computes, and then calls its next version. */
static void compute(struct world *w, int r) {
    if (w->version[r] < w->versions)
        push(w, (struct event){
                    .at = w->now + w->compute[cell(w, w->version[r], r)], .kind = CALLS, .to = r});
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static void step(struct world *w, int r, struct activation_event event);

static int is_sync(const struct world *w, int64_t version) {
    return w->config.sync_period && (version + 1) % w->config.sync_period == 0;
}

static int members_of(const struct world *w, int r, int64_t version, int32_t *members) {
    if (!is_sync(w, version))
        return topology_members(&w->config.topology, r, version, members);
    for (int i = 0; i < w->config.size; i++)
        members[i] = i;
    return w->config.size;
}

/* Ends the version if the data of all members is there. */
static void complete(struct world *w, int r, int64_t version) {
    int32_t members[RANKS];
    uint64_t needed = 0;
    const int n = members_of(w, r, version, members);
    for (int i = 0; i < n; i++)
        needed |= UINT64_C(1) << members[i];
    if ((w->got[cell(w, version, r)] & needed) == needed)
        step(w, r,
             (struct activation_event){.kind = ACTIVATION_EVENT_COMPLETE, .version = version});
}

/* All members send each other what they have, which takes the time of an exchange. */
static void pin(struct world *w, int r, int64_t version) {
    int32_t members[RANKS];
    const int n = members_of(w, r, version, members);
    w->got[cell(w, version, r)] |= UINT64_C(1) << r;
    for (int i = 0; i < n; i++)
        if (members[i] != r)
            push(w, (struct event){.at = w->now + w->exchange,
                                   .kind = DATA,
                                   .to = members[i],
                                   .from = r,
                                   .version = version});
    complete(w, r, version);
}

static void act(struct world *w, int r, const struct activation_action *a) {
    if (a->kind == ACTIVATION_SEND)
        push(w, (struct event){.at = w->now + w->control,
                               .kind = CONTROL,
                               .to = a->to,
                               .from = r,
                               .message = a->message});
    else if (a->kind == ACTIVATION_PIN)
        pin(w, r, a->version);
    else if (a->kind == ACTIVATION_TROUBLE)
        abort();
}

static void step(struct world *w, int r, struct activation_event event) {
    struct activation_action actions[4 * RANKS], *next = actions;
    event.now = w->now;
    activation_step(w->core[r], &event);
    while (activation_next(w->core[r], next))
        if (++next == actions + 4 * RANKS)
            abort();
    for (const struct activation_action *a = actions; a < next; a++)
        act(w, r, a);
}

static void leave(struct world *w, int r, const struct activation_call *call) {
    const int64_t t = w->version[r];
    const int jumps = w->config.ordered || (w->config.forward && call->late);
    w->fate[cell(w, t, r)] = call->late ? 'L' : '.';
    w->version[r] = jumps ? call->taken + 1 : t + 1;
    w->called[r] = w->arrived[r] = 0;
    step(w, r,
         (struct activation_event){.kind = ACTIVATION_EVENT_RETURN, .version = w->version[r]});
    compute(w, r);
}

/* The rank's caller goes on as far as it can. */
static void go_on(struct world *w, int r) {
    if (w->called[r] && !w->arrived[r] && activation_may_arrive(w->core[r])) {
        w->arrived[r] = 1;
        step(w, r,
             (struct activation_event){.kind = ACTIVATION_EVENT_ARRIVAL, .version = w->version[r]});
    }
    if (w->arrived[r]) {
        const struct activation_call call = activation_ask(w->core[r]);
        if (call.state == ACTIVATION_DONE)
            leave(w, r, &call);
    }
    const uint64_t deadline = activation_deadline(w->core[r]);
    if (deadline && deadline != w->ticks[r])
        push(w, (struct event){.at = deadline, .kind = TICKS, .to = r});
    w->ticks[r] = deadline;
}

static void happen(struct world *w, const struct event *e) {
    const int r = e->to;
    w->now = e->at > w->now ? e->at : w->now;
    switch (e->kind) {
    case CONTROL:
        step(w, r,
             (struct activation_event){
                 .kind = ACTIVATION_EVENT_MESSAGE, .from = e->from, .message = e->message});
        break;
    case DATA:
        w->got[cell(w, e->version, r)] |= UINT64_C(1) << e->from;
        step(w, r,
             (struct activation_event){.kind = ACTIVATION_EVENT_DATA,
                                       .from = e->from,
                                       .version = e->version,
                                       .sync = is_sync(w, e->version)});
        complete(w, r, e->version);
        break;
    case CALLS:
        w->called[r] = 1;
        step(w, r,
             (struct activation_event){.kind = ACTIVATION_EVENT_CALL,
                                       .version = w->version[r],
                                       .sync = is_sync(w, w->version[r])});
        break;
    case TICKS: step(w, r, (struct activation_event){.kind = ACTIVATION_EVENT_TICK}); break;
    }
    go_on(w, r);
}

/* ---- a world --------------------------------------------------------------------------------- */

static void *zeroed(size_t n, size_t size) {
    void *memory = calloc(n ? n : 1, size);
    if (!memory)
        abort();
    return memory;
}

static void begin(struct world *w) {
    const size_t cells = (size_t)w->versions * (size_t)w->config.size;
    w->compute = zeroed(cells, sizeof *w->compute);
    w->got = zeroed(cells, sizeof *w->got);
    w->fate = zeroed(cells, 1);
    memset(w->fate, ' ', cells);
    for (int r = 0; r < w->config.size; r++) {
        struct activation_config mine = w->config;
        mine.rank = r;
        w->core[r] = zeroed(1, activation_bytes(&mine));
        activation_init(w->core[r], &mine);
    }
}

/* Returns 1 if all ranks have made all versions. */
static int play(struct world *w) {
    int done = 1;
    for (int r = 0; r < w->config.size; r++)
        compute(w, r);
    while (w->events) {
        const struct event e = pop(w);
        happen(w, &e);
    }
    for (int r = 0; r < w->config.size; r++)
        done &= w->version[r] >= w->versions;
    return done;
}

static void end(struct world *w) {
    for (int r = 0; r < w->config.size; r++)
        free(w->core[r]);
    free(w->compute);
    free(w->got);
    free(w->fate);
    free(w->heap);
}

static struct world world_of(int size, int group_size, int quorum, int64_t versions) {
    return (struct world){
        .config = {.size = size,
                   .topology = {.size = size, .group_size = group_size},
                   .quorum = quorum,
                   .window = 1 << 10},
        .control = 1000,
        .exchange = 5000,
        .versions = versions,
    };
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A rank that computes longer than the others is late in every version but sync versions. */
static void test_slow_rank_is_late(void) {
    for (int size = 2; size <= 9; size++) {
        struct world w = world_of(size, size, 1, 20);
        w.config.sync_period = 5;
        begin(&w);
        for (int64_t t = 0; t < w.versions; t++)
            for (int r = 0; r < size; r++)
                w.compute[cell(&w, t, r)] = r == size - 1 ? 3000000 : 1000000;
        CHECK(play(&w), "P=%d: it hangs", size);
        for (int64_t t = 0; t < w.versions; t++) {
            const char slow = w.fate[cell(&w, t, size - 1)];
            CHECK(slow == (is_sync(&w, t) ? '.' : 'L'), "P=%d, version %" PRId64 ": '%c'", size, t,
                  slow);
        }
        end(&w);
    }
}

/* With quorum "all" nobody is, and each version takes as long as its slowest rank. */
static void test_nobody_is_late(void) {
    struct world w = world_of(7, 7, 0, 30);
    uint64_t longest = 0;
    begin(&w);
    for (int64_t t = 0; t < w.versions; t++) {
        uint64_t slowest = 0;
        for (int r = 0; r < 7; r++) {
            const uint64_t ns = w.compute[cell(&w, t, r)] =
                1000000 + (uint64_t)(t * r % 5) * 100000;
            slowest = ns > slowest ? ns : slowest;
        }
        longest += slowest;
    }
    CHECK(play(&w), "it hangs");
    CHECK(!memchr(w.fate, 'L', 7 * 30), "a rank is late");
    CHECK(w.now >= longest && w.now < longest + 30 * 20000, "%" PRIu64 " ns, not %" PRIu64, w.now,
          longest);
    end(&w);
}

/* ---- a workload from standard input ---------------------------------------------------------- */

static int64_t number(void) {
    int64_t n;
    if (scanf("%" SCNd64, &n) != 1)
        exit(2);
    return n;
}

static int print_fates(int size) {
    const int group_size = (int)number(), quorum = (int)number();
    struct world w = world_of(size, group_size, quorum, 0);
    w.config.sync_period = number();
    w.config.window = number();
    w.config.ordered = (int)number();
    w.config.forward = (int)number();
    w.config.grace = (uint64_t)number();
    w.control = (uint64_t)number();
    w.exchange = (uint64_t)number();
    w.versions = number();
    begin(&w);
    for (size_t i = 0; i < (size_t)w.versions * (size_t)size; i++)
        w.compute[i] = (uint64_t)number();
    const int done = play(&w);
    for (int64_t t = 0; t < w.versions; t++)
        printf("%.*s\n", size, w.fate + cell(&w, t, 0));
    end(&w);
    return done ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "-") == 0) {
        const int64_t size = number();
        return size >= 1 && size <= RANKS ? print_fates((int)size) : 2;
    }
    RUN(test_slow_rank_is_late);
    RUN(test_nobody_is_late);
    return check_summary();
}
