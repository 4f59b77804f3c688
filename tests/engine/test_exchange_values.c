/* Numbers in an exchange: the bits of a sum, NaN and infinity. */
#include "check.h"
#include "exchange_stage.h"
#include "base/mix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 8 };

/* Direct sums are those of one call of a kernel: what ranks that share memory get. */
static void test_direct_sums_as_one_kernel(void) {
    for (int t = 0; t < WAGMA_I32; t++) {
        wagma_options o = options_of_algorithm(MEMBERS, SCHEDULE_DIRECT, 5003);
        o.dtype = t;
        stage s;
        CHECK(open_stage(&s, &o, 0) == 0, "%s", wagma_last_error());
        const void *inputs[MEMBERS];
        double weights[MEMBERS], total = 0;
        for (int r = 0; r < MEMBERS; r++) {
            for (size_t i = 0; i < s.count; i++)
                element_put(s.dtype, s.input[r], i,
                            (double)(int64_t)mix((uint64_t)r << 32 | i) * 0x1p-62);
            set_start(&s, r, 0.1 + r);
            s.parts[r].start.divide = 1;
            inputs[r] = s.input[r], weights[r] = 0.1 + r;
            total += weights[r];
        }
        const char *wrong = crew_run(&s.crew, s.parts, 1);
        CHECK(!wrong, "%s", wrong);
        unsigned char *sum = malloc(s.count * 8);
        reduce_best()->sum(s.dtype, sum, inputs, weights, MEMBERS, total, s.count);
        const int same = memcmp(sum, s.result[3], s.count * reduce_dtype_size(s.dtype)) == 0;
        free(sum);
        crew_release(&s.crew, s.parts, 1);
        close_stage(&s);
        CHECK(same, "%s: other bits", reduce_dtype_name((wagma_dtype)t));
    }
}

static void test_nan_and_infinity_are_carried(void) {
    for (int a = 0; a < SCHEDULE_ALGORITHMS; a++)
        for (int t = 0; t < WAGMA_I32; t++) {
            wagma_options o = options_of_algorithm(6, (schedule_algorithm)a, 4000);
            o.dtype = t;
            stage s;
            CHECK(open_stage(&s, &o, 0) == 0, "%s", wagma_last_error());
            element_put(s.dtype, s.input[2], 100, (double)NAN);
            element_put(s.dtype, s.input[3], 200, (double)INFINITY);
            element_put(s.dtype, s.input[4], 3999, -(double)INFINITY);
            element_put(s.dtype, s.input[5], 3999, (double)INFINITY);
            const char *wrong = run_version(&s);
            CHECK(!wrong, "%s", wrong);
            for (int r = 0; r < s.n; r++) {
                const unsigned char *x = s.result[r];
                CHECK(isnan(element_get(s.dtype, x, 100)) && isinf(element_get(s.dtype, x, 200)) &&
                          isnan(element_get(s.dtype, x, 3999)) && element_get(s.dtype, x, 101) == 0,
                      "%s, %s", schedule_name((schedule_algorithm)a), reduce_dtype_name(s.dtype));
            }
            close_stage(&s);
        }
}

int main(void) {
    RUN(test_direct_sums_as_one_kernel);
    RUN(test_nan_and_infinity_are_carried);
    return check_summary();
}
