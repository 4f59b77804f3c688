/* One thread plays all ranks, so that who arrives when is decided and every number is known: who is
 * fresh, late or unmerged (I2, I6), what a sync waits for (I4), and whom the grace awaits. */
/* short run: asan */
#include "check.h"
#include "contribution.h"
#include "support.h"

#include <inttypes.h>
#include <math.h>

static wagma_options averaging(int size, int group_size) {
    wagma_options o = options_of(size, group_size, 1, 1);
    o.average = 1;
    return o;
}

/* Calls the next version of rank r with `x`; the result. Nobody may have to be waited for. */
static double call(cast *c, int r, double x, wagma_outcome *o) {
    const int status = wagma_start(c->handle[r], &x, 1, 0, o);
    EXPECT(status == WAGMA_OK, "rank %d: status %d %s", r, status,
           status < 0 ? wagma_last_error() : "");
    return x;
}

static int lists(const wagma_outcome *o, int n, const int32_t *ranks, const int64_t *versions) {
    int same = o->contributors_count == n;
    for (int i = 0; same && i < n; i++)
        same = o->contributors[i] == ranks[i] && o->versions[i] == versions[i];
    return same;
}

/* ---- fresh, late, unmerged ------------------------------------------------------------------- */

/* Models 10, 20, 30, 40 with updates 1, 2, 3, 4; rank 1 comes after rank 0 has taken the 17 of its
 * send buffer; ranks 2 and 3 come together. */
static void test_paper_example(void) {
    const double sent[] = {10, 17, 30, 40};
    const void *const initial[] = {&sent[0], &sent[1], &sent[2], &sent[3]};
    double x[] = {10 + 1, 20 + 2, 30 + 3, 40 + 4};
    wagma_outcome o[4];
    wagma_options options = averaging(4, 2);
    options.grace = 0.02; /* the first of {2, 3} does not go alone; rank 0 waits for it in vain */
    cast c;
    CHECK(cast_open(&c, &options, initial, NULL), "%s", wagma_last_error());
    CHECK(wagma_allreduce(c.handle[0], &x[0], 1, &o[0]) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_allreduce(c.handle[1], &x[1], 1, &o[1]) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_start(c.handle[2], &x[2], 1, 0, &o[2]) == WAGMA_INPROGRESS, "went alone");
    CHECK(wagma_allreduce(c.handle[3], &x[3], 1, &o[3]) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_finish(c.handle[2], &x[2], &o[2]) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(x[0] == 14 && !o[0].late && o[0].weight == 2, "%.17g", x[0]);
    CHECK(fabs(x[1] - 50.0 / 3) < 1e-14 && o[1].late && o[1].merged && o[1].weight == 3, "%.17g",
          x[1]);
    CHECK(x[2] == 77.0 / 2 && x[3] == 77.0 / 2 && !o[2].late && !o[3].late, "%.17g %.17g", x[2],
          x[3]);
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* A rank that is behind takes the newest result at once, and then nothing until it is level. */
static void test_newest_once(void) {
    const wagma_options options = averaging(2, 2);
    const double first = 100;
    const void *const initial[] = {NULL, &first};
    wagma_outcome o;
    cast c;
    CHECK(cast_open(&c, &options, initial, NULL), "%s", wagma_last_error());
    for (int t = 0; t < 5; t++) {
        const double x = call(&c, 0, t, &o);
        EXPECT(x == (t + 100.0) / 2 && !o.late, "version %d: %.17g", t, x);
        EXPECT(lists(&o, 2, (int32_t[]){0, 1}, (int64_t[]){t, -1}), "version %d", t);
    }
    double x = call(&c, 1, 7, &o);
    EXPECT(x == (4 + 100 + 7.0) / 3 && o.late && o.merged && o.weight == 3, "%.17g", x);
    EXPECT(lists(&o, 2, (int32_t[]){0, 1}, (int64_t[]){4, -1}), "not the newest");
    for (int t = 1; t < 5; t++) {
        x = call(&c, 1, 7 + t, &o);
        EXPECT(x == 7 + t && o.late && !o.merged && o.weight == 1 && o.contributors_count == 0,
               "version %d: %.17g late %d merged %d", t, x, o.late, o.merged);
    }
    x = call(&c, 1, 50, &o);
    EXPECT(x == (50 + 4.0) / 2 && !o.late && o.merged, "%.17g", x);
    EXPECT(lists(&o, 2, (int32_t[]){0, 1}, (int64_t[]){4, 5}), "version 5 of rank 1");
    x = call(&c, 0, 60, &o); /* late for version 5 now, although it was ahead */
    EXPECT(x == (50 + 4 + 60.0) / 3 && o.late && o.merged, "%.17g", x);
    wagma_stats stats;
    wagma_get_stats(c.handle[1], &stats);
    EXPECT(stats.calls == 6 && stats.late == 5 && stats.unmerged == 4,
           "%" PRId64 " calls, %" PRId64 " late, %" PRId64 " unmerged", stats.calls, stats.late,
           stats.unmerged);
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* Rank 0 merges version 4 of {0, 1} in its call 0 and is fresh in version 1 of {0, 2}; version 4 is
 * not merged again after that. */
static void test_fresh_does_not_forget(void) {
    const wagma_options options = averaging(4, 2);
    int32_t with0[3][2];
    wagma_outcome o;
    cast c;
    for (int t = 0; t < 3; t++)
        wagma_group_of(0, 4, 2, 0, 0, t, with0[t]);
    CHECK(with0[0][1] == 1 && with0[1][1] == 2 && with0[2][1] == 1, "other groups than meant");
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    for (int t = 0; t < 5; t++)
        call(&c, 1, 8, &o);
    double x = call(&c, 0, 1, &o);
    EXPECT(x == (8 + 1.0) / 3 && o.late && o.merged && o.versions[1] == 4, "%.17g", x);
    x = call(&c, 0, 1, &o);
    EXPECT(x == (1 + 0.0) / 2 && !o.late, "%.17g", x);
    x = call(&c, 0, 5, &o);
    EXPECT(x == 5 && o.late && !o.merged, "%.17g merged %d", x, o.merged);
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* After quorum = 3 have gone, the last one has a result without waiting for anybody. */
static void test_late_waits_for_nobody(void) {
    wagma_options options = options_of(4, 4, 3, 100000);
    double *x[4];
    wagma_outcome o;
    cast c;
    for (int r = 0; r < 4; r++)
        x[r] = shared_memory(100000 * sizeof *x[r]);
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    for (int t = 0; t < 2; t++) {
        for (int r = 0; r < 3; r++) {
            contribute(WAGMA_F64, x[r], r, t, 100000);
            const int status = wagma_start(c.handle[r], x[r], 1, 0, &o);
            EXPECT(status == (r < 2 ? WAGMA_INPROGRESS : WAGMA_OK), "rank %d: %d", r, status);
        }
        for (int r = 0; r < 2; r++)
            EXPECT(wagma_finish(c.handle[r], x[r], &o) == WAGMA_OK && !o.late &&
                       o.contributors_count == 4 && o.versions[3] == -1,
                   "rank %d: %s", r, wagma_last_error());
    }
    contribute(WAGMA_F64, x[3], 3, 0, 100000);
    EXPECT(wagma_start(c.handle[3], x[3], 1, 0, &o) == WAGMA_OK, "it waits");
    EXPECT(o.late && o.merged && o.waited == 0 && o.versions[0] == 1, "waited %g", o.waited);
    const double sum = contribution(WAGMA_F64, 0, 1, 99999) + contribution(WAGMA_F64, 1, 1, 99999) +
                       contribution(WAGMA_F64, 2, 1, 99999) + contribution(WAGMA_F64, 3, 0, 99999);
    EXPECT(x[3][99999] == sum, "%.17g instead of %.17g", x[3][99999], sum);
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- sync ------------------------------------------------------------------------------------ */

/* Version 2 is a sync version; in `explicit` version 1 is one as well, by wagma_sync's own way. */
static void check_sync(int explicit_sync) {
    wagma_options options = averaging(4, 2);
    options.sync_period = 3;
    double x[4];
    wagma_outcome o[4];
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    for (int64_t t = 0; t < 6; t++) {
        const int sync = (t + 1) % 3 == 0 || (explicit_sync && t == 1);
        for (int r = 0; r < 4; r++) {
            x[r] = 100.0 * (double)(t + 1) + r;
            const int status = wagma_start(c.handle[r], &x[r], 1, sync && t == 1, &o[r]);
            EXPECT(status == (sync && r < 3 ? WAGMA_INPROGRESS : WAGMA_OK),
                   "version %" PRId64 " rank %d: %d", t, r, status);
        }
        for (int r = 0; sync && r < 4; r++) {
            EXPECT(r == 3 || wagma_finish(c.handle[r], &x[r], &o[r]) == WAGMA_OK, "%s",
                   wagma_last_error());
            EXPECT(x[r] == 100.0 * (double)(t + 1) + 1.5 && !o[r].late && o[r].weight == 4 &&
                       lists(&o[r], 4, (int32_t[]){0, 1, 2, 3}, (int64_t[]){t, t, t, t}),
                   "version %" PRId64 " rank %d: %.17g of %d", t, r, x[r], o[r].contributors_count);
        }
    }
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

static void test_sync_versions(void) {
    check_sync(0);
}

static void test_sync_call(void) {
    check_sync(1);
}

/* A rank that is behind cannot merge a result from before a sync version after it. */
static void test_nothing_older_than_sync(void) {
    wagma_options options = averaging(2, 2);
    options.sync_period = 2;
    options.window = 8;
    double x[2] = {1, 2};
    wagma_outcome o;
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    call(&c, 0, 5, &o); /* rank 1 is late for version 0 and holds it */
    EXPECT(wagma_start(c.handle[0], &x[0], 1, 0, &o) == WAGMA_INPROGRESS, "sync alone");
    const double late = call(&c, 1, 10, &o);
    EXPECT(late == (5 + 0 + 10.0) / 3 && o.late, "%.17g", late);
    EXPECT(wagma_start(c.handle[1], &x[1], 1, 0, &o) == WAGMA_OK && x[1] == 1.5, "%.17g", x[1]);
    EXPECT(wagma_finish(c.handle[0], &x[0], &o) == WAGMA_OK && x[0] == 1.5, "%.17g", x[0]);
    const double fresh = call(&c, 1, 3, &o); /* of rank 0: what it published for the sync version */
    EXPECT(fresh == (1 + 3.0) / 2 && !o.late && o.versions[0] == 1, "%.17g", fresh);
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    RUN(test_paper_example);
    RUN(test_newest_once);
    RUN(test_fresh_does_not_forget);
    RUN(test_late_waits_for_nobody);
    RUN(test_sync_versions);
    RUN(test_sync_call);
    RUN(test_nothing_older_than_sync);
    return check_summary();
}
