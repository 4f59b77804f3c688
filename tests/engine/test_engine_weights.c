/* Weights and element types (I8): contributions of weight 0 are never read, divisors add up, and
 * every type is summed exactly where it can be. */
#include "check.h"
#include "support.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 37, SIZE = 3 };

static const int dtypes[] = {WAGMA_F32, WAGMA_F64, WAGMA_F16, WAGMA_BF16, WAGMA_I32, WAGMA_I64};
static const char *const dtype_name[] = {"f32", "f64", "f16", "bf16", "i32", "i64"};

/* ---- element types, for the small numbers used here ------------------------------------------ */

static uint16_t half_of(double value) {
    int exponent;
    const double fraction = frexp(fabs(value), &exponent); /* in [0.5, 1) */
    if (value == 0)
        return 0;
    return (uint16_t)((value < 0) << 15 | (exponent + 14) << 10 |
                      ((int)ldexp(fraction, 11) & 0x3ff));
}

static void put(int dtype, void *x, int i, double value) {
    const float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    switch (dtype) {
    case WAGMA_F32: ((float *)x)[i] = f; break;
    case WAGMA_F64: ((double *)x)[i] = value; break;
    case WAGMA_F16: ((uint16_t *)x)[i] = isnan(value) ? 0x7e00 : half_of(value); break;
    case WAGMA_BF16: ((uint16_t *)x)[i] = (uint16_t)(bits >> 16); break;
    case WAGMA_I32: ((int32_t *)x)[i] = (int32_t)value; break;
    default: ((int64_t *)x)[i] = (int64_t)value;
    }
}

/* The bits of element i. */
static uint64_t bits_of(int dtype, const void *x, int i) {
    const size_t size = dtype == WAGMA_F64 || dtype == WAGMA_I64    ? 8
                        : dtype == WAGMA_F16 || dtype == WAGMA_BF16 ? 2
                                                                    : 4;
    uint64_t bits = 0;
    memcpy(&bits, (const char *)x + size * (size_t)i, size);
    return bits;
}

/* ---- ranks that run freely ------------------------------------------------------------------- */

typedef struct plan {
    int dtype, fractional;
    int64_t versions;
    _Atomic int unchanged, weightless;
} plan;

static double weight_of(const plan *p, int rank, int64_t version) {
    static const double whole[] = {1, 0, 2, 1, 0, 3, 0}, half[] = {1, 0, 0.5, 2, 0, 0.25, 0};
    if (version < 0)
        return 1;
    return (p->fractional ? half : whole)[(version * 3 + rank * 2) % 7];
}

/* At most 7 in magnitude: sums are whole or exact fractions in all types. */
static double value_of(const plan *p, int rank, int64_t version, int i) {
    if (weight_of(p, rank, version) == 0 && p->dtype != WAGMA_I32 && p->dtype != WAGMA_I64)
        return NAN;
    return (double)((version * 5 + rank * 3 + i) % 15 - 7);
}

static double expected(const plan *p, int rank, int i, const wagma_outcome *o) {
    double sum = 0;
    for (int k = 0; k < o->contributors_count; k++)
        sum += weight_of(p, o->contributors[k], o->versions[k]) *
               value_of(p, o->contributors[k], o->versions[k], i);
    const double own = weight_of(p, rank, o->version);
    return o->late && own != 0 ? sum + own * value_of(p, rank, o->version, i) : sum;
}

static void check_outcome(plan *p, int rank, const void *x, const wagma_outcome *o) {
    unsigned char want[8 * COUNT] = {0};
    double divisor = o->late ? weight_of(p, rank, o->version) : 0;
    for (int k = 0; k < o->contributors_count; k++)
        divisor += weight_of(p, o->contributors[k], o->versions[k]);
    for (int k = 0; k < o->contributors_count; k++)
        EXPECT(weight_of(p, o->contributors[k], o->versions[k]) != 0, "rank %d is listed",
               o->contributors[k]);
    EXPECT(o->weight == divisor, "rank %d version %" PRId64 ": weight %g instead of %g", rank,
           o->version, o->weight, divisor);
    EXPECT(o->merged || o->late || divisor == 0, "version %" PRId64 " is not merged", o->version);
    for (int i = 0; i < COUNT; i++) {
        put(p->dtype, want, i,
            o->merged ? expected(p, rank, i, o) : value_of(p, rank, o->version, i));
        const uint64_t bits = bits_of(p->dtype, x, i), wanted = bits_of(p->dtype, want, i);
        if (!EXPECT(bits == wanted,
                    "%s rank %d version %" PRId64 " late %d merged %d weight %g: x[%d] has bits "
                    "%#" PRIx64 " instead of %#" PRIx64,
                    dtype_name[p->dtype], rank, o->version, o->late, o->merged, o->weight, i, bits,
                    wanted))
            break;
    }
    p->unchanged += !o->merged;
    p->weightless += weight_of(p, rank, o->version) == 0 && o->merged;
}

static void run_weighted(rank *me) {
    plan *p = me->shared;
    unsigned char x[8 * COUNT];
    for (int i = 0; i < COUNT; i++)
        put(p->dtype, x, i, value_of(p, me->rank, -1, i));
    wagma_handle *h = rank_join(me, x);
    while (h && wagma_version(h) < p->versions) {
        const int64_t t = wagma_version(h);
        wagma_outcome o;
        for (int i = 0; i < COUNT; i++)
            put(p->dtype, x, i, value_of(p, me->rank, t, i));
        jitter(me);
        if (!EXPECT(wagma_allreduce(h, x, weight_of(p, me->rank, t), &o) == WAGMA_OK, "rank %d: %s",
                    me->rank, wagma_last_error()))
            break;
        check_outcome(p, me->rank, x, &o);
    }
    wagma_close(h);
    wagma_free(h);
}

static void check_free_run(int dtype, int group_size, int fractional) {
    plan *p = shared_memory(sizeof *p);
    wagma_options o = options_of(SIZE, group_size, 1, COUNT);
    o.dtype = dtype;
    o.sync_period = 6;
    *p = (plan){.dtype = dtype, .fractional = fractional, .versions = 400 / SLOWDOWN};
    team_join_clean(team_start(THREADS, &o, run_weighted, p));
    CHECK(expectations_failed() == 0, "%s S=%d", dtype_name[dtype], group_size);
    CHECK(p->unchanged > 0 && p->weightless > 0, "%s: %d without a merge, %d of weight 0 merged",
          dtype_name[dtype], p->unchanged, p->weightless);
}

static void test_whole_weights(void) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (int group_size = 2; group_size <= SIZE; group_size++)
            check_free_run(dtypes[i], group_size, 0);
}

static void test_fractional_weights(void) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i] != WAGMA_I32 && dtypes[i] != WAGMA_I64)
            check_free_run(dtypes[i], SIZE, 1);
}

/* ---- by hand --------------------------------------------------------------------------------- */

/* All weights 0: x stays, and is not merged, fresh (here: of both, one at a time) or late. */
static void test_divisor_zero(void) {
    for (int average = 0; average <= 1; average++) {
        wagma_options options = options_of(2, 2, 1, 1);
        double x = 3;
        wagma_outcome o;
        cast c;
        options.average = average;
        CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
        CHECK(wagma_allreduce(c.handle[0], &x, 0, &o) == WAGMA_OK, "%s", wagma_last_error());
        CHECK(x == 0 && o.merged && o.weight == 1 && o.contributors_count == 1 &&
                  o.contributors[0] == 1 && o.versions[0] == -1,
              "%g: the first contribution of rank 1 is zero, of weight 1", x);
        x = 4;
        CHECK(wagma_allreduce(c.handle[1], &x, 0, &o) == WAGMA_OK, "%s", wagma_last_error());
        CHECK(x == 0 && o.late && o.merged && o.weight == 1, "%g weight %g", x, o.weight);
        for (int r = 1; r >= 0; r--) { /* version 1: fresh, then late */
            x = 5;
            CHECK(wagma_allreduce(c.handle[r], &x, 0, &o) == WAGMA_OK, "%s", wagma_last_error());
            CHECK(x == 5 && o.late == !r && !o.merged && o.weight == 0 && o.contributors_count == 0,
                  "rank %d: %g merged %d weight %g", r, x, o.merged, o.weight);
        }
        x = 6;
        CHECK(wagma_allreduce(c.handle[0], &x, 0.5, &o) == WAGMA_OK, "%s", wagma_last_error());
        CHECK(x == (average ? 6 : 3) && o.merged && o.weight == 0.5, "%g weight %g", x, o.weight);
        cast_close(&c);
    }
    CHECK(expectations_failed() == 0, "see above");
}

/* An average of 16-bit floats is finite where their sum is not, and is rounded once: fresh, taken
 * by all of a larger group, and merged late. */
static void test_16_bit_averages(void) {
    const int types[] = {WAGMA_F16, WAGMA_BF16};
    const double values[] = {30000, 1.0078125}; /* bf16 has the range of f32 */
    for (int i = 0; i < 2; i++) {
        wagma_options options = options_of(SIZE, SIZE, 1, 1);
        uint16_t initial, x;
        const void *const first[SIZE] = {&initial, &initial, &initial};
        wagma_outcome o;
        cast c;
        options.dtype = types[i];
        options.average = 1;
        put(types[i], &initial, 0, values[i]);
        CHECK(cast_open(&c, &options, first, NULL), "%s", wagma_last_error());
        for (int t = 0; t < 3; t++)
            for (int r = 0; r < SIZE; r++) { /* the first one is fresh, the others are late */
                const int weight = t == 1 ? 1024 : 1;
                x = initial;
                CHECK(wagma_allreduce(c.handle[r], &x, weight, &o) == WAGMA_OK, "%s",
                      wagma_last_error());
                CHECK(o.merged && o.late == (r > 0) && x == initial,
                      "%s t=%d rank %d: %#x is not %#x", dtype_name[types[i]], t, r, x, initial);
            }
        cast_close(&c);
    }
    CHECK(expectations_failed() == 0, "see above");
}

/* Groups of one: x is the result, of the weight that was given. */
static void test_group_of_one(void) {
    wagma_options options = options_of(3, 2, 1, 1); /* {a, b} and {c} */
    wagma_outcome o;
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    int alone = 0;
    for (int t = 0; t < 6; t++)
        for (int r = 0; r < SIZE; r++) {
            int32_t members[2];
            const int n = wagma_group_of(r, SIZE, 2, 0, 0, t, members);
            double x = 10 + t;
            const double weight = t % 2 ? 0.5 : 0;
            CHECK(wagma_allreduce(c.handle[r], &x, weight, &o) == WAGMA_OK, "%s",
                  wagma_last_error());
            if (n > 1)
                continue;
            alone++;
            CHECK(x == (weight ? weight * (10 + t) : 10 + t) && !o.late && o.weight == weight &&
                      o.merged == (weight != 0) && o.contributors_count == o.merged,
                  "t=%d rank %d: %g weight %g merged %d", t, r, x, o.weight, o.merged);
        }
    CHECK(alone == 6, "%d", alone);
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    RUN(test_whole_weights);
    RUN(test_fractional_weights);
    RUN(test_divisor_zero);
    RUN(test_16_bit_averages);
    RUN(test_group_of_one);
    return check_summary();
}
