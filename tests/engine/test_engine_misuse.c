/* Wrong arguments and calls out of order: a status, a message that names what is wrong, and a
 * handle that goes on working. */
/* short run: c */
#include "check.h"
#include "support.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>

/* In the middle of version 0 of ranks 0 and 1 of 3, quorum 2; rank 1 then makes it happen. */
static void test_halves_of_a_call(void) {
    wagma_options options = options_of(3, 3, 2, 2);
    double x[2] = {1, 2}, y[2] = {10, 20};
    wagma_outcome o;
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    REFUSED(wagma_finish(c.handle[0], x, &o), WAGMA_EINVAL, "no call", "start one first");
    CHECK(wagma_start(c.handle[0], x, 1, 0, &o) == WAGMA_INPROGRESS, "alone");
    REFUSED(wagma_start(c.handle[0], x, 1, 0, &o), WAGMA_EINVAL, "in progress", "finish it");
    REFUSED(wagma_allreduce(c.handle[0], x, 1, &o), WAGMA_EINVAL, "in progress", "finish it");
    REFUSED(wagma_close(c.handle[0]), WAGMA_EINVAL, "in progress", "finish it");
    REFUSED(wagma_finish(c.handle[0], y, &o), WAGMA_EINVAL, "x=", "started with");
    CHECK(wagma_version(c.handle[0]) == 0, "a refused call counts");
    CHECK(wagma_start(c.handle[1], y, 1, 0, NULL) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_finish(c.handle[0], x, &o) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(x[0] == 11 && x[1] == 22 && y[0] == 11 && y[1] == 22, "%g %g", x[0], x[1]);
    REFUSED(wagma_finish(c.handle[0], x, &o), WAGMA_EINVAL, "no call");
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

static void test_arguments_of_calls(void) {
    wagma_options options = options_of(2, 2, 1, 1);
    double x = 5;
    wagma_outcome o;
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    REFUSED(wagma_allreduce(NULL, &x, 1, &o), WAGMA_EINVAL, "handle", "NULL");
    REFUSED(wagma_sync(NULL, &x, 1, &o), WAGMA_EINVAL, "handle", "NULL");
    REFUSED(wagma_finish(NULL, &x, &o), WAGMA_EINVAL, "handle", "NULL");
    REFUSED(wagma_close(NULL), WAGMA_EINVAL, "handle", "NULL");
    REFUSED(wagma_allreduce(c.handle[0], NULL, 1, &o), WAGMA_EINVAL, "x is NULL", "1 elements");
    REFUSED(wagma_allreduce(c.handle[0], &x, -0.5, &o), WAGMA_EINVAL, "weight=-0.5", "negative");
    REFUSED(wagma_allreduce(c.handle[0], &x, NAN, &o), WAGMA_EINVAL, "weight=", "nan", "finite");
    REFUSED(wagma_sync(c.handle[0], &x, INFINITY, &o), WAGMA_EINVAL, "weight=", "inf", "finite");
    CHECK(x == 5 && wagma_version(c.handle[0]) == 0, "a refused call had an effect");
    CHECK(wagma_allreduce(c.handle[0], &x, 1, NULL) == WAGMA_OK && x == 5, "%s",
          wagma_last_error());
    cast_close(&c);
    wagma_free(NULL);
    wagma_fail(NULL);
    CHECK(expectations_failed() == 0, "see above");
}

/* Weights that the type of the sums cannot hold, or whose sums it cannot, would give NaN. */
static void test_range_of_weights(void) {
    const int types[] = {WAGMA_F32, WAGMA_F16, WAGMA_BF16, WAGMA_F64};
    for (int i = 0; i < 4; i++) {
        wagma_options options = options_of(2, 2, 1, 1);
        double x = 0;
        cast c;
        options.dtype = types[i];
        CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
        if (types[i] == WAGMA_F64) {
            REFUSED(wagma_allreduce(c.handle[0], &x, 1e301, NULL), WAGMA_EINVAL, "weight=1e+301",
                    "sum of all ranks' weights");
            CHECK(wagma_allreduce(c.handle[0], &x, 1e300, NULL) == WAGMA_OK, "%s",
                  wagma_last_error());
        } else {
            REFUSED(wagma_allreduce(c.handle[0], &x, 1e31, NULL), WAGMA_EINVAL, "weight=1e+31",
                    "1e-30 to 1e30", "float64");
            REFUSED(wagma_allreduce(c.handle[0], &x, 1e-50, NULL), WAGMA_EINVAL, "weight=1e-50");
            CHECK(wagma_allreduce(c.handle[0], &x, 1e30, NULL) == WAGMA_OK, "%s",
                  wagma_last_error());
        }
        cast_close(&c);
    }
    CHECK(expectations_failed() == 0, "see above");
}

static void test_types(void) {
    wagma_options options = options_of(2, 2, 1, 1);
    wagma_segment *s;
    int32_t x = 7;
    wagma_outcome o;
    cast c;
    options.dtype = WAGMA_I32;
    options.average = 1;
    REFUSED(wagma_segment_create(&options, NULL, &s), WAGMA_ETYPE, "average", "i", "set average");
    options.average = 0;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    REFUSED(wagma_allreduce(c.handle[0], &x, 0.5, &o), WAGMA_ETYPE, "weight=0.5", "whole",
            "floating");
    CHECK(wagma_allreduce(c.handle[0], &x, 2, &o) == WAGMA_OK && x == 14 && o.weight == 3, "%d", x);
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

static void test_creation(void) {
    wagma_options options = options_of(2, 2, 1, 1);
    wagma_segment *s;
    wagma_handle *h = (wagma_handle *)&options;
    CHECK(wagma_segment_create(&options, NULL, &s) == WAGMA_OK, "%s", wagma_last_error());
    REFUSED(wagma_create(NULL, 0, NULL, 1, NULL, &h), WAGMA_EINVAL, "segment", "NULL");
    CHECK(h == NULL, "a handle after an error");
    REFUSED(wagma_create(s, 2, NULL, 1, NULL, &h), WAGMA_EINVAL, "rank=2", "0..1");
    REFUSED(wagma_create(s, -1, NULL, 1, NULL, &h), WAGMA_EINVAL, "rank=-1", "0..1");
    REFUSED(wagma_create(s, 0, NULL, -1, NULL, &h), WAGMA_EINVAL, "weight=-1");
    wagma_segment_close(s);
    options.quorum = 3;
    REFUSED(wagma_segment_create(&options, NULL, &s), WAGMA_EINVAL, "quorum is 3",
            "group_size (2)");
    CHECK(s == NULL, "a segment after an error");
    CHECK(expectations_failed() == 0, "see above");
}

static void test_rank_twice(void) {
    wagma_options options = options_of(2, 2, 1, 1);
    wagma_handle *h;
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    REFUSED(wagma_create(c.segment, 1, NULL, 1, NULL, &h), WAGMA_EINVAL, "rank 1",
            "joined already");
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

static void test_after_close(void) {
    wagma_options options = options_of(2, 2, 1, 1);
    double x = 1;
    wagma_outcome o;
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    CHECK(wagma_close(c.handle[0]) == WAGMA_OK && wagma_close(c.handle[0]) == WAGMA_OK, "twice");
    REFUSED(wagma_allreduce(c.handle[0], &x, 1, &o), WAGMA_ECLOSED, "closed", "new one");
    REFUSED(wagma_sync(c.handle[0], &x, 1, &o), WAGMA_ECLOSED, "closed");
    REFUSED(wagma_finish(c.handle[0], &x, &o), WAGMA_ECLOSED, "closed");
    wagma_fail(c.handle[0]); /* departed it stays */
    CHECK(wagma_sync(c.handle[1], &x, 1, &o) == WAGMA_OK && x == 1, "%s", wagma_last_error());
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

static void test_broken_handle(void) {
    wagma_options options = options_of(2, 2, 1, 1);
    double x = 1;
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    wagma_fail(c.handle[0]);
    REFUSED(wagma_allreduce(c.handle[0], &x, 1, NULL), WAGMA_ECLOSED, "fail()", "new one");
    REFUSED(wagma_sync(c.handle[1], &x, 1, NULL), WAGMA_EPEER, "rank 0", "version 0", "sync");
    REFUSED(wagma_allreduce(c.handle[1], &x, 1, NULL), WAGMA_ECLOSED, "failed earlier", "rank 0");
    cast_drop(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- hooks ----------------------------------------------------------------------------------- */

enum { NOT_YET = -1 }; /* while the handles are made, which may take long */

static int stop_at_third(void *context) {
    int *asked = context;
    return *asked != NOT_YET && ++*asked >= 3;
}

static void test_interrupted(void) {
    wagma_options options = options_of(2, 2, 1, 1);
    int asked = NOT_YET;
    const wagma_hooks hooks = {.context = &asked, .interrupted = stop_at_third};
    double x = 1;
    cast c;
    options.timeout = 30;
    CHECK(cast_open(&c, &options, NULL, &hooks), "%s", wagma_last_error());
    asked = 0;
    REFUSED(wagma_sync(c.handle[0], &x, 1, NULL), WAGMA_EINTERRUPTED, "interrupted", "version 0",
            "sync");
    CHECK(asked == 3, "asked %d times", asked);
    cast_drop(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* A long grace does not hold an interrupted rank, nor one whose awaited member has failed. */
static void test_trouble_in_grace(void) {
    for (int failure = 0; failure <= 1; failure++) {
        wagma_options options = options_of(2, 2, 1, 1);
        int asked = NOT_YET;
        const wagma_hooks hooks = {.context = &asked, .interrupted = stop_at_third};
        double x = 1;
        cast c;
        options.grace = 40;
        CHECK(cast_open(&c, &options, NULL, failure ? NULL : &hooks), "%s", wagma_last_error());
        asked = 0;
        const double began = seconds();
        if (failure) {
            wagma_fail(c.handle[1]);
            CHECK(wagma_allreduce(c.handle[0], &x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
        } else {
            REFUSED(wagma_allreduce(c.handle[0], &x, 1, NULL), WAGMA_EINTERRUPTED, "interrupted",
                    "grace");
        }
        CHECK(seconds() - began < 20, "it took %g s", seconds() - began);
        cast_drop(&c);
    }
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    RUN(test_halves_of_a_call);
    RUN(test_arguments_of_calls);
    RUN(test_range_of_weights);
    RUN(test_types);
    RUN(test_creation);
    RUN(test_rank_twice);
    RUN(test_after_close);
    RUN(test_broken_handle);
    RUN(test_interrupted);
    RUN(test_trouble_in_grace);
    return check_summary();
}
