/* Graphs: ranks that run by themselves get, at every version, exactly what their neighbours of it
 * have contributed, whatever the delays, in a segment and over messages. */
#include "check.h"
#include "contribution.h"
#include "protocol/graph.h"
#include "periodic.h"
#include "place.h"
#include "kernels/reduce.h"
#include "support.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct plan {
    int64_t departs[RANKS_MAX]; /* versions that the rank takes */
    int naps;                   /* a rank sleeps before some versions */
} plan;

/* Returns the weight of a rank at a version: 0 now and then. */
static double weight_of(int rank, int64_t t) {
    const int64_t n = (rank * 5 + t * 3) % 7;
    return n == 6 ? 0 : (double)(n + 1) / 2;
}

/* The result's first period and its weight, by the definition; who is in it into ranks[]. */
static int expected(const rank *me, const plan *p, int64_t t, void *x, double *weight,
                    int32_t *ranks) {
    const wagma_options *o = &me->segment->options;
    const int64_t count = periodic_head(o->count);
    const size_t bytes = (size_t)count * reduce_dtype_size((wagma_dtype)o->dtype);
    int32_t in[WAGMA_MAX_NEIGHBORS];
    const int n = wagma_neighbors_of(me->rank, me->size, o->graph, o->neighbors, t, in);
    const void *data[WAGMA_MAX_NEIGHBORS + 1];
    double weights[WAGMA_MAX_NEIGHBORS + 1], sum = 0;
    int used = 0;
    for (int r = 0; r < me->size; r++) {
        int sends = r == me->rank;
        for (int i = 0; i < n; i++)
            sends |= in[i] == r;
        if (!sends || p->departs[r] <= t || weight_of(r, t) == 0)
            continue;
        void *theirs = malloc(bytes + 1);
        contribute(o->dtype, theirs, r, t, count);
        data[used] = theirs;
        ranks[used] = r;
        weights[used] = weight_of(r, t);
        sum += weights[used++];
    }
    *weight = sum / (n + 1);
    if (used == 0)
        contribute(o->dtype, x, me->rank, t, count);
    else if (used == 1 && ranks[0] == me->rank && o->average)
        memcpy(x, data[0], bytes);
    else
        reduce_by_name("scalar")->sum((wagma_dtype)o->dtype, x, data, weights, used,
                                      o->average ? sum : n + 1, (size_t)count);
    for (int i = 0; i < used; i++)
        free((void *)data[i]);
    return used;
}

static int check_call(const rank *me, const plan *p, int64_t t, const void *x,
                      const wagma_outcome *o) {
    const wagma_options *options = &me->segment->options;
    const size_t element = reduce_dtype_size((wagma_dtype)options->dtype);
    const size_t bytes = (size_t)options->count * element,
                 head = (size_t)periodic_head(options->count) * element;
    int32_t ranks[RANKS_MAX];
    double weight;
    void *wanted = malloc(head + 1);
    const int n = expected(me, p, t, wanted, &weight, ranks);
    int good = EXPECT(o->version == t && !o->late && o->skipped == 0 && o->merged == (n > 0) &&
                          o->weight == weight && o->contributors_count == n,
                      "rank %d version %" PRId64 ": weight %g of %d, expected %g of %d", me->rank,
                      t, o->weight, o->contributors_count, weight, n);
    for (int i = 0; good && i < n; i++)
        good = EXPECT(o->contributors[i] == ranks[i] && o->versions[i] == t,
                      "rank %d version %" PRId64 " has %d", me->rank, t, o->contributors[i]);
    good = good && EXPECT(memcmp(x, wanted, head) == 0 && periodic_holds(x, head, bytes),
                          "rank %d version %" PRId64 ": torn", me->rank, t);
    free(wanted);
    return good;
}

/* By one of the ways in which a version can be called. */
static int call(rank *me, wagma_handle *h, void *x, double weight, wagma_outcome *o) {
    int status;
    switch (random_below(me, 4)) {
    case 0:
        status = wagma_start(h, x, weight, 0, o);
        jitter(me);
        return status == WAGMA_INPROGRESS ? wagma_finish(h, x, o) : status;
    case 1:
        status = wagma_post(h, x, weight, 0);
        for (int i = 0; i < 5 && status == WAGMA_INPROGRESS; i++) {
            jitter(me);
            status = wagma_test(h, x, o);
        }
        return status == WAGMA_INPROGRESS ? wagma_wait(h, x, -1, o) : status;
    default: return wagma_allreduce(h, x, weight, o);
    }
}

/* More than an array has, so that there are some. */
static size_t bytes_of(const wagma_options *o) {
    return (size_t)(o->count + 1) * reduce_dtype_size((wagma_dtype)o->dtype);
}

static void run(rank *me) {
    const plan *p = me->shared;
    const wagma_options *options = &me->segment->options;
    place *where = place_of(me->rank);
    void *host = malloc(bytes_of(options)), *x = place_new(where, bytes_of(options));
    wagma_handle *h = rank_join(me, NULL);
    while (h && wagma_version(h) < p->departs[me->rank]) {
        const int64_t t = wagma_version(h);
        wagma_outcome o;
        contribute(options->dtype, host, me->rank, t, options->count);
        place_put(where, x, host, bytes_of(options));
        jitter(me);
        if (p->naps && random_below(me, 8) == 0)
            sleep_ms(0.25); /* many versions; the others do not sleep meanwhile */
        if (!EXPECT(call(me, h, x, weight_of(me->rank, t), &o) == WAGMA_OK, "rank %d: %s", me->rank,
                    wagma_last_error()) ||
            !check_call(me, p, t, place_look(where, x, bytes_of(options)), &o))
            break;
    }
    EXPECT(wagma_close(h) == WAGMA_OK, "rank %d: %s", me->rank, wagma_last_error());
    wagma_free(h);
    place_free(where, x);
    free(host);
    EXPECT(!places_trouble(), "rank %d: %s", me->rank, places_trouble());
}

static wagma_options graph_options(int size, int graph, int neighbors, int64_t count) {
    wagma_options o = options_of(size, 0, 0, count);
    o.grace = -1;
    o.graph = graph;
    o.neighbors = neighbors;
    return o;
}

static void run_team(enum kind kind, const wagma_options *o, plan *p) {
    places_begin(o->size, (uint64_t)o->count, bytes_of(o));
    team_join_clean(team_start(kind, o, run, p));
    places_end();
    CHECK(expectations_failed() == 0, "P=%d graph %d n=%d, %" PRId64 " elements, %s", o->size,
          o->graph, o->neighbors, o->count, kind_name[kind]);
}

static void all_stay(plan *p, int64_t versions) {
    for (int r = 0; r < RANKS_MAX; r++)
        p->departs[r] = versions;
}

/* Small ones go with the messages, larger ones behind them. */
static const int64_t counts[] = {0, 1, 17, 300, 9000};
enum { COUNTS = sizeof counts / sizeof *counts };

static void test_every_version(void) {
    for (int size = 1; size <= 8; size++)
        for (int neighbors = 0; neighbors <= graph_neighbors_most(size); neighbors++)
            for (int kind = THREADS; kind <= MESSAGES; kind += MESSAGES - THREADS) {
                const int graph = neighbors ? WAGMA_GRAPH_EXPONENTIAL : WAGMA_GRAPH_RING;
                const int round = size + neighbors + kind;
                wagma_options o = graph_options(size, graph, neighbors, counts[round % COUNTS]);
                plan p = {.naps = round % 3 == 0};
                o.average = round / 2 % 2;
                o.dtype = round / 3 % 2 ? WAGMA_F32 : WAGMA_F64;
                all_stay(&p, (o.count > 1000 ? 16 : 48) / SLOWDOWN + 4);
                run_team((enum kind)kind, &o, &p);
            }
}

static void test_processes(void) {
    for (int size = 2; size <= 5; size++)
        for (int neighbors = 0; neighbors <= graph_neighbors_most(size); neighbors++) {
            const int graph = neighbors ? WAGMA_GRAPH_EXPONENTIAL : WAGMA_GRAPH_RING;
            wagma_options o = graph_options(size, graph, neighbors, 9000);
            plan *p = shared_memory(sizeof *p);
            all_stay(p, 48 / SLOWDOWN + 4);
            run_team(PROCESSES, &o, p);
        }
}

/* Everybody leaves at a version of its own; the last one is alone for long. */
static void test_departures(void) {
    for (int size = 2; size <= 7; size++)
        for (int neighbors = 0; neighbors <= graph_neighbors_most(size); neighbors++)
            for (int kind = THREADS; kind <= MESSAGES; kind += MESSAGES - THREADS) {
                const int graph = neighbors ? WAGMA_GRAPH_EXPONENTIAL : WAGMA_GRAPH_RING;
                const int round = size + neighbors;
                wagma_options o =
                    graph_options(size, graph, neighbors, counts[(round + kind) % COUNTS]);
                plan p = {.naps = round % 2};
                o.average = round % 2;
                for (int r = 0; r < size; r++)
                    p.departs[r] =
                        (r * 3 + round) % size * (20 / SLOWDOWN + 3) + (round % 3 ? 1 : 0);
                run_team((enum kind)kind, &o, &p);
            }
}

/* ---- one thread decides who calls when ------------------------------------------------------- */

static void start_one(cast *c, int r, double *x, double value) {
    *x = value;
    const int status = wagma_start(c->handle[r], x, 1, 0, NULL);
    EXPECT(status == WAGMA_OK || status == WAGMA_INPROGRESS, "rank %d: %s", r, wagma_last_error());
}

static void finish_one(cast *c, int r, int64_t version, double *x, double wanted) {
    wagma_outcome o;
    if (wagma_version(c->handle[r]) == version)
        EXPECT(wagma_finish(c->handle[r], x, &o) == WAGMA_OK, "rank %d: %s", r, wagma_last_error());
    EXPECT(*x == wanted, "rank %d has %g at version %" PRId64 " instead of %g", r, *x, version,
           wanted);
}

/* Each of four ranks sends one ahead at even versions and two ahead at odd ones. Rank 1 publishes
 * version 0 and does not come back: rank 0 can take version 1, but not publish version 2 in the
 * place of the version 0 that rank 1 has not read. */
static void check_window(int messages) {
    wagma_options options = graph_options(4, WAGMA_GRAPH_EXPONENTIAL, 1, 1);
    double x[4];
    cast c;
    messages_for_threads = messages;
    options.average = 1;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    x[1] = 20;
    CHECK(wagma_post(c.handle[1], &x[1], 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    start_one(&c, 0, &x[0], 10);
    start_one(&c, 2, &x[2], 30);
    start_one(&c, 3, &x[3], 40);
    finish_one(&c, 0, 0, &x[0], 25);
    finish_one(&c, 2, 0, &x[2], 25);
    finish_one(&c, 3, 0, &x[3], 35);
    start_one(&c, 0, &x[0], 110);
    start_one(&c, 2, &x[2], 130);
    finish_one(&c, 0, 1, &x[0], 120);
    finish_one(&c, 2, 1, &x[2], 120);
    x[0] = 210;
    CHECK(wagma_start(c.handle[0], &x[0], 1, 0, NULL) == WAGMA_INPROGRESS, "past its reader");
    REFUSED(wagma_wait(c.handle[0], &x[0], 0.05, NULL), WAGMA_INPROGRESS, "window",
            "for rank 1, which");
    finish_one(&c, 1, 0, &x[1], 15); /* 10 and 20, not 210 */
    start_one(&c, 3, &x[3], 140);
    start_one(&c, 1, &x[1], 120);
    finish_one(&c, 3, 1, &x[3], 130);
    finish_one(&c, 1, 1, &x[1], 130);
    start_one(&c, 1, &x[1], 220);
    start_one(&c, 2, &x[2], 230);
    start_one(&c, 3, &x[3], 240);
    finish_one(&c, 0, 2, &x[0], 225);
    finish_one(&c, 1, 2, &x[1], 215);
    finish_one(&c, 2, 2, &x[2], 225);
    finish_one(&c, 3, 2, &x[3], 235);
    cast_close(&c);
}

static void test_window(void) {
    for (int messages = 0; messages < 2; messages++)
        check_window(messages);
    messages_for_threads = 0;
    CHECK(expectations_failed() == 0, "see above");
}

/* What a graph refuses leaves the handle as it is. */
static void check_refusals(int messages) {
    wagma_options options = graph_options(2, WAGMA_GRAPH_RING, 1, 1);
    double x = 1, y = 3;
    void *buffer;
    cast c;
    messages_for_threads = messages;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    REFUSED(wagma_sync(c.handle[0], &x, 1, NULL), WAGMA_EINVAL, "graph", "quorum all");
    REFUSED(wagma_post(c.handle[0], &x, 1, 1), WAGMA_EINVAL, "graph");
    REFUSED(wagma_allreduce(c.handle[0], &x, -1, NULL), WAGMA_EINVAL, "weight=-1");
    REFUSED(wagma_next_contribution(c.handle[0], &buffer), WAGMA_EINVAL, "graph");
    EXPECT(wagma_shared_array(c.handle[0]) == NULL && strstr(wagma_last_error(), "graph"), "%s",
           wagma_last_error());
    EXPECT(wagma_version(c.handle[0]) == 0, "it went on");
    start_one(&c, 0, &x, 1);
    start_one(&c, 1, &y, 3);
    finish_one(&c, 0, 0, &x, 2);
    finish_one(&c, 1, 0, &y, 2);
    cast_close(&c);
}

static void test_refusals(void) {
    for (int messages = 0; messages < 2; messages++)
        check_refusals(messages);
    messages_for_threads = 0;
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    if (SEES_PROCESSES) /* at first, when there is little memory for fork() to copy */
        RUN(test_processes);
    RUN(test_every_version);
    RUN(test_departures);
    if (!arrays_on_devices) { /* one thread has arrays in host memory */
        RUN(test_window);
        RUN(test_refusals);
    }
    return check_summary();
}
