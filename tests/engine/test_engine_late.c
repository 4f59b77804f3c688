/* What becomes of late contributions and of missed versions: skip, carry, fast-forward, activation
 * by the world, and results that stay where they are. One thread plays all ranks. */
#include "check.h"
#include "support.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static wagma_options choose(int size, int group_size, int late) {
    wagma_options o = options_of(size, group_size, 1, 1);
    o.average = 1;
    o.late = late;
    return o;
}

/* Calls the next version of rank r; nobody may have to be waited for. */
static double call(cast *c, int r, double x, double weight, wagma_outcome *o) {
    const int status = wagma_start(c->handle[r], &x, weight, 0, o);
    EXPECT(status == WAGMA_OK, "rank %d: status %d %s", r, status,
           status < 0 ? wagma_last_error() : "");
    return x;
}

static double result(const wagma_outcome *o, int k) {
    return o->results[k] ? *(const double *)o->results[k] : NAN;
}

static void open_cast(cast *c, const wagma_options *o) {
    EXPECT(cast_open(c, o, NULL, NULL), "%s", wagma_last_error());
}

static void close_cast(cast *c) {
    cast_close(c);
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- skip ------------------------------------------------------------------------------------ */

static void test_skip_delivers_every_result_in_order(void) {
    const wagma_options options = choose(2, 2, WAGMA_LATE_SKIP);
    wagma_outcome o;
    cast c;
    open_cast(&c, &options);
    for (int t = 0; t < 3; t++) {
        const double x = call(&c, 0, 10 + t, 1, &o);
        EXPECT(x == 10 + t && !o.late && o.weight == 1 && o.results_count == 1 &&
                   result(&o, 0) == 10 + t,
               "version %d: %.17g", t, x);
    }
    const double x = call(&c, 1, 99, 1, &o);
    EXPECT(o.late && o.merged && o.version == 0 && o.results_count == 3, "%d results",
           o.results_count);
    for (int t = 0; t < o.results_count; t++)
        EXPECT(result(&o, t) == 10 + t, "version %d: %.17g", t, result(&o, t));
    EXPECT(x == 12 && o.weight == 1 && o.contributors_count == 1 && o.contributors[0] == 0 &&
               o.versions[0] == 2,
           "%.17g", x);
    EXPECT(wagma_version(c.handle[1]) == 3, "%" PRId64, wagma_version(c.handle[1]));
    EXPECT(call(&c, 1, 5, 2, &o) == 5 && !o.late && o.weight == 2, "fresh again");
    EXPECT(call(&c, 0, 7, 1, &o) == 5 && o.late && o.results_count == 1, "99 and 7 are dropped");
    close_cast(&c);
}

static void test_skip_leaves_out_what_has_no_weight(void) {
    const wagma_options options = choose(2, 2, WAGMA_LATE_SKIP);
    wagma_outcome o;
    cast c;
    open_cast(&c, &options);
    EXPECT(call(&c, 0, 3, 1, &o) == 3, "version 0");
    EXPECT(call(&c, 0, NAN, 0, &o) != 3 && !o.merged && o.weight == 0, "nobody has a weight");
    EXPECT(call(&c, 1, 8, 1, &o) == 3 && o.results_count == 2, "%d", o.results_count);
    EXPECT(result(&o, 0) == 3 && o.results[1] == NULL && o.merged, "the newest that there is");
    close_cast(&c);
}

static void test_results_are_kept_for_a_window(void) {
    const wagma_options options = choose(2, 2, WAGMA_LATE_SKIP);
    wagma_outcome o;
    cast c;
    open_cast(&c, &options);
    for (int t = 0; t < 8; t++)
        EXPECT(call(&c, 0, t, 1, &o) == t, "version %d", t);
    double x = 8;
    EXPECT(wagma_start(c.handle[0], &x, 1, 0, &o) == WAGMA_INPROGRESS, "9 versions ahead");
    EXPECT(call(&c, 1, -1, 1, &o) == 7 && o.results_count == 8, "%d results", o.results_count);
    for (int k = 0; k < 8; k++)
        EXPECT(result(&o, k) == k, "version %d: %.17g", k, result(&o, k));
    EXPECT(wagma_finish(c.handle[0], &x, &o) == WAGMA_OK && x == 8, "%s", wagma_last_error());
    close_cast(&c);
}

static void test_results_that_are_looked_at_stay(void) {
    const wagma_options options = choose(2, 2, WAGMA_LATE_SKIP);
    wagma_outcome o, mine;
    const void *results[8];
    cast c;
    open_cast(&c, &options);
    int t = 0;
    for (int cycle = 0; cycle < 50; cycle++) {
        const int from = (int)wagma_version(c.handle[1]);
        for (int k = 0; k < 3; k++, t++)
            EXPECT(call(&c, 0, t, 1, &o) == t, "version %d", t);
        EXPECT(call(&c, 1, -1, 1, &mine) == t - 1 && mine.results_count == 3, "cycle %d", cycle);
        memcpy(results, mine.results, 3 * sizeof *results);
        for (int k = 0; k < 5; k++, t++) /* up to the window behind its contribution */
            EXPECT(call(&c, 0, t, 1, &o) == t, "version %d", t);
        for (int k = 0; k < 3; k++)
            EXPECT(*(const double *)results[k] == from + k, "cycle %d: %.17g", cycle,
                   *(const double *)results[k]);
        EXPECT(call(&c, 1, -1, 1, &mine) == t - 1 && mine.results_count == 5, "cycle %d", cycle);
    }
    wagma_stats stats;
    wagma_get_stats(c.handle[0], &stats);
    EXPECT(stats.buffer_waits == 0, "%" PRId64 " waits", stats.buffer_waits);
    close_cast(&c);
}

/* A sync version ends the call, even if newer ones are pinned by the time it goes on. */
static void test_sync_is_not_gone_past(void) {
    const wagma_options options = choose(2, 2, WAGMA_LATE_SKIP);
    wagma_outcome o;
    double mine = 100, theirs = 200;
    cast c;
    open_cast(&c, &options);
    EXPECT(wagma_post(c.handle[0], &mine, 1, 1) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    EXPECT(wagma_sync(c.handle[1], &theirs, 1, &o) == WAGMA_OK && theirs == 150, "%.17g", theirs);
    EXPECT(call(&c, 1, 7, 1, &o) == 7, "version 1");
    EXPECT(wagma_wait(c.handle[0], &mine, -1, &o) == WAGMA_OK && mine == 150, "%.17g", mine);
    EXPECT(o.results_count == 1 && o.contributors_count == 2 && !o.late, "%d", o.results_count);
    EXPECT(call(&c, 0, 9, 1, &o) == 7 && o.late && o.version == 1, "version 1");
    close_cast(&c);
}

/* ---- carry ----------------------------------------------------------------------------------- */

static void test_carry_adds_what_came_too_late(void) {
    const wagma_options options = choose(2, 2, WAGMA_LATE_CARRY);
    wagma_outcome o;
    cast c;
    open_cast(&c, &options);
    EXPECT(call(&c, 0, 10, 1, &o) == 5 && o.weight == 2, "absent is zero at weight 1");
    EXPECT(call(&c, 0, 20, 1, &o) == 10, "version 1");
    EXPECT(call(&c, 1, 3, 1, &o) == 10 && o.late && o.results_count == 2 && result(&o, 0) == 5,
           "its 3 is carried");
    EXPECT(call(&c, 1, 4, 1, &o) == 3.5 && !o.late, "3 + 4, at the weight of two ranks");
    EXPECT(call(&c, 0, 6, 1, &o) == 3.5 && o.late, "its 6 is carried");
    EXPECT(call(&c, 0, NAN, 0, &o) != 3.5 && o.weight == 1 && o.results[0] != NULL, "of rank 1");
    EXPECT(call(&c, 1, 2, 1, &o) == 0 && o.late, "nobody contributed");
    EXPECT(call(&c, 0, 8, 4, &o) == (8 + 6.0 / 4) * 4 / 5 && o.weight == 5, "6 + 4 times 8");
    close_cast(&c);
}

static void test_carry_refuses_weights_that_are_far_apart(void) {
    wagma_options options = choose(2, 2, WAGMA_LATE_CARRY);
    options.dtype = WAGMA_F32;
    wagma_outcome o;
    float x = 1;
    cast c;
    open_cast(&c, &options);
    EXPECT(wagma_allreduce(c.handle[0], &x, 1, &o) == WAGMA_OK, "%s", wagma_last_error());
    EXPECT(wagma_allreduce(c.handle[1], &x, 1e20, &o) == WAGMA_OK && o.late, "%s",
           wagma_last_error());
    EXPECT(wagma_allreduce(c.handle[1], &x, 1e-20, &o) == WAGMA_EINVAL &&
               strstr(wagma_last_error(), "weight"),
           "%s", wagma_last_error());
    x = 3;
    EXPECT(wagma_allreduce(c.handle[1], &x, 1e10, &o) == WAGMA_OK && !o.late, "still usable: %s",
           wagma_last_error());
    close_cast(&c);
}

static void test_integers_carry_whole_numbers(void) {
    wagma_options options = choose(2, 2, WAGMA_LATE_CARRY);
    options.average = 0;
    options.dtype = WAGMA_I64;
    wagma_outcome o;
    int64_t x = INT64_C(1) << 60;
    cast c;
    open_cast(&c, &options);
    EXPECT(wagma_allreduce(c.handle[0], &x, 2, &o) == WAGMA_ETYPE &&
               strstr(wagma_last_error(), "weight"),
           "%s", wagma_last_error());
    EXPECT(wagma_allreduce(c.handle[0], &x, 1, &o) == WAGMA_OK, "%s", wagma_last_error());
    x = 5;
    EXPECT(wagma_allreduce(c.handle[1], &x, 1, &o) == WAGMA_OK && x == INT64_C(1) << 60 && o.late,
           "its 5 is carried");
    x = 7;
    EXPECT(wagma_allreduce(c.handle[1], &x, 1, &o) == WAGMA_OK && x == 12, "%" PRId64, x);
    close_cast(&c);
}

static void test_carry_loses_nothing(void) {
    enum { STEPS = 400 };
    wagma_options options = choose(4, 4, WAGMA_LATE_CARRY);
    options.average = 0;
    options.window = 5;
    wagma_outcome o;
    cast c;
    open_cast(&c, &options);
    double given = 0, taken = 0, pending[4] = {0};
    uint64_t random = 7;
    int64_t last = 0;
    for (int step = 0; step < STEPS; step++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        const int r = (int)(random >> 60) % 4;
        int64_t slowest = INT64_MAX;
        for (int q = 0; q < 4; q++)
            slowest = published(c.segment, q) < slowest ? published(c.segment, q) : slowest;
        if (wagma_version(c.handle[r]) > slowest + options.window)
            continue; /* it would have to wait */
        const double x = (double)(random >> 40 & 1023);
        const int64_t from = wagma_version(c.handle[r]);
        (void)call(&c, r, x, 1, &o);
        given += x;
        pending[r] = o.late ? pending[r] + x : 0;
        for (int k = 0; k < o.results_count; k++)
            if (from + k >= last) {
                taken += result(&o, k);
                last = from + k + 1;
            }
    }
    EXPECT(given == taken + pending[0] + pending[1] + pending[2] + pending[3],
           "%.17g given, %.17g taken", given, taken);
    close_cast(&c);
}

/* ---- fast-forward ---------------------------------------------------------------------------- */

static void test_forward_goes_on_after_what_it_merged(void) {
    wagma_options options = choose(2, 2, WAGMA_LATE_STALE);
    options.missed = WAGMA_MISSED_FAST_FORWARD;
    wagma_outcome o;
    cast c;
    open_cast(&c, &options);
    for (int t = 0; t < 5; t++)
        (void)call(&c, 0, 6 + t, 1, &o);
    EXPECT(call(&c, 1, 5, 1, &o) == (10 + 0 + 5) / 3.0 && o.late && o.merged && o.skipped == 4,
           "%" PRId64 " skipped", o.skipped);
    EXPECT(wagma_version(c.handle[1]) == 5, "%" PRId64, wagma_version(c.handle[1]));
    EXPECT(call(&c, 1, 4, 1, &o) == 7 && !o.late && o.skipped == 0, "fresh in version 5");
    close_cast(&c);
}

/* A member that has jumped past a version and published a newer one does not come: whoever is left
 * of the quorum is missed when it fails. Groups {0 2 4} and {0 3 4}, {1 5 ...} of six ranks. */
static void test_forward_misses_who_is_needed(void) {
    wagma_options options = options_of(6, 3, 2, 1);
    options.missed = WAGMA_MISSED_FAST_FORWARD;
    options.timeout = 20;
    wagma_outcome o;
    double x[6] = {0};
    cast c;
    open_cast(&c, &options);
    for (int k = 0; k < 3; k++) {
        EXPECT(wagma_post(c.handle[1], &x[1], 1, 0) == WAGMA_INPROGRESS, "rank 1");
        EXPECT(wagma_allreduce(c.handle[5], &x[5], 1, &o) == WAGMA_OK, "%s", wagma_last_error());
        EXPECT(wagma_wait(c.handle[1], &x[1], -1, &o) == WAGMA_OK, "%s", wagma_last_error());
    }
    EXPECT(wagma_allreduce(c.handle[3], &x[3], 1, &o) == WAGMA_OK && o.skipped > 0, "rank 3 jumps");
    EXPECT(wagma_post(c.handle[3], &x[3], 1, 0) == WAGMA_INPROGRESS, "and publishes again");
    EXPECT(wagma_post(c.handle[2], &x[2], 1, 0) == WAGMA_INPROGRESS, "rank 2");
    EXPECT(wagma_allreduce(c.handle[0], &x[0], 1, &o) == WAGMA_OK, "%s", wagma_last_error());
    wagma_fail(c.handle[4]);
    EXPECT(wagma_allreduce(c.handle[0], &x[0], 1, &o) == WAGMA_EPEER &&
               strstr(wagma_last_error(), "rank 4"),
           "%s", wagma_last_error());
    cast_drop(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- activation by the world ----------------------------------------------------------------- */

/* Rank 0 starts version 0 for {0, 1} and {2, 3}: everybody else is late with its first array. */
static void test_world_pins_every_group_at_once(void) {
    wagma_options options = choose(4, 2, WAGMA_LATE_STALE);
    options.activation = WAGMA_ACTIVATION_WORLD;
    const double first[] = {1, 2, 3, 4};
    const void *const initial[] = {&first[0], &first[1], &first[2], &first[3]};
    wagma_outcome o;
    cast c;
    EXPECT(cast_open(&c, &options, initial, NULL), "%s", wagma_last_error());
    EXPECT(call(&c, 0, 10, 1, &o) == 6 && !o.late && o.contributors_count == 2, "10 and 2");
    EXPECT(call(&c, 2, 30, 1, &o) == (3 + 4 + 30) / 3.0 && o.late && o.weight == 3, "3, 4 and 30");
    EXPECT(o.contributors_count == 2 && o.contributors[0] == 2 && o.versions[0] == -1,
           "first ones");
    EXPECT(call(&c, 3, 40, 1, &o) == (3 + 4 + 40) / 3.0 && o.late, "3, 4 and 40");
    /* version 1: {0, 2} and {1, 3} */
    EXPECT(call(&c, 3, 50, 1, &o) == (2 + 50) / 2.0 && !o.late, "2 and 50");
    EXPECT(call(&c, 1, 20, 1, &o) == (2 + 50 + 20) / 3.0 && o.late && o.merged,
           "newest: version 1");
    EXPECT(call(&c, 1, 21, 1, &o) == 21 && o.late && !o.merged, "merged already");
    close_cast(&c);
}

static void test_posted_in_a_group_of_one(void) {
    wagma_options options = choose(1, 1, WAGMA_LATE_CARRY);
    options.quorum = WAGMA_QUORUM_MAJORITY;
    wagma_outcome o;
    double x = 4;
    cast c;
    open_cast(&c, &options);
    EXPECT(wagma_post(c.handle[0], &x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    EXPECT(wagma_wait(c.handle[0], &x, -1, &o) == WAGMA_OK && x == 4 && result(&o, 0) == 4, "%.17g",
           x);
    close_cast(&c);
}

/* ---- results that stay where they are -------------------------------------------------------- */

static void test_out_of_place(void) {
    for (int size = 2; size <= 4; size++) {
        const wagma_options options = choose(size, size, WAGMA_LATE_STALE);
        wagma_outcome o[4];
        cast c;
        open_cast(&c, &options);
        for (int t = 0; t < 20; t++) {
            for (int r = 0; r < size; r++) { /* rank t % size first: the others are late */
                const int q = (t + r) % size;
                void *buffer = NULL, *again = NULL;
                EXPECT(wagma_next_contribution(c.handle[q], &buffer) == WAGMA_OK &&
                           wagma_next_contribution(c.handle[q], &again) == WAGMA_OK,
                       "%s", wagma_last_error());
                EXPECT(buffer && buffer == again, "the same until it is used");
                const double value = 100 * t + q;
                *(double *)buffer = value;
                EXPECT(wagma_allreduce(c.handle[q], buffer, 2, &o[q]) == WAGMA_OK, "%s",
                       wagma_last_error());
                EXPECT(*(double *)buffer == value, "the contribution is left alone");
                if (!o[q].merged)
                    continue;
                double sum = o[q].late ? 2 * value : 0;
                for (int i = 0; i < o[q].contributors_count; i++)
                    if (o[q].versions[i] >= 0)
                        sum += 2 * (double)(100 * o[q].versions[i] + o[q].contributors[i]);
                const double got = o[q].result ? *(const double *)o[q].result : NAN;
                EXPECT(got == sum, "P=%d t=%d rank %d: %.17g instead of %.17g", size, t, q, got,
                       sum);
            }
        }
        close_cast(&c);
    }
}

static void test_a_view_stays_until_the_next_call(void) {
    const wagma_options options = choose(2, 2, WAGMA_LATE_STALE);
    wagma_outcome o, other;
    void *buffer;
    cast c;
    open_cast(&c, &options);
    EXPECT(wagma_next_contribution(c.handle[0], &buffer) == WAGMA_OK, "%s", wagma_last_error());
    *(double *)buffer = 5;
    EXPECT(wagma_allreduce(c.handle[0], buffer, 1, &o) == WAGMA_OK, "%s", wagma_last_error());
    const double *view = o.result;
    EXPECT(view && *view == 5, "view");
    for (int t = 0; t < 60; t++) /* rounds and buffers are used again and again */
        (void)call(&c, 1, t, 1, &other);
    EXPECT(*view == 5, "%.17g", *view);
    EXPECT(wagma_next_contribution(c.handle[0], &buffer) == WAGMA_OK, "%s", wagma_last_error());
    *(double *)buffer = 6;
    EXPECT(*view == 5, "%.17g", *view);
    EXPECT(call(&c, 0, 1, 1, &o) == (1 + 5 + 59) / 3.0, "in place, with a buffer reserved");
    close_cast(&c);
}

int main(void) {
    RUN(test_skip_delivers_every_result_in_order);
    RUN(test_skip_leaves_out_what_has_no_weight);
    RUN(test_results_are_kept_for_a_window);
    RUN(test_results_that_are_looked_at_stay);
    RUN(test_sync_is_not_gone_past);
    RUN(test_carry_adds_what_came_too_late);
    RUN(test_carry_refuses_weights_that_are_far_apart);
    RUN(test_integers_carry_whole_numbers);
    RUN(test_carry_loses_nothing);
    RUN(test_forward_goes_on_after_what_it_merged);
    RUN(test_forward_misses_who_is_needed);
    RUN(test_world_pins_every_group_at_once);
    RUN(test_posted_in_a_group_of_one);
    RUN(test_out_of_place);
    RUN(test_a_view_stays_until_the_next_call);
    return check_summary();
}
