/* Ranks that run freely under every policy of starting, missing and being late: what each call gave
 * is decoded from its sums, and the ranks' results are compared afterwards. */
#include "check.h"
#include "contribution.h"
#include "support.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { VERSIONS_MAX = 400 };

typedef struct run {
    int64_t versions;
    int out_of_place; /* every other call */
    _Atomic int64_t late, skipped;
    uint64_t digest[RANKS_MAX][VERSIONS_MAX]; /* ordered: of the result of a version; 0: none */
    /* carry, of x[0]: what rank r contributed, and what of it is in no result; results */
    double given[RANKS_MAX], pending[RANKS_MAX], taken[VERSIONS_MAX];
} run;

static run *shared;

/* Returns the elements of an array of several slices; over messages there are no slices. */
static int64_t long_count(int64_t count) {
    return messages_for_threads ? 5003 : count;
}

/* Results of `o` under "skip" and "carry": in order, each once; x is the newest. */
static void expect_ordered(rank *me, const double *x, const wagma_outcome *o, int64_t t) {
    run *g = me->shared;
    const size_t bytes = me->segment->bytes_n;
    EXPECT(o->results_count >= 1 && o->version == t, "%d results of version %" PRId64,
           o->results_count, o->version);
    for (int k = 0; k < o->results_count && t + k < VERSIONS_MAX; k++) {
        EXPECT(o->results[k] && g->digest[me->rank][t + k] == 0, "rank %d version %" PRId64,
               me->rank, t + k);
        g->digest[me->rank][t + k] = digest_of(1, o->results[k], bytes);
        if (me->rank == 0)
            g->taken[t + k] = *(const double *)o->results[k];
    }
    if (x)
        EXPECT(memcmp(x, o->results[o->results_count - 1], bytes) == 0, "x is not the newest");
    const int64_t newest = t + o->results_count - 1;
    for (int i = 0; i < o->contributors_count; i++)
        EXPECT(o->versions[i] == newest, "rank %d: version %" PRId64 " in the result of %" PRId64,
               me->rank, o->versions[i], newest);
}

static void run_freely(rank *me) {
    run *g = me->shared;
    const wagma_options *o = &me->segment->options;
    const size_t bytes = me->segment->bytes_n;
    double *x = malloc(bytes + 1);
    contribute(o->dtype, x, me->rank, -1, o->count);
    wagma_handle *h = rank_join(me, x);
    while (h && wagma_version(h) < g->versions) {
        const int64_t t = wagma_version(h);
        const int place = g->out_of_place && (t + me->rank) % 2;
        wagma_outcome outcome;
        void *array = x;
        jitter(me);
        if (place && !EXPECT(wagma_next_contribution(h, &array) == WAGMA_OK, "rank %d: %s",
                             me->rank, wagma_last_error()))
            break;
        contribute(o->dtype, array, me->rank, t, o->count);
        if (o->late == WAGMA_LATE_CARRY) /* many of them are added up: small, to be exact */
            *(double *)array = (double)((int64_t) * (double *)array & 0xFFFFF);
        g->given[me->rank] += *(const double *)array;
        const double own = *(const double *)array;
        const int status = wagma_allreduce(h, array, 1, &outcome);
        if (!EXPECT(status == WAGMA_OK, "rank %d: %s", me->rank, wagma_last_error()))
            break;
        atomic_fetch_add(&g->late, outcome.late);
        atomic_fetch_add(&g->skipped, outcome.skipped);
        if (o->late != WAGMA_LATE_STALE) {
            expect_ordered(me, place ? NULL : x, &outcome, t);
            g->pending[me->rank] = outcome.late ? g->pending[me->rank] + own : 0;
            if (o->late == WAGMA_LATE_SKIP && !place)
                expect_result(me, x,
                              &(wagma_outcome){.version = outcome.version,
                                               .merged = outcome.merged,
                                               .weight = outcome.weight,
                                               .contributors_count = outcome.contributors_count,
                                               .contributors = outcome.contributors,
                                               .versions = outcome.versions});
            EXPECT(wagma_version(h) == t + outcome.results_count, "version %" PRId64,
                   wagma_version(h));
            continue;
        }
        EXPECT(wagma_version(h) == t + 1 + outcome.skipped && outcome.results_count == 0,
               "version %" PRId64 " after %" PRId64, wagma_version(h), t);
        EXPECT(!outcome.result == !(place && outcome.merged), "result");
        /* late, but its group is this rank alone: nothing is merged */
        const int alone = outcome.contributors_count == 1 && outcome.contributors[0] == me->rank &&
                          outcome.versions[0] == t;
        outcome.late &= !alone;
        if (!place || outcome.merged)
            expect_result(me, place ? outcome.result : x, &outcome);
    }
    wagma_close(h);
    wagma_free(h);
    free(x);
}

/* Runs it; how many calls were late. */
static int64_t free_run(enum kind kind, const wagma_options *o, int64_t versions,
                        int out_of_place) {
    memset(shared, 0, sizeof *shared);
    shared->versions = versions;
    shared->out_of_place = out_of_place;
    team *t = team_start(kind, o, run_freely, shared);
    if (t)
        team_join_clean(t);
    /* groups of all ranks: everybody has the same results, and all of them */
    for (int64_t v = 0; o->late != WAGMA_LATE_STALE && o->group_size == o->size && v < versions;
         v++)
        for (int r = 0; r < o->size; r++)
            EXPECT(shared->digest[r][v] && shared->digest[r][v] == shared->digest[0][v],
                   "version %" PRId64 " of rank %d", v, r);
    return shared->late;
}

static void test_skip(void) {
    for (int size = 2; size <= 5; size++)
        for (int quorum = 1; quorum < size; quorum++) {
            wagma_options o = options_of(size, size, quorum, size == 4 ? long_count(50021) : 33);
            o.late = WAGMA_LATE_SKIP;
            o.sync_period = size == 5 ? 7 : 0;
            const int64_t late = free_run(quorum % 2 ? THREADS : processes_if_seen(), &o,
                                          size == 4 ? 60 / SLOWDOWN : 300 / SLOWDOWN, 0);
            CHECK(expectations_failed() == 0, "P=%d quorum=%d: %" PRId64 " late", size, quorum,
                  late);
        }
}

static void test_skip_in_groups(void) {
    wagma_options o = options_of(6, 3, 1, 100);
    o.late = WAGMA_LATE_SKIP;
    o.window = 3;
    free_run(THREADS, &o, 300 / SLOWDOWN, 1);
    CHECK(expectations_failed() == 0, "see above");
}

/* What is delivered and what is still carried is all that was contributed. */
static void test_carry(void) {
    for (int majority = 0; majority < 2; majority++) {
        wagma_options o = options_of(4, 4, majority ? WAGMA_QUORUM_MAJORITY : 1, 5);
        o.late = WAGMA_LATE_CARRY;
        const int64_t late = free_run(THREADS, &o, 300 / SLOWDOWN, majority);
        double given = 0, taken = 0;
        for (int r = 0; r < o.size; r++) {
            given += shared->given[r];
            taken += shared->pending[r];
        }
        for (int v = 0; v < VERSIONS_MAX; v++)
            taken += shared->taken[v];
        EXPECT(given == taken && late > 0, "%.17g given, %.17g taken, %" PRId64 " late", given,
               taken, late);
        CHECK(expectations_failed() == 0, "majority %d", majority);
    }
}

static void test_forward(void) {
    for (int group = 2; group <= 4; group++) {
        wagma_options o =
            options_of(4, group, group == 4 ? 2 : 1, group == 3 ? long_count(50021) : 64);
        o.missed = WAGMA_MISSED_FAST_FORWARD;
        o.sync_period = 9;
        free_run(group == 2 ? THREADS : processes_if_seen(), &o,
                 group == 3 ? 90 / SLOWDOWN : 390 / SLOWDOWN, 0);
        CHECK(expectations_failed() == 0, "S=%d", group);
        o.sync_period = 0;
        o.window = 2;
        free_run(THREADS, &o, 120 / SLOWDOWN, 1);
        CHECK(expectations_failed() == 0, "S=%d, window 2", group);
    }
}

static void test_world(void) {
    for (int group = 1; group <= 4; group++)
        for (int forward = 0; forward < 2; forward++) {
            wagma_options o =
                options_of(5, group, 1 + group % 2, group == 3 ? long_count(20011) : 64);
            o.activation = WAGMA_ACTIVATION_WORLD;
            o.missed = forward;
            o.sync_period = forward ? 8 : 0;
            o.window = forward ? 0 : 3;
            free_run(forward ? THREADS : processes_if_seen(), &o,
                     group == 3 ? 80 / SLOWDOWN : 320 / SLOWDOWN, group == 2);
            CHECK(expectations_failed() == 0, "S=%d forward %d", group, forward);
        }
}

static void test_majority_and_groupings(void) {
    for (int grouping = WAGMA_GROUPING_DYNAMIC; grouping <= WAGMA_GROUPING_PAIRS; grouping++)
        for (int size = 4; size <= 5; size++) {
            wagma_options o = options_of(size, 2, WAGMA_QUORUM_MAJORITY, 64);
            o.grouping = grouping;
            o.seed = 5;
            o.sync_period = 11;
            free_run(THREADS, &o, 330 / SLOWDOWN, 0);
            CHECK(expectations_failed() == 0, "P=%d grouping %d", size, grouping);
        }
}

static void test_out_of_place(void) {
    for (int size = 2; size <= 4; size++) {
        wagma_options o =
            options_of(size, size == 4 ? 2 : size, 1, size == 3 ? long_count(50021) : 100);
        o.sync_period = size == 3 ? 0 : 10;
        free_run(size == 2 ? processes_if_seen() : THREADS, &o,
                 size == 3 ? 80 / SLOWDOWN : 400 / SLOWDOWN, 1);
        CHECK(expectations_failed() == 0, "P=%d", size);
    }
}

int main(void) {
    shared = shared_memory(sizeof *shared);
    RUN(test_skip);
    RUN(test_skip_in_groups);
    RUN(test_carry);
    RUN(test_forward);
    RUN(test_world);
    RUN(test_majority_and_groupings);
    RUN(test_out_of_place);
    return check_summary();
}
