/* Calls that return in between: posting counts as arrival and never waits, testing and waiting
 * complete what was posted, whatever the others do, and trouble is found by both. Every test runs
 * with both executors (quorum "all" or not), on small and on large arrays. */
#include "check.h"
#include "contribution.h"
#include "engine/handle.h"
#include "support.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 3, LINES = 100, LARGE = 20011, WHOLE = 0 /* quorum "all" */ };

static const int64_t counts[] = {SMALL, LINES, LARGE};
enum { COUNTS = 3 };

/* Versions that need both ranks, with either executor. */
static wagma_options both_of(int quorum) {
    wagma_options options = options_of(2, 2, quorum, SMALL);
    options.sync_period = 1;
    return options;
}

/* ---- one thread plays all ranks -------------------------------------------------------------- */

static double arrays[RANKS_MAX][LARGE];

/* An array of rank r that holds `value` everywhere; with `shared` the one in the segment. */
static double *filled(cast *c, int r, double value, int64_t count, int shared) {
    double *x = shared ? wagma_shared_array(c->handle[r]) : arrays[r];
    for (int64_t i = 0; i < count; i++)
        x[i] = value;
    return x;
}

static int holds(const double *x, double value, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (x[i] != value)
            return 0;
    return 1;
}

/* Rank 0 posts and goes away. Rank 1 completes the version alone; rank 0 finds it done. */
static void check_arrival(int quorum, int64_t count, int shared, int waits) {
    wagma_options options = options_of(2, 2, quorum, count);
    wagma_outcome o = {0};
    cast c;
    options.grace = 20; /* the posted rank is not awaited */
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    for (int64_t t = 0; t < 5; t++) {
        double *x = filled(&c, 0, 1, count, shared), *y = filled(&c, 1, 10, count, shared);
        CHECK(wagma_post(c.handle[0], x, 1, t == 3) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        CHECK(wagma_version(c.handle[0]) == t, "a posted version counts as called");
        const int status =
            t == 3 ? wagma_sync(c.handle[1], y, 1, &o) : wagma_allreduce(c.handle[1], y, 1, &o);
        CHECK(status == WAGMA_OK, "%s", wagma_last_error());
        CHECK(o.contributors_count == 2 && o.weight == 2 && !o.late, "version %" PRId64, t);
        CHECK(shared || holds(x, 1, count), "x was touched");
        if (waits)
            CHECK(wagma_wait(c.handle[0], x, -1, &o) == WAGMA_OK, "%s", wagma_last_error());
        else
            CHECK(wagma_test(c.handle[0], x, &o) == WAGMA_OK, "%s", wagma_last_error());
        CHECK(o.version == t && !o.late && o.merged && o.contributors_count == 2 && o.waited == 0,
              "version %" PRId64 " late %d waited %g", o.version, o.late, o.waited);
        CHECK(wagma_version(c.handle[0]) == t + 1, "the version was not counted");
        CHECK(holds(x, 11, count) && holds(y, 11, count), "%g %g", x[0], y[0]);
    }
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

static void test_posting_is_arriving(void) {
    for (int quorum = WHOLE; quorum <= 1; quorum++)
        for (int k = 0; k < COUNTS; k++)
            for (int way = 0; way < 4; way++)
                check_arrival(quorum, counts[k], way & 1, way >> 1);
}

/* The last rank to post reduces its share of the slices, from the end of the array on, and no more;
 * the first that waits does the rest without it. */
static void check_share(int size) {
    enum { SLICE = (32 << 10) / (int)sizeof(double) }; /* of an array of this size */
    wagma_options options = options_of(size, size, WHOLE, LARGE);
    wagma_outcome o = {0};
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    const int64_t slices = (LARGE + SLICE - 1) / SLICE,
                  rest = (slices - (slices + size - 1) / size) * SLICE;
    for (int64_t t = 0; t < 3; t++) {
        for (int r = 0; r < size; r++) {
            double *x = filled(&c, r, 1, LARGE, 1);
            CHECK(wagma_post(c.handle[r], x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
            for (int q = 0; q <= r; q++) {
                const double *y = wagma_shared_array(c.handle[q]);
                CHECK(holds(y, 1, r == size - 1 ? 0 : LARGE), "rank %d reduced after rank %d", q,
                      r);
                CHECK(r < size - 1 || holds(y + rest, size, LARGE - rest), "too few of rank %d", q);
                CHECK(r < size - 1 || holds(y, 1, rest), "too many slices");
            }
        }
        for (int r = 0; r < size; r++) {
            double *x = wagma_shared_array(c.handle[r]);
            CHECK(wagma_wait(c.handle[r], x, -1, &o) == WAGMA_OK, "%s", wagma_last_error());
            CHECK(o.waited == 0 && holds(x, size, LARGE), "rank %d waited %g", r, o.waited);
        }
    }
    cast_close(&c);
}

static void test_the_last_to_post_reduces_its_share(void) {
    check_share(2);
    check_share(3);
}

/* Rank 0 runs ahead: where publishing has to wait, posting does not, but tests and waits do. */
static void check_window(int quorum, int64_t count) {
    wagma_options options = options_of(2, quorum == WHOLE ? 1 : 2, quorum, count);
    wagma_outcome o = {0};
    cast c;
    options.window = 3;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    double *x = filled(&c, 0, 1, count, 0), *y = filled(&c, 1, 1, count, 0);
    for (int64_t t = 0; t < 3; t++)
        CHECK(wagma_allreduce(c.handle[0], x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_post(c.handle[0], x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    CHECK(wagma_test(c.handle[0], x, &o) == WAGMA_INPROGRESS, "beyond the window");
    REFUSED(wagma_wait(c.handle[0], x, 0.001, &o), WAGMA_INPROGRESS, "version 3", "window",
            "for rank 1, which");
    CHECK(quorum == WHOLE || published(c.segment, 0) == 2, "published beyond the window");
    CHECK(wagma_version(c.handle[0]) == 3, "%" PRId64, wagma_version(c.handle[0]));
    CHECK(wagma_allreduce(c.handle[1], y, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_test(c.handle[0], x, &o) == WAGMA_OK && o.version == 3, "%s", wagma_last_error());
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

static void test_posting_does_not_wait(void) {
    for (int k = 0; k < COUNTS; k++) {
        check_window(WHOLE, counts[k]);
        check_window(1, counts[k]);
    }
}

/* Nobody else comes: waits end in time, name who is missing, and can be repeated. */
static void check_time(int quorum, int64_t count, int sync) {
    wagma_options options = options_of(3, 3, quorum, count);
    wagma_outcome o = {0};
    wagma_stats stats;
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    double *x = filled(&c, 0, 1, count, 0), *y = filled(&c, 2, 10, count, 0);
    CHECK(wagma_post(c.handle[2], y, 1, sync) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    CHECK(wagma_post(c.handle[0], x, 1, sync) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    for (int i = 0; i < 3; i++) {
        const double began = seconds();
        REFUSED(wagma_wait(c.handle[0], x, i * 0.06, &o), WAGMA_INPROGRESS, "version 0",
                sync ? "sync" : "quorum", "for rank 1, which");
        CHECK(seconds() - began >= i * 0.06, "it ended after %g s", seconds() - began);
        CHECK(wagma_test(c.handle[0], x, &o) == WAGMA_INPROGRESS, "alone");
    }
    /* One that lost its core before its first pause has waited for less than it took. */
    for (int i = 0; i < 3 && c.handle[0]->call.waited < 180000000; i++)
        CHECK(wagma_wait(c.handle[0], x, 0.06, &o) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    CHECK(holds(x, 1, count), "x was touched");
    CHECK(wagma_start(c.handle[1], filled(&c, 1, 100, count, 0), 1, sync, &o) >= 0, "%s",
          wagma_last_error());
    CHECK(wagma_finish(c.handle[1], arrays[1], &o) != WAGMA_INPROGRESS, "%s", wagma_last_error());
    CHECK(wagma_wait(c.handle[0], x, 0, &o) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(o.waited >= 0.18 && holds(x, 111, count), "waited %g, %g", o.waited, x[0]);
    wagma_get_stats(c.handle[0], &stats);
    CHECK(stats.waited == o.waited && stats.calls == 1, "%g %g", stats.waited, o.waited);
    CHECK(wagma_wait(c.handle[2], y, 1e30, &o) == WAGMA_OK && holds(y, 111, count) && o.waited == 0,
          "%g", o.waited);
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

static void test_waits_end_in_time(void) {
    for (int k = 0; k < COUNTS; k++) {
        check_time(WHOLE, counts[k], 0);
        check_time(WHOLE, counts[k], 1);
        check_time(1, counts[k], 1);
    }
}

/* The posted buffer keeps what was contributed, and is another one in every call. */
static void check_out_of_place(int64_t count) {
    wagma_options options = options_of(2, 2, 1, count);
    wagma_outcome o;
    void *buffer, *same, *last = NULL;
    cast c;
    options.grace = 20; /* the posted rank is not awaited */
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    for (int64_t t = 0; t < 20; t++) {
        double *y = filled(&c, 1, 10, count, 0);
        CHECK(wagma_next_contribution(c.handle[0], &buffer) == WAGMA_OK, "%s", wagma_last_error());
        CHECK(wagma_next_contribution(c.handle[0], &same) == WAGMA_OK && same == buffer, "another");
        CHECK(buffer != last, "the published one");
        for (int64_t i = 0; i < count; i++)
            ((double *)buffer)[i] = 1;
        CHECK(wagma_post(c.handle[0], buffer, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        CHECK(wagma_allreduce(c.handle[1], y, 1, &o) == WAGMA_OK && o.result == NULL, "%s",
              wagma_last_error());
        CHECK(wagma_test(c.handle[0], buffer, &o) == WAGMA_OK && !o.late, "%s", wagma_last_error());
        CHECK(holds(buffer, 1, count) && holds(o.result, 11, count) && holds(y, 11, count), "%g",
              y[0]);
        CHECK(wagma_next_contribution(c.handle[0], &same) == WAGMA_OK && same != buffer,
              "the same");
        CHECK(holds(o.result, 11, count), "a view of the last call has changed");
        last = buffer;
    }
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

static void test_out_of_place(void) {
    for (int k = 0; k < COUNTS; k++)
        check_out_of_place(counts[k]);
}

/* ---- trouble --------------------------------------------------------------------------------- */

static int until_not_in_progress(wagma_handle *h, void *x) {
    int status = WAGMA_INPROGRESS;
    for (const double end = seconds() + WATCHDOG_SECONDS / 2;
         status == WAGMA_INPROGRESS && seconds() < end; usleep(500))
        status = wagma_test(h, x, NULL);
    return status;
}

/* Rank 1 fails after rank 0 has posted. */
static void check_failure(int quorum, int waits) {
    wagma_options options = both_of(quorum);
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    double *x = filled(&c, 0, 1, SMALL, 0);
    CHECK(wagma_post(c.handle[0], x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    CHECK(wagma_test(c.handle[0], x, NULL) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    wagma_fail(c.handle[1]);
    /* short waits that never reach a heartbeat find it, too */
    if (waits)
        REFUSED(wagma_wait(c.handle[0], x, 0.001, NULL), WAGMA_EPEER, "rank 1", "version 0");
    else
        REFUSED(until_not_in_progress(c.handle[0], x), WAGMA_EPEER, "rank 1", "version 0");
    REFUSED(wagma_test(c.handle[0], x, NULL), WAGMA_ECLOSED, "the handle failed earlier: rank 1");
    REFUSED(wagma_wait(c.handle[0], x, -1, NULL), WAGMA_ECLOSED, "failed earlier: rank 1");
    cast_drop(&c);
    CHECK(expectations_failed() == 0, "see above");
}

static void test_failed_rank(void) {
    for (int waits = 0; waits <= 1; waits++) {
        check_failure(WHOLE, waits);
        check_failure(1, waits);
    }
}

/* What the caller does between two tests is no waiting, but a loop around them is. */
static void check_stall(int quorum, int waits) {
    wagma_options options = both_of(quorum);
    cast c;
    options.timeout = 0.5;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    double *x = filled(&c, 0, 1, SMALL, 0);
    CHECK(wagma_post(c.handle[0], x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    sleep_ms(600);
    CHECK(wagma_test(c.handle[0], x, NULL) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    sleep_ms(600);
    CHECK(wagma_wait(c.handle[0], x, 0.01, NULL) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    int status = waits ? WAGMA_INPROGRESS : until_not_in_progress(c.handle[0], x);
    for (int i = 0; i < 1000 && status == WAGMA_INPROGRESS; i++)
        status = wagma_wait(c.handle[0], x, 0.01, NULL);
    REFUSED(status, WAGMA_ESTALL, "rank 0 has waited ", "at version 0 (phase ", "timeout 0.5 s",
            "for rank 1, which is alive and has not called yet");
    REFUSED(wagma_test(c.handle[0], x, NULL), WAGMA_ECLOSED, "failed earlier: rank 0 has waited");
    cast_drop(&c);
    CHECK(expectations_failed() == 0, "see above");
}

static void test_stall(void) {
    for (int waits = 0; waits <= 1; waits++) {
        check_stall(WHOLE, waits);
        check_stall(1, waits);
    }
}

enum { NOT_YET = -1 }; /* while the handles are made, which may take long */

static int always(void *context) {
    int *asked = context;
    return *asked != NOT_YET && ++*asked;
}

/* Who tests does not wait, so there is nothing to interrupt; who waits is interrupted. */
static void check_interrupt(int quorum) {
    wagma_options options = options_of(2, 2, quorum, SMALL);
    int asked = NOT_YET;
    const wagma_hooks hooks = {.context = &asked, .interrupted = always};
    cast c;
    CHECK(cast_open(&c, &options, NULL, &hooks), "%s", wagma_last_error());
    double *x = filled(&c, 0, 1, SMALL, 0);
    asked = 0;
    CHECK(wagma_post(c.handle[0], x, 1, 1) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    for (const double end = seconds() + 0.12; seconds() < end; usleep(500))
        CHECK(wagma_test(c.handle[0], x, NULL) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    CHECK(asked == 0, "a test was interrupted");
    REFUSED(wagma_wait(c.handle[0], x, -1, NULL), WAGMA_EINTERRUPTED, "interrupted");
    cast_drop(&c);
    CHECK(expectations_failed() == 0, "see above");
}

static void test_interrupted(void) {
    check_interrupt(WHOLE);
    check_interrupt(1);
}

/* ---- misuse ---------------------------------------------------------------------------------- */

static void check_misuse(int quorum) {
    wagma_options options = both_of(quorum);
    double x[SMALL] = {1, 1, 1}, y[SMALL] = {0};
    void *buffer = x;
    wagma_outcome o;
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    wagma_handle *h = c.handle[0];
    REFUSED(wagma_post(NULL, x, 1, 0), WAGMA_EINVAL, "handle", "NULL");
    REFUSED(wagma_test(NULL, x, &o), WAGMA_EINVAL, "handle", "NULL");
    REFUSED(wagma_wait(NULL, x, -1, &o), WAGMA_EINVAL, "handle", "NULL");
    REFUSED(wagma_next_contribution(NULL, &buffer), WAGMA_EINVAL, "handle", "NULL");
    REFUSED(wagma_post(h, NULL, 1, 0), WAGMA_EINVAL, "x is NULL");
    REFUSED(wagma_post(h, x, -1, 0), WAGMA_EINVAL, "weight=-1");
    REFUSED(wagma_test(h, x, &o), WAGMA_EINVAL, "no call", "start one first", "wagma_post");
    REFUSED(wagma_wait(h, x, -1, &o), WAGMA_EINVAL, "no call", "start one first");
    CHECK(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    REFUSED(wagma_post(h, y, 1, 0), WAGMA_EINVAL, "in progress", "version 0", "wagma_wait");
    REFUSED(wagma_allreduce(h, y, 1, &o), WAGMA_EINVAL, "in progress", "wagma_wait");
    REFUSED(wagma_sync(h, y, 1, &o), WAGMA_EINVAL, "in progress");
    REFUSED(wagma_close(h), WAGMA_EINVAL, "in progress");
    REFUSED(wagma_next_contribution(h, &buffer), WAGMA_EINVAL, "in progress");
    CHECK(buffer == NULL, "a buffer after an error");
    REFUSED(wagma_test(h, y, &o), WAGMA_EINVAL, "x=", "started with");
    REFUSED(wagma_wait(h, y, 0, &o), WAGMA_EINVAL, "x=", "started with");
    REFUSED(wagma_wait(h, x, NAN, &o), WAGMA_EINVAL, "timeout=nan");
    CHECK(wagma_test(h, x, &o) == WAGMA_INPROGRESS && x[0] == 1, "a refused call had an effect");
    CHECK(wagma_allreduce(c.handle[1], y, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_test(h, x, NULL) == WAGMA_OK && x[0] == 1, "%s", wagma_last_error());
    REFUSED(wagma_test(h, x, &o), WAGMA_EINVAL, "no call");
    CHECK(wagma_close(h) == WAGMA_OK, "%s", wagma_last_error());
    REFUSED(wagma_post(h, x, 1, 0), WAGMA_ECLOSED, "closed");
    REFUSED(wagma_test(h, x, &o), WAGMA_ECLOSED, "closed");
    REFUSED(wagma_next_contribution(h, &buffer), WAGMA_ECLOSED, "closed");
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

static void test_misuse(void) {
    check_misuse(WHOLE);
    check_misuse(1);
}

static void test_no_contribution_buffers(void) {
    const int types[] = {WAGMA_F16, WAGMA_BF16};
    void *buffer;
    cast c;
    wagma_options options = options_of(2, 2, WHOLE, SMALL);
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    REFUSED(wagma_next_contribution(c.handle[0], &buffer), WAGMA_EINVAL,
            "the quorum is every member of a group", "wagma_shared_array()", "empty()");
    cast_close(&c);
    for (int i = 0; i < 2; i++) {
        options = options_of(2, 2, 1, SMALL);
        options.dtype = types[i];
        options.average = 1;
        CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
        REFUSED(wagma_next_contribution(c.handle[0], &buffer), WAGMA_EINVAL, "dtype is", "average",
                "float32");
        cast_close(&c);
    }
    CHECK(expectations_failed() == 0, "see above");
}

/* A posted call that is abandoned: whoever needs the rank from then on is told. With quorum "all"
 * that is this very version, whose result the rank would have to take. */
static void test_freed_while_pending(void) {
    for (int quorum = WHOLE; quorum <= 1; quorum++) {
        wagma_options options = options_of(2, 2, quorum, LARGE);
        cast c;
        CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
        double *x = filled(&c, 1, 10, LARGE, 0);
        CHECK(wagma_post(c.handle[0], filled(&c, 0, 1, LARGE, 0), 1, 0) == WAGMA_INPROGRESS, "%s",
              wagma_last_error());
        wagma_free(c.handle[0]);
        c.handle[0] = NULL;
        if (quorum != WHOLE) {
            CHECK(wagma_allreduce(c.handle[1], x, 1, NULL) == WAGMA_OK && holds(x, 11, LARGE), "%s",
                  wagma_last_error());
            REFUSED(wagma_sync(c.handle[1], x, 1, NULL), WAGMA_EPEER, "rank 0", "version 1");
        } else {
            REFUSED(wagma_allreduce(c.handle[1], x, 1, NULL), WAGMA_EPEER, "rank 0", "version 0");
        }
        cast_drop(&c);
    }
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    RUN(test_posting_is_arriving);
    RUN(test_the_last_to_post_reduces_its_share);
    RUN(test_posting_does_not_wait);
    RUN(test_waits_end_in_time);
    RUN(test_out_of_place);
    RUN(test_failed_rank);
    RUN(test_stall);
    RUN(test_interrupted);
    RUN(test_misuse);
    RUN(test_no_contribution_buffers);
    RUN(test_freed_while_pending);
    return check_summary();
}
