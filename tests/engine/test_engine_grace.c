/* Grace: the pure rule against a plain reading of it, and whom a version waits for and how long. */
#include "check.h"
#include "contribution.h"
#include "engine/grace.h"
#include "support.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { US = 1000 };

/* ---- the pure rule --------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The smallest of values[0..n) that at least `share` of them do not exceed. */
static uint64_t quantile(const uint64_t *values, int n, double share) {
    uint64_t sorted[GRACE_SAMPLES];
    memcpy(sorted, values, (size_t)n * sizeof *values);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    int i = 0;
    while ((i + 1) < share * n - 1e-9)
        i++;
    return sorted[i];
}

static void test_samples(void) {
    static const double shares[] = {0.01, 0.1, 0.5, 0.8, 0.99, 1};
    for (uint32_t range = 1; range <= 1000; range *= 10) { /* many equal ones, too */
        struct grace_samples samples = {0};
        uint64_t all[200];
        uint32_t random = range;
        for (int n = 1; n <= 200; n++) {
            random = random * 1664525u + 1013904223u;
            all[n - 1] = (random >> 8) % range;
            grace_add(&samples, all[n - 1]);
            const int kept = n < GRACE_SAMPLES ? n : GRACE_SAMPLES;
            CHECK(samples.count == kept, "%d of %d", samples.count, kept);
            for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
                const uint64_t want = quantile(all + n - kept, kept, shares[i]);
                CHECK(grace_quantile(&samples, shares[i]) == want,
                      "%g of the last %d of %d: %" PRIu64 " instead of %" PRIu64, shares[i], kept,
                      n, grace_quantile(&samples, shares[i]), want);
            }
        }
    }
}

static struct grace_samples samples_of(int n, const uint64_t *values) {
    struct grace_samples samples = {0};
    for (int i = 0; i < n; i++)
        grace_add(&samples, values[i]);
    return samples;
}

static void test_auto_rule(void) {
    const uint64_t spread[] = {100 * US, 300 * US, 400 * US, 500 * US, 9000 * US};
    const uint64_t compute[] = {1000 * US, 2000 * US, 90000 * US}, tiny[] = {1, 2, 3, 4};
    const struct grace_samples none = {0}, three = samples_of(3, spread),
                               four = samples_of(4, spread), five = samples_of(5, spread),
                               fast = samples_of(3, compute), slow = samples_of(1, compute + 2),
                               small = samples_of(4, tiny);
    CHECK(grace_auto(&none, &none) == 200 * US, "at first: %" PRIu64, grace_auto(&none, &none));
    CHECK(grace_auto(&three, &slow) == 200 * US, "3 spreads");
    CHECK(grace_auto(&four, &slow) == 500 * US, "the 80%% quantile of 4: %" PRIu64,
          grace_auto(&four, &slow));
    CHECK(grace_auto(&five, &slow) == 500 * US, "the 80%% quantile of 5: %" PRIu64,
          grace_auto(&five, &slow));
    CHECK(grace_auto(&five, &none) == 500 * US, "no compute time is known");
    CHECK(grace_auto(&five, &fast) == 200 * US, "10%% of the median compute time: %" PRIu64,
          grace_auto(&five, &fast));
    CHECK(grace_auto(&small, &slow) == 50 * US, "the floor: %" PRIu64, grace_auto(&small, &slow));
    CHECK(grace_auto(&five, &small) == 50 * US, "the floor under the cap: %" PRIu64,
          grace_auto(&five, &small));
}

/* ---- in versions ----------------------------------------------------------------------------- */

static int start(cast *c, int r, double *x, wagma_outcome *o) {
    return wagma_start(c->handle[r], x, 1, 0, o);
}

/* Rank r begins a call and waits for another one. In a thread that lost its core meanwhile, for as
 * long as the grace, it has ended the wait; then this is 0. */
static int waits(cast *c, int r, double *x, wagma_outcome *o, double grace, const char *what) {
    const double began = seconds();
    const int status = start(c, r, x, o);
    EXPECT(status == WAGMA_INPROGRESS || (status == WAGMA_OK && seconds() - began >= grace),
           "%s: %d after %g s", what, status, seconds() - began);
    return status == WAGMA_INPROGRESS;
}

static void test_awaits_recent_ones_only(void) {
    wagma_options options = options_of(2, 2, 1, 1);
    double x = 1;
    wagma_outcome o;
    cast c;
    options.grace = 0.1;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    const double began = seconds();
    if (waits(&c, 0, &x, &o, options.grace, "rank 1 is not awaited"))
        CHECK(wagma_finish(c.handle[0], &x, &o) == WAGMA_OK && !o.late, "%s", wagma_last_error());
    CHECK(seconds() - began >= options.grace && o.versions[1] == -1, "waited %g s of 0.1",
          seconds() - began);
    for (int t = 1; t < 4; t++)
        CHECK(start(&c, 0, &x, &o) == WAGMA_OK && o.waited == 0,
              "version %d awaits a rank that is %d behind", t, t + 1);
    for (int t = 0; t < 3; t++) /* late; then at version 3, which it is late for as well */
        CHECK(start(&c, 1, &x, &o) == WAGMA_OK && o.late, "version %d", t);
    CHECK(start(&c, 0, &x, &o) == WAGMA_OK && o.waited == 0, "version 4 awaits a rank at 2");
    CHECK(start(&c, 1, &x, &o) == WAGMA_OK && start(&c, 1, &x, &o) == WAGMA_OK, "late for 3 and 4");
    const int awaited = waits(&c, 0, &x, &o, options.grace, "version 5 does not await a rank at 4");
    CHECK(start(&c, 1, &x, &o) == WAGMA_OK && o.late == !awaited, "it is there in time");
    if (awaited)
        CHECK(wagma_finish(c.handle[0], &x, &o) == WAGMA_OK && o.versions[1] == 5, "%s",
              wagma_last_error());
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* It ends when the last awaited member is in, long before its time. */
static void test_ends_with_the_last(void) {
    wagma_options options = options_of(3, 3, 1, 1);
    double x[3] = {1, 2, 3};
    wagma_outcome o;
    cast c;
    options.grace = WATCHDOG_SECONDS * 2;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    CHECK(start(&c, 2, &x[2], &o) == WAGMA_INPROGRESS, "ranks 0 and 1 are awaited");
    CHECK(start(&c, 0, &x[0], &o) == WAGMA_INPROGRESS, "rank 1 is awaited");
    CHECK(start(&c, 1, &x[1], &o) == WAGMA_OK && !o.late, "all are in");
    CHECK(wagma_finish(c.handle[0], &x[0], &o) == WAGMA_OK && !o.late, "rank 0");
    CHECK(wagma_finish(c.handle[2], &x[2], &o) == WAGMA_OK && !o.late, "rank 2");
    CHECK(x[0] == 6 && x[1] == 6 && x[2] == 6, "%g %g %g", x[0], x[1], x[2]);
    CHECK(start(&c, 0, &x[0], &o) == WAGMA_INPROGRESS, "ranks 1 and 2 are awaited");
    CHECK(wagma_close(c.handle[1]) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(start(&c, 2, &x[2], &o) == WAGMA_OK && o.contributors_count == 2,
          "a rank that has departed is awaited");
    CHECK(wagma_finish(c.handle[0], &x[0], &o) == WAGMA_OK && !o.late, "rank 0");
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* It runs from the moment the quorum is present, not from the first arrival. */
static void test_runs_from_the_quorum(void) {
    wagma_options options = options_of(3, 3, 2, 1);
    double x[3] = {1, 2, 3};
    wagma_outcome o;
    cast c;
    options.grace = 0.2;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    CHECK(start(&c, 0, &x[0], &o) == WAGMA_INPROGRESS, "alone");
    sleep_ms(250);
    const double began = seconds();
    if (waits(&c, 1, &x[1], &o, options.grace, "the grace has run before the quorum"))
        CHECK(wagma_finish(c.handle[1], &x[1], &o) == WAGMA_OK && !o.late, "%s",
              wagma_last_error());
    CHECK(seconds() - began >= 0.2, "%g s of 0.2", seconds() - began);
    CHECK(start(&c, 2, &x[2], &o) == WAGMA_OK && o.late, "rank 2 is not late");
    CHECK(wagma_finish(c.handle[0], &x[0], &o) == WAGMA_OK && o.versions[2] == -1, "rank 0");
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* With enough of it nobody is late, and without any somebody is. */
typedef struct lateness {
    _Atomic int late;
    int64_t versions;
} lateness;

static void run_balanced(rank *me) {
    lateness *l = me->shared;
    double x[5];
    contribute(WAGMA_F64, x, me->rank, -1, 5);
    wagma_handle *h = rank_join(me, x);
    while (h && wagma_version(h) < l->versions) {
        wagma_outcome o;
        contribute(WAGMA_F64, x, me->rank, wagma_version(h), 5);
        jitter(me);
        if (!EXPECT(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "rank %d: %s", me->rank,
                    wagma_last_error()))
            break;
        expect_result(me, x, &o);
        atomic_fetch_add(&l->late, o.late);
    }
    wagma_close(h);
    wagma_free(h);
}

static void test_nobody_late(void) {
    static const double graces[] = {WATCHDOG_SECONDS, 0};
    for (int i = 0; i < 2; i++) {
        lateness *l = shared_memory(sizeof *l);
        wagma_options o = options_of(4, 4, 1, 5);
        o.grace = graces[i];
        l->versions = 800 / SLOWDOWN;
        team_join_clean(team_start(THREADS, &o, run_balanced, l));
        CHECK(expectations_failed() == 0, "grace %g", graces[i]);
        CHECK((l->late == 0) == (i == 0), "grace %g: %d late", graces[i], l->late);
    }
}

/* ---- auto ------------------------------------------------------------------------------------ */

static double grace_of(const wagma_handle *h) {
    wagma_stats stats;
    wagma_get_stats(h, &stats);
    return stats.grace;
}

/* `n` versions in which rank 0 computes for `compute` and rank 1 arrives `spread` (ms) after it, in
 * time if `fresh`, otherwise after the pin. (Rank 0 has pinned alone as well if it lost its core
 * inside of the call for as long as the grace.) Returns the longest time that rank 0 computed. */
static double measure(cast *c, int n, double compute, double spread, int fresh) {
    double longest = 0, x = 1, y = 1, returned = seconds();
    wagma_outcome o;
    for (int i = 0; i < n; i++) {
        sleep_ms(compute);
        const double called = seconds();
        if (i > 0 && called - returned > longest)
            longest = called - returned;
        const double grace = grace_of(c->handle[0]);
        const int status = fresh ? start(c, 0, &x, &o) : wagma_allreduce(c->handle[0], &x, 1, &o);
        const int pinned = status == WAGMA_OK;
        EXPECT(!fresh || status == WAGMA_INPROGRESS || (pinned && seconds() - called >= grace),
               "rank 0: %d before the grace of %g s was over", status, grace);
        EXPECT(fresh || pinned, "rank 0: %d", status);
        if (pinned)
            returned = seconds();
        sleep_ms(spread);
        EXPECT(start(c, 1, &y, &o) == WAGMA_OK && o.late == pinned, "rank 1: late %d", o.late);
        if (pinned)
            continue;
        EXPECT(wagma_finish(c->handle[0], &x, &o) == WAGMA_OK && !o.late, "rank 0");
        returned = seconds();
    }
    return longest;
}

/* Lower bounds hold because sleeps are never shorter; upper ones come from what was measured. */
static void test_auto_is_measured(void) {
    wagma_options options = options_of(2, 2, 1, 1);
    cast c;
    options.grace = -1;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    const wagma_handle *h = c.handle[0];
    CHECK(grace_of(h) == 200e-6, "at first %g s", grace_of(h));
    measure(&c, 3, 30, 2, 1);
    CHECK(grace_of(h) == 200e-6, "with less than 4 spreads %g s", grace_of(h));
    measure(&c, 6, 30, 2, 1);
    CHECK(grace_of(h) >= 2e-3, "%g s with spreads of 2 ms, 10%% of compute are 3 ms", grace_of(h));
    const double longest = measure(&c, 34, 6, 2, 1);
    CHECK(grace_of(h) >= 0.59e-3 && grace_of(h) <= 0.1 * longest + 10e-6,
          "%g s, compute is 6 ms to %g s", grace_of(h), longest);
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* Members that come after the pin have a spread as well, or the grace could never grow. */
static void test_auto_counts_late_ones(void) {
    wagma_options options = options_of(2, 2, 1, 1);
    cast c;
    options.grace = -1;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    measure(&c, 5, 60, 3, 0);
    CHECK(grace_of(c.handle[0]) >= 3e-3, "%g s with spreads of 3 ms and more",
          grace_of(c.handle[0]));
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* What is computed between posting and waiting is compute time, too. */
static void test_auto_knows_posted_calls(void) {
    wagma_options options = options_of(2, 2, 1, 1);
    cast c;
    options.grace = -1;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    double x = 1, y = 1;
    wagma_outcome o;
    for (int i = 0; i < 8; i++) {
        EXPECT(wagma_post(c.handle[0], &x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        sleep_ms(3);
        EXPECT(wagma_post(c.handle[1], &y, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        sleep_ms(30);
        EXPECT(wagma_wait(c.handle[0], &x, -1, &o) == WAGMA_OK && !o.late, "rank 0");
        EXPECT(wagma_wait(c.handle[1], &y, -1, &o) == WAGMA_OK && !o.late, "rank 1");
    }
    CHECK(grace_of(c.handle[0]) >= 2.9e-3, "%g s with spreads of 3 ms, 10%% of compute are 3 ms",
          grace_of(c.handle[0]));
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    RUN(test_samples);
    RUN(test_auto_rule);
    RUN(test_awaits_recent_ones_only);
    RUN(test_ends_with_the_last);
    RUN(test_runs_from_the_quorum);
    RUN(test_nobody_late);
    RUN(test_auto_is_measured);
    RUN(test_auto_counts_late_ones);
    RUN(test_auto_knows_posted_calls);
    return check_summary();
}
