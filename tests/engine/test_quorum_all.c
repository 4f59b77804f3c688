/* Quorum "all": sums that tell which version of which rank they hold. No barriers: ranks run as far
 * ahead of each other as the groups let them. */
/* short run: c */
#define _GNU_SOURCE /* pthread_setaffinity_np */
#include "check.h"
#include "protocol/quorum_all.h"
#include "shm/quorum_all/record.h"
#include "periodic.h"
#include "ranks.h"
#include "protocol/topology.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { GLANCES = 20000 };

typedef struct plan {
    wagma_options options;
    int versions;
    int departs[RANKS_MAX]; /* version before which the rank closes; 0: never */
    int both_arrays;        /* private and shared arrays in turn */
    int lag;                /* every so many versions the members of rank 0's group come late */
} plan;

enum { DIGITS = 63 }; /* and so many elements, after which arrays repeat */

/* One digit of base 64 per rank (from 8 on, ranks share them): the sum is exact and holds every
 * contributor's version. */
static double digit(int rank, int64_t version, int64_t i) {
    return ldexp((double)((version * 5 + rank / 8 + i) % DIGITS + 1), 6 * (rank % 8));
}

static void contribute(double *x, int rank, int64_t version, int64_t count) {
    for (int64_t i = 0; i < count && i < DIGITS; i++)
        x[i] = digit(rank, version, i);
    periodic_repeat(x, DIGITS * sizeof *x, (size_t)count * sizeof *x);
}

static int check_sum(const double *x, int rank, int64_t version, const int32_t *members, int n,
                     int64_t count) {
    const int64_t enough = periodic_enough(x, sizeof *x, DIGITS, count);
    for (int64_t i = 0; i < enough; i++) {
        double expected = 0;
        for (int k = 0; k < n; k++)
            expected += digit(members[k], version, i);
        REQUIRE(x[i] == expected, "rank %d version %ld element %ld: %.0f instead of %.0f", rank,
                (long)version, (long)i, x[i], expected);
    }
    return 0;
}

static int members_of(const plan *p, int rank, int64_t t, int sync, int32_t *members) {
    const wagma_options *o = &p->options;
    int n = 0, present = 0;
    int32_t group[RANKS_MAX];
    if (sync)
        for (n = 0; n < o->size; n++)
            group[n] = n;
    else
        n = topology_group(rank, o->size, o->group_size, t, group);
    for (int k = 0; k < n; k++)
        if (!p->departs[group[k]] || t < p->departs[group[k]])
            members[present++] = group[k];
    return present;
}

static int lags(const plan *p, int rank, int64_t t) {
    const wagma_options *o = &p->options;
    return p->lag && t % p->lag == p->lag - 1 &&
           topology_group_index(rank, o->size, o->group_size, t) ==
               topology_group_index(0, o->size, o->group_size, t);
}

static int check_outcome(const wagma_outcome *out, int64_t t, const int32_t *members, int n) {
    REQUIRE(out->version == t && !out->late && out->merged == 1 && out->skipped == 0,
            "version %ld instead of %ld, late %d, merged %d", (long)out->version, (long)t,
            out->late, out->merged);
    REQUIRE(out->contributors_count == n && out->weight == n, "t=%ld: %d of %d contributors",
            (long)t, out->contributors_count, n);
    for (int k = 0; k < n; k++)
        REQUIRE(out->contributors[k] == members[k] && out->versions[k] == t, "t=%ld k=%d", (long)t,
                k);
    return 0;
}

static int sums(wagma_handle *h, int rank, void *context) {
    const plan *p = context;
    int64_t count = p->options.count, period = p->options.sync_period;
    double *own = malloc((size_t)(count + 1) * sizeof *own);
    unsigned seed = (unsigned)rank * 7919 + 1;
    int result = 0;
    for (int64_t t = 0; t < p->versions && result == 0; t++) {
        int32_t members[RANKS_MAX];
        wagma_outcome out;
        int sync = period && (t + 1) % period == 0;
        int explicit_sync = p->versions > 20 && t % 17 == 11;
        double *x = p->both_arrays && (t + rank) % 3 == 0 ? own : wagma_shared_array(h);
        if (p->departs[rank] && t == p->departs[rank])
            break;
        if (lags(p, rank, t))
            usleep(10000);
        else if (!p->lag && rand_r(&seed) % 16 == 0)
            usleep((unsigned)rand_r(&seed) % 300);
        contribute(x, rank, t, count);
        int status = explicit_sync ? wagma_sync(h, x, 1, &out) : wagma_allreduce(h, x, 1, &out);
        if (status != WAGMA_OK)
            fprintf(stderr, "  rank %d: %s\n", rank, wagma_last_error());
        int n = members_of(p, rank, t, sync || explicit_sync, members);
        result = status != WAGMA_OK || check_outcome(&out, t, members, n) != 0 ||
                 check_sum(x, rank, t, members, n, count) != 0;
    }
    free(own);
    return result;
}

static plan make_plan(int size, int group_size, int64_t count, int versions) {
    plan p = {ranks_options(size, group_size, WAGMA_F64, count), versions, {0}, 1, 0};
    p.options.average = 0;
    return p;
}

static void every_group_size(enum kind kind, int most, int64_t count, int versions) {
    for (int size = 1; size <= most; size++)
        for (int group = 1; group <= size; group++) {
            if (SLOWDOWN > 4 && size > 4 && (size + group) % 4)
                continue; /* some of the larger ones */
            plan p = make_plan(size, group, count, versions);
            p.options.sync_period = (size + group) % 3 ? 7 : 0;
            CHECK(ranks_run(kind, &p.options, sums, &p) == 0, "P=%d S=%d count=%ld", size, group,
                  (long)count);
        }
}

static void test_no_elements(void) {
    every_group_size(THREADS, 8, 0, 30);
}
static void test_one_element(void) {
    every_group_size(THREADS, 8, 1, 60);
}
static void test_three_elements(void) {
    every_group_size(THREADS, 8, 3, 60);
}
static void test_a_record_of_many_lines(void) {
    every_group_size(THREADS, 8, 250, 30);
}
static void test_thousand_elements(void) {
    every_group_size(THREADS, 8, 1000, 30);
}
static void test_slices(void) {
    every_group_size(THREADS, 6, 9001, 30);
}
static void test_processes(void) {
    every_group_size(PROCESSES, 5, 3, 60);
    every_group_size(PROCESSES, 5, 9001, 20);
}

static void test_large(void) {
    static const int shapes[][2] = {{2, 2}, {3, 2}, {8, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t count = (SLOWDOWN > 4 ? 1 << 18 : 1 << 20) + 1;
        plan p = make_plan(shapes[i][0], shapes[i][1], count, 3);
        CHECK(ranks_run(THREADS, &p.options, sums, &p) == 0, "P=%d", shapes[i][0]);
    }
}

/* Ranks leave one after the other, the leaders of the groups first. */
static void test_departures(void) {
    static const int64_t counts[] = {3, 250, 9001};
    for (int c = 0; c < 3; c++)
        for (int size = 2; size <= 8; size += 2)
            for (int group = 2; group <= size; group += 2) {
                plan p = make_plan(size, group, counts[c], 40);
                for (int r = 0; r < size - 1; r++)
                    p.departs[r] = 3 + 4 * r;
                CHECK(ranks_run(THREADS, &p.options, sums, &p) == 0, "P=%d S=%d count=%ld", size,
                      group, (long)counts[c]);
            }
}

/* P=18, S=3: after the leader of {0, a, b} departed, {0, c, d} gets two versions ahead of a and b,
 * so that the words of rank 0 must not serve both groups. */
static void test_departed_leader(void) {
    plan p = make_plan(18, 3, 9001, 30);
    p.departs[0] = 1;
    p.both_arrays = 0; /* private ones would pass in chunks, which need no leader */
    p.lag = 3;
    CHECK(ranks_run(THREADS, &p.options, sums, &p) == 0, "see above");
}

/* A rank that publishes and departs at once: whoever looks while it does, finds its contribution.
 */
typedef struct glance {
    wagma_segment *s;
    cpu_set_t cores;
    _Atomic int64_t go, looked; /* version */
} glance;

/* To the first or second of these: two threads that yield to each other on one never look at once.
 */
static void go_to_core(const cpu_set_t *cores, int which) {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int k = 0; k < CPU_SETSIZE; k++)
        if (CPU_ISSET(k, cores) && which-- == 0)
            CPU_SET(k, &one);
    if (CPU_COUNT(&one))
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

static void *publish_and_depart(void *argument) {
    glance *g = argument;
    go_to_core(&g->cores, 1);
    for (int64_t t = 0; t < GLANCES; t++) {
        while (atomic_load(&g->go) < t)
            sched_yield();
        atomic_store(&quorum_all_record_of(g->s, 1, (int)(t & 1))->stamp, quorum_all_stamp(t, 0));
        segment_leave(g->s, 1, SEGMENT_DEPARTED);
        while (atomic_load(&g->looked) < t)
            sched_yield();
    }
    return NULL;
}

static void test_departure_is_seen_alike(void) {
    wagma_options o = ranks_options(2, 0, WAGMA_F64, 1);
    glance g = {.go = -1, .looked = -1};
    pthread_t thread;
    int missed = 0;
    int32_t ranks[2] = {0, 1}, group[2][2], present[2], contributors[2], missing[2];
    int64_t seen_at[2];
    double weights[2];
    struct quorum_all_local l = {.seen = seen_at,
                                 .group = {group[0], group[1]},
                                 .present = present,
                                 .contributors = contributors,
                                 .weights = weights,
                                 .missing = missing};
    CHECK(wagma_segment_create(&o, NULL, &g.s) == WAGMA_OK, "%s", wagma_last_error());
    const struct quorum_all_context c = {
        .memory = (struct quorum_all_memory *)g.s, .size = 2, .window = GLANCES};
    pthread_getaffinity_np(pthread_self(), sizeof g.cores, &g.cores);
    pthread_create(&thread, NULL, publish_and_depart, &g);
    go_to_core(&g.cores, 0);
    for (int64_t t = 0; t < GLANCES; t++) {
        enum quorum_all_action action;
        atomic_store(&segment_presence_of(g.s, 1)->state, SEGMENT_READY);
        quorum_all_init(&c, &l);
        quorum_all_begin(&l, t, 0, ranks, 2, 0);
        int looks = 0; /* many at once, and the core for the other one if that has no other */
        do {
            action = quorum_all_run(&c, &l); /* up to the record, then publishes and looks */
            if (action == QUORUM_ALL_WRITE)
                atomic_store(&g.go, t);
            else if (action == QUORUM_ALL_WAIT && ++looks % 2048 == 0)
                sched_yield();
        } while (action == QUORUM_ALL_WRITE || action == QUORUM_ALL_WAIT);
        missed += l.present_n != 2;
        while (atomic_load(&segment_presence_of(g.s, 1)->state) != SEGMENT_DEPARTED)
            sched_yield();
        atomic_store(&g.looked, t);
    }
    pthread_join(thread, NULL);
    pthread_setaffinity_np(pthread_self(), sizeof g.cores, &g.cores);
    wagma_segment_close(g.s);
    CHECK(missed == 0, "%d of %d contributions were overlooked", missed, GLANCES);
}

/* ---- weights --------------------------------------------------------------------------------- */

static double weight_of(int rank, int64_t t) {
    return t % 5 == 4 ? 0 : (double)((rank + t) % 3) * 0.75;
}
static double value_of(int rank, int64_t t, int64_t i) {
    return 1.0 / (double)(rank + 3 * (i % PERIODIC_ELEMENTS) + t + 1);
}

static int weighted(wagma_handle *h, int rank, void *context) {
    const wagma_options *o = context;
    double x[3000];
    for (int64_t t = 0; t < 50; t++) {
        double divisor = 0;
        wagma_outcome out;
        int contributors = 0;
        for (int64_t i = 0; i < periodic_head(o->count); i++)
            x[i] = weight_of(rank, t) == 0 ? NAN : value_of(rank, t, i);
        periodic_repeat(x, PERIODIC_ELEMENTS * sizeof *x, (size_t)o->count * sizeof *x);
        REQUIRE(wagma_allreduce(h, x, weight_of(rank, t), &out) == WAGMA_OK, "%s",
                wagma_last_error());
        for (int r = 0; r < o->size; r++) {
            divisor += weight_of(r, t);
            contributors += weight_of(r, t) != 0;
        }
        REQUIRE(out.weight == divisor && out.contributors_count == contributors && !out.late,
                "t=%ld", (long)t);
        REQUIRE(out.merged == (divisor != 0), "t=%ld merged %d", (long)t, out.merged);
        const int64_t enough = periodic_enough(x, sizeof *x, PERIODIC_ELEMENTS, o->count);
        for (int64_t i = 0; i < enough; i++) {
            double sum = 0;
            for (int r = 0; r < o->size; r++)
                if (weight_of(r, t) != 0)
                    sum += weight_of(r, t) * value_of(r, t, i);
            if (divisor == 0)
                REQUIRE(isnan(x[i]), "t=%ld: x was changed", (long)t);
            else
                REQUIRE(fabs(x[i] - sum / divisor) < 1e-14, "t=%ld: %g", (long)t, x[i]);
        }
    }
    return 0;
}

static void test_weights(void) {
    static const int64_t counts[] = {1, 7, 250, 3000};
    for (int c = 0; c < 4; c++)
        for (int size = 1; size <= 5; size++) {
            wagma_options o = ranks_options(size, 0, WAGMA_F64, counts[c]);
            CHECK(ranks_run(THREADS, &o, weighted, &o) == 0, "P=%d count=%ld", size,
                  (long)counts[c]);
        }
}

/* ---- agreement ------------------------------------------------------------------------------- */

enum { AGREEING = 5, ROUNDS = 40 };
typedef struct agreement {
    int64_t count;
    uint64_t digest[ROUNDS][AGREEING];
} agreement;

static int rounding(wagma_handle *h, int rank, void *context) {
    agreement *a = context;
    float *x = wagma_shared_array(h);
    for (int t = 0; t < ROUNDS; t++) {
        for (int64_t i = 0; i < periodic_head(a->count); i++)
            x[i] = 1.0f / (float)(1 + (rank * 31 + i * 7 + t) % PERIODIC_ELEMENTS);
        periodic_repeat(x, PERIODIC_ELEMENTS * sizeof *x, (size_t)a->count * sizeof *x);
        REQUIRE(wagma_allreduce(h, x, 1 + rank / 3.0, NULL) == WAGMA_OK, "%s", wagma_last_error());
        a->digest[t][rank] = digest_of(1, x, (size_t)a->count * sizeof *x);
    }
    return 0;
}

/* Every member gets the same bits, whoever computed them and how the work was cut. */
static void test_same_bits(void) {
    static agreement a;
    static const int64_t counts[] = {3, 500, 20011};
    for (int c = 0; c < 3; c++) {
        wagma_options o = ranks_options(AGREEING, 0, WAGMA_F32, counts[c]);
        a.count = counts[c];
        CHECK(ranks_run(THREADS, &o, rounding, &a) == 0, "count=%ld", (long)counts[c]);
        for (int t = 0; t < ROUNDS; t++)
            for (int r = 1; r < AGREEING; r++)
                CHECK(a.digest[t][r] == a.digest[t][0], "version %d: ranks 0 and %d", t, r);
    }
}

/* ---- the two halves of a call ---------------------------------------------------------------- */

static int halves(wagma_handle *h, int rank, void *context) {
    const wagma_options *o = context;
    const int32_t members[] = {0, 1, 2};
    double *x = wagma_shared_array(h);
    for (int64_t t = 0; t < 100; t++) {
        wagma_outcome out = {.version = -1};
        contribute(x, rank, t, o->count);
        int status = wagma_start(h, x, 1, 0, &out);
        REQUIRE(status == WAGMA_OK || status == WAGMA_INPROGRESS, "%s", wagma_last_error());
        if (status == WAGMA_INPROGRESS)
            REQUIRE(wagma_finish(h, x, &out) == WAGMA_OK, "%s", wagma_last_error());
        REQUIRE(out.version == t && wagma_version(h) == t + 1, "version %ld", (long)out.version);
        REQUIRE(check_sum(x, rank, t, members, o->size, o->count) == 0, "see above");
    }
    return 0;
}

static void test_start_and_finish(void) {
    static const int64_t counts[] = {1, 250, 9001};
    for (int c = 0; c < 3; c++) {
        wagma_options o = ranks_options(3, 0, WAGMA_F64, counts[c]);
        o.average = 0;
        CHECK(ranks_run(THREADS, &o, halves, &o) == 0, "count=%ld", (long)counts[c]);
    }
}

/* ---- the window ------------------------------------------------------------------------------ */

typedef struct race {
    wagma_options options;
    _Atomic int64_t called[RANKS_MAX]; /* versions that each rank has called */
} race;

static int run_ahead(wagma_handle *h, int rank, void *context) {
    race *r = context;
    double x[2] = {0};
    for (int64_t t = 0; t < 300; t++) {
        if (rank == 1 && t % 32 == 0)
            usleep(1000);
        atomic_store(&r->called[rank], t + 1);
        REQUIRE(wagma_allreduce(h, x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
        for (int q = 0; q < r->options.size; q++)
            REQUIRE(atomic_load(&r->called[q]) - 1 >= t - r->options.window,
                    "rank %d at %ld, rank %d at %ld", rank, (long)t, q,
                    (long)atomic_load(&r->called[q]) - 1);
    }
    return 0;
}

/* Groups of one never meet: only the window holds them together. */
static void test_window(void) {
    for (int window = 1; window <= 5; window += 4) {
        race r = {ranks_options(3, 1, WAGMA_F64, 2), {0}};
        r.options.window = window;
        CHECK(ranks_run(THREADS, &r.options, run_ahead, &r) == 0, "window %d", window);
    }
}

int main(void) {
    RUN(test_no_elements);
    RUN(test_one_element);
    RUN(test_three_elements);
    RUN(test_a_record_of_many_lines);
    RUN(test_thousand_elements);
    RUN(test_slices);
    if (SEES_PROCESSES)
        RUN(test_processes);
    RUN(test_large);
    RUN(test_departures);
    RUN(test_departed_leader);
    RUN(test_departure_is_seen_alike);
    RUN(test_weights);
    RUN(test_same_bits);
    RUN(test_start_and_finish);
    RUN(test_window);
    return check_summary();
}
