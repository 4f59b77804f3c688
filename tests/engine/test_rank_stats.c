/* Every rank's counters, gathered at sync versions: what they count, and that all ranks get the
 * same. */
#include "check.h"
#include "ranks.h"
#include "shm/handle.h"

#include <inttypes.h>
#include <string.h>

static wagma_rank_stats gathered(const wagma_handle *h, int rank) {
    wagma_rank_stats stats = {.synced = INT64_MIN};
    EXPECT(wagma_gathered_stats(h, rank, &stats) == WAGMA_OK, "%s", wagma_last_error());
    return stats;
}

/* ---- by hand --------------------------------------------------------------------------------- */

/* Calls the next version of rank r; nobody may have to be waited for. */
static void call_next(cast *c, int r, int sync) {
    double x = r;
    const int status = wagma_start(c->handle[r], &x, 1, sync, NULL);
    EXPECT(status == WAGMA_OK, "rank %d: status %d %s", r, status,
           status < 0 ? wagma_last_error() : "");
}

/* Both ranks of a cast meet in sync(x), rank 0 first. */
static void meet(cast *c) {
    double x = 0;
    EXPECT(wagma_start(c->handle[0], &x, 1, 1, NULL) == WAGMA_INPROGRESS, "it went alone");
    call_next(c, 1, 1);
    EXPECT(wagma_finish(c->handle[0], &x, NULL) == WAGMA_OK, "%s", wagma_last_error());
}

static void expect_counters(const wagma_rank_stats *s, int64_t version, int64_t late,
                            int64_t unmerged, int64_t used, int64_t staleness) {
    EXPECT(s->synced == version && s->version == version && s->calls == version && !s->departed,
           "synced at %" PRId64 ", version %" PRId64 ", %" PRId64 " calls, departed %d", s->synced,
           s->version, s->calls, s->departed);
    EXPECT(s->late == late && s->unmerged == unmerged && s->used == used,
           "%" PRId64 " late, %" PRId64 " unmerged, %" PRId64 " used", s->late, s->unmerged,
           s->used);
    EXPECT(s->staleness == staleness, "staleness %" PRId64, s->staleness);
}

static void expect_same(const cast *c) {
    for (int r = 0; r < c->size; r++) {
        const wagma_rank_stats a = gathered(c->handle[0], r);
        for (int q = 1; q < c->size; q++) {
            const wagma_rank_stats b = gathered(c->handle[q], r);
            EXPECT(memcmp(&a, &b, sizeof a) == 0, "rank %d knows something else of rank %d", q, r);
        }
    }
}

/* Rank 0 goes five versions ahead. Rank 1's first contribution, of "version -1", is in the version
 * 4 that it merges: 5 versions behind. */
static void test_counters(void) {
    const wagma_options options = options_of(2, 2, 1, 1);
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    for (int t = 0; t < 5; t++)
        call_next(&c, 0, 0);
    for (int t = 0; t < 6; t++)
        call_next(&c, 1, 0);
    call_next(&c, 0, 0); /* late for version 5 */
    for (int r = 0; r < 2; r++)
        EXPECT(gathered(c.handle[r], 1).synced == -1 && gathered(c.handle[r], 1).calls == 0,
               "before the first sync version");
    meet(&c);
    wagma_rank_stats s[2] = {gathered(c.handle[0], 0), gathered(c.handle[0], 1)};
    expect_counters(&s[0], 6, 1, 0, 6, 1); /* its version 4, in version 5 */
    expect_counters(&s[1], 6, 5, 4, 2, 5);
    EXPECT(s[1].staleness_max == 5, "%" PRId64, s[1].staleness_max);
    EXPECT(s[0].behind == 0 && s[1].behind > 0, "behind %g %g", s[0].behind, s[1].behind);
    EXPECT(s[0].compute > 0 && s[0].compute_median > 0 && s[0].compute_median <= s[0].compute,
           "compute %g, median %g", s[0].compute, s[0].compute_median);
    expect_same(&c);

    for (int r = 0; r < 2; r++)
        call_next(&c, r, 0);
    const wagma_rank_stats later = gathered(c.handle[1], 0);
    EXPECT(memcmp(&later, &s[0], sizeof later) == 0, "they change between sync versions");
    for (int k = 0; k < 3; k++) /* sync versions next to each other */
        meet(&c);
    s[0] = gathered(c.handle[1], 0);
    expect_counters(&s[0], 10, 1, 0, 10, 1);
    expect_same(&c);
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* The last counters of a departed rank stay, marked; a handle that is closed keeps what it has. */
static void depart(int quorum) {
    const wagma_options options = options_of(3, 3, quorum, 1);
    double x = 1;
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    CHECK(wagma_close(c.handle[2]) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(gathered(c.handle[2], 2).synced == -1, "rank 2 took no sync version");
    for (int k = 0; k < 4; k++) {
        meet(&c);
        expect_same(&(cast){.size = 2, .handle = {c.handle[0], c.handle[1]}});
        const wagma_rank_stats s = gathered(c.handle[k & 1], 2);
        EXPECT(s.departed && s.calls == 0 && s.version == 0 && s.synced == k,
               "departed %d at version %" PRId64 ", %" PRId64 " calls", s.departed, s.version,
               s.calls);
        EXPECT(!gathered(c.handle[0], 1).departed, "rank 1 is there");
    }
    CHECK(wagma_close(c.handle[1]) == WAGMA_OK, "%s", wagma_last_error());
    for (int k = 4; k < 7; k++) {
        EXPECT(wagma_sync(c.handle[0], &x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
        const wagma_rank_stats s = gathered(c.handle[0], 1);
        EXPECT(s.departed && s.calls == 4 && s.version == 4 && s.synced == k,
               "departed %d at version %" PRId64 ", %" PRId64 " calls", s.departed, s.version,
               s.calls);
        EXPECT(s.behind == gathered(c.handle[1], 1).behind, "behind a sync that it did not take");
    }
    EXPECT(gathered(c.handle[1], 0).synced == 3, "rank 1 took no more");
    cast_close(&c);
    CHECK(expectations_failed() == 0, "quorum %d", quorum);
}

static void test_departed(void) {
    depart(1);
    depart(0);
}

/* The median is that of the last 32 intervals, however many there were since the last sync version.
 */
static void test_median_is_recent(void) {
    for (int sync = 0; sync <= 1; sync++) {
        const wagma_options options = options_of(1, 1, 1, 1);
        double x = 0;
        cast c;
        CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
        for (int t = 0; t < 100; t++) {
            EXPECT(wagma_start(c.handle[0], &x, 1, sync, NULL) == WAGMA_OK, "%s",
                   wagma_last_error());
            if (t < 30 || (t >= 60 && t < 77))
                sleep_ms(1);
        }
        EXPECT(wagma_sync(c.handle[0], &x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
        wagma_rank_stats s = gathered(c.handle[0], 0);
        EXPECT(s.compute_median < 1e-3, "few of the last 32 are long: %g", s.compute_median);
        for (int t = 0; t < 8; t++) {
            sleep_ms(1);
            EXPECT(wagma_sync(c.handle[0], &x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
        }
        EXPECT(gathered(c.handle[0], 0).compute_median < 1e-3, "few of the last 32 are long");
        for (int t = 0; t < 9; t++)
            sleep_ms(1), wagma_start(c.handle[0], &x, 1, sync, NULL);
        EXPECT(wagma_sync(c.handle[0], &x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
        s = gathered(c.handle[0], 0);
        EXPECT(s.compute_median >= 1e-3, "most of the last 32 are long: %g", s.compute_median);
        EXPECT(s.compute >= 64e-3, "64 long ones: %g", s.compute);
        cast_close(&c);
    }
    CHECK(expectations_failed() == 0, "see above");
}

static void test_wrong_arguments(void) {
    const wagma_options options = options_of(2, 2, 1, 1);
    wagma_rank_stats s;
    cast c;
    CHECK(wagma_gathered_stats(NULL, 0, &s) == WAGMA_EINVAL, "no handle");
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    for (int r = -1; r <= 2; r += 3) {
        EXPECT(wagma_gathered_stats(c.handle[0], r, &s) == WAGMA_EINVAL, "rank %d", r);
        EXPECT(strstr(wagma_last_error(), "must be in 0..1"), "%s", wagma_last_error());
    }
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- ranks that run by themselves ------------------------------------------------------------ */

enum { SYNCS = 24, PERIOD = 2, MOST = 6 };

typedef struct logs {
    int64_t departs[MOST];                    /* versions that the rank takes */
    wagma_rank_stats seen[MOST][SYNCS][MOST]; /* [by][sync][of] */
} logs;

static void run_and_log(rank *me) {
    logs *l = me->shared;
    double x[2] = {0};
    wagma_handle *h = rank_join(me, NULL);
    while (h && wagma_version(h) < l->departs[me->rank]) {
        const int64_t t = wagma_version(h);
        jitter(me);
        if (!EXPECT(wagma_allreduce(h, x, t % 3, NULL) == WAGMA_OK, "rank %d: %s", me->rank,
                    wagma_last_error()))
            break;
        if ((t + 1) % PERIOD == 0)
            for (int r = 0; r < me->size; r++)
                l->seen[me->rank][t / PERIOD][r] = gathered(h, r);
    }
    wagma_close(h);
    wagma_free(h);
}

static void check_logs(const logs *l, int size) {
    for (int k = 0; k < SYNCS; k++) {
        const int64_t t = (k + 1) * PERIOD - 1;
        for (int by = 0; by < size; by++)
            for (int of = 0; of < size && l->departs[by] > t; of++) {
                const wagma_rank_stats *s = &l->seen[by][k][of];
                const int departed = l->departs[of] <= t;
                EXPECT(memcmp(s, &l->seen[size - 1][k][of], sizeof *s) == 0,
                       "sync %d: ranks %d and %d know different things of rank %d", k, by, size - 1,
                       of);
                EXPECT(s->synced == t && s->departed == departed, "sync %d: rank %d", k, of);
                const int64_t version = departed ? l->departs[of] : t;
                EXPECT(s->version == version && s->calls == version,
                       "sync %d: rank %d, version %" PRId64 ", %" PRId64 " calls", k, of,
                       s->version, s->calls);
            }
    }
}

/* With every quorum, under jitter, and while ranks depart; threads for TSan, processes for the
 * rest. */
static void test_all_ranks_get_the_same(void) {
    for (int size = 1; size <= MOST; size++)
        for (int quorum = 0; quorum <= (size > 1); quorum++)
            for (enum kind kind = THREADS; kind <= processes_if_seen(); kind++) {
                logs *l = shared_memory(sizeof *l);
                wagma_options o = options_of(size, size > 4 ? 3 : size, quorum, 2);
                o.sync_period = PERIOD;
                for (int r = 0; r < size; r++) /* the last one stays to the end */
                    l->departs[r] = r == size - 1 ? SYNCS * PERIOD : (r * 7 + size * 5) % 40;
                team_join_clean(team_start(kind, &o, run_and_log, l));
                check_logs(l, size);
                CHECK(expectations_failed() == 0, "P=%d quorum=%d, %s", size, quorum,
                      kind_name[kind]);
            }
}

enum { SLOW = 1, STEPS = 12 };
static const double slow_ms = 5;

static int run_slowly(wagma_handle *h, int rank, void *context) {
    wagma_rank_stats *seen = context;
    double x = 0;
    for (int t = 0; t < STEPS; t++) {
        if (rank == SLOW)
            sleep_ms(slow_ms);
        REQUIRE(wagma_allreduce(h, &x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
    }
    if (rank == SLOW)
        sleep_ms(slow_ms);
    for (int r = 0; r < 3 && rank == SLOW && h->options.quorum == 1; r++)
        while (r != SLOW && published(handle_segment(h), r) < STEPS) /* it is the last to come */
            sleep_ms(0.2);
    REQUIRE(wagma_sync(h, &x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
    for (int r = 0; r < 3 && rank == 0; r++)
        seen[r] = gathered(h, r);
    return 0;
}

/* Time spent waiting for the slow rank is not compute of the others. */
static void test_slow_rank(void) {
    for (int quorum = 0; quorum <= 1; quorum++) {
        wagma_rank_stats *seen = shared_memory(3 * sizeof *seen);
        const wagma_options options = options_of(3, 3, quorum, 1);
        CHECK(ranks_run(processes_if_seen(), &options, run_slowly, seen) == 0, "quorum %d", quorum);
        EXPECT(seen[SLOW].compute >= STEPS * slow_ms * 1e-3, "%g", seen[SLOW].compute);
        EXPECT(seen[SLOW].compute_median >= slow_ms * 1e-3, "%g", seen[SLOW].compute_median);
        for (int r = 0; r < 3; r += 2) {
            EXPECT(seen[r].compute_median < seen[SLOW].compute_median / 2, "rank %d: %g", r,
                   seen[r].compute_median);
            if (quorum) /* otherwise the last step alone decides */
                EXPECT(seen[r].behind < seen[SLOW].behind, "rank %d: %g", r, seen[r].behind);
        }
        CHECK(expectations_failed() == 0, "quorum %d", quorum);
    }
}

int main(void) {
    RUN(test_counters);
    RUN(test_departed);
    RUN(test_median_is_recent);
    RUN(test_wrong_arguments);
    RUN(test_all_ranks_get_the_same);
    RUN(test_slow_rank);
    return check_summary();
}
