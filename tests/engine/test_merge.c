/* What a fresh, a late and a carried contribution give, against sums that are taken from the
 * definition: every late rule, with and without average, all weights (pure). */
/* short run: c asan */
#include "check.h"
#include "element.h"
#include "engine/merge.h"

#include <math.h>
#include <string.h>

enum { MEMBERS = 3, COUNT = 5 };

static const double weights[] = {0, 1, 0.25};
static const wagma_dtype dtypes[] = {WAGMA_F64,  WAGMA_F32, WAGMA_F16,
                                     WAGMA_BF16, WAGMA_I32, WAGMA_I64};
#define LENGTH(array) (sizeof(array) / sizeof *(array))

typedef struct example { /* one version, as one of its members sees it */
    int rule, average, out_of_place, late;
    wagma_dtype dtype;
    double own;             /* weight of this call */
    double weight[MEMBERS]; /* of each member's newest contribution */
    int absent[MEMBERS];    /* it is none of this version */
} example;

static int is_half(wagma_dtype dtype) {
    return dtype == WAGMA_F16 || dtype == WAGMA_BF16;
}

/* Small whole numbers, of different signs: sums are exact in every type. */
static double value(int member, int i) {
    return (member * 7 + i * 5) % 13 - 6;
}

static double own_value(int i) {
    return 4 - 3 * i;
}

/* ---- from the definition --------------------------------------------------------------------- */

static int holds(const example *x, int m) {
    return x->rule == WAGMA_LATE_STALE || !x->absent[m];
}

/* Weight of the members that count. */
static double total_of(const example *x) {
    double total = 0;
    for (int m = 0; m < MEMBERS; m++)
        if (holds(x, m) || x->rule == WAGMA_LATE_CARRY)
            total += x->weight[m];
    return total;
}

static int merges_own(const example *x) {
    return x->late && x->rule == WAGMA_LATE_STALE;
}

static double divisor_of(const example *x) {
    return total_of(x) + (merges_own(x) ? x->own : 0);
}

static double numerator_of(const example *x, int i) {
    double sum = merges_own(x) ? x->own * own_value(i) : 0;
    for (int m = 0; m < MEMBERS; m++)
        sum += holds(x, m) ? x->weight[m] * value(m, i) : 0;
    return sum;
}

static int is_undivided(const example *x) {
    return !x->average || (x->out_of_place && x->rule == WAGMA_LATE_STALE);
}

static double result_of(const example *x, int i) {
    return is_undivided(x) ? numerator_of(x, i) : numerator_of(x, i) / divisor_of(x);
}

/* 16-bit averages are rounded where they are stored, and again where they are merged. */
static double error_of(const example *x, double wanted) {
    const double digits = x->dtype == WAGMA_F16 ? 0x1p-10 : x->dtype == WAGMA_BF16 ? 0x1p-7 : 0;
    const double single = x->dtype == WAGMA_F32 ? 0x1p-24 : 0;
    const double all = fabs(wanted) + 30;
    return x->average && digits != 0 ? 2 * digits * all : fabs(wanted) * single;
}

/* ---- as the executors do it ------------------------------------------------------------------ */

typedef struct arrays {
    unsigned char member[MEMBERS][8 * COUNT], own[8 * COUNT], stored[8 * COUNT], out[8 * COUNT];
} arrays;

static void fill(const example *x, arrays *a) {
    for (int i = 0; i < COUNT; i++) {
        for (int m = 0; m < MEMBERS; m++)
            element_put(x->dtype, a->member[m], (size_t)i, value(m, i));
        element_put(x->dtype, a->own, (size_t)i, own_value(i));
        element_put(x->dtype, a->stored, (size_t)i,
                    100); /* of no contribution it stays unwritten */
        element_put(x->dtype, a->out, (size_t)i, own_value(i));
    }
}

static struct policy policy_for(const example *x) {
    wagma_options o;
    wagma_options_init(&o);
    o.size = MEMBERS;
    o.quorum = 1;
    o.late = x->rule;
    o.average = x->average;
    o.dtype = (int32_t)x->dtype;
    return wagma_options_check(&o) == WAGMA_OK ? policy_of(&o) : (struct policy){0};
}

/* Stores the sum and delivers it. */
static struct merge merge_example(const example *x, arrays *a) {
    const reduce_kernels *kernels = reduce_best();
    const struct policy p = policy_for(x);
    const void *inputs[MEMBERS];
    double factors[MEMBERS], total = 0, data = 0;
    fill(x, a);
    for (int m = 0; m < MEMBERS; m++) {
        const struct merge_part part = merge_part(&p, holds(x, m), x->weight[m]);
        inputs[m] = a->member[m];
        factors[m] = part.weight;
        data += part.weight;
        total += part.share;
    }
    const struct merge m = merge_version(&p, total, x->late, x->own, x->out_of_place);
    if (data != 0 || p.ordered)
        kernels->sum(x->dtype, a->stored, inputs, factors, MEMBERS, m.stored, COUNT);
    merge_deliver(&m, kernels, x->dtype, a->out, a->stored, a->own, COUNT, 0);
    return m;
}

static int examples, failures;

#define MUST(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            if (failures++ == 0) {                                                                 \
                printf("  %s, where rule %d average %d out of place %d late %d dtype %d own %g: ", \
                       #condition, x->rule, x->average, x->out_of_place, x->late, (int)x->dtype,   \
                       x->own);                                                                    \
                printf(__VA_ARGS__);                                                               \
                printf("\n");                                                                      \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
    } while (0)

static void check_example(const example *x) {
    arrays a;
    const struct merge m = merge_example(x, &a);
    examples++;
    MUST(m.weight == divisor_of(x), "weight %g instead of %g", m.weight, divisor_of(x));
    for (int i = 0; i < COUNT; i++) {
        const double is = element_get(x->dtype, a.out, (size_t)i);
        const double wanted = m.weight == 0 ? own_value(i) : result_of(x, i);
        MUST(fabs(is - wanted) <= error_of(x, wanted), "x[%d] = %.9g instead of %.9g", i, is,
             wanted);
    }
}

static int is_possible(const example *x) {
    const int integer = reduce_dtype_is_integer(x->dtype);
    const int whole =
        x->own != 0.25 && x->weight[0] != 0.25 && x->weight[1] != 0.25 && x->weight[2] != 0.25;
    if (integer && (x->average || !whole))
        return 0;
    return !(x->out_of_place && x->average && is_half(x->dtype)); /* refused */
}

/* All weights of the members and of the call, and all that may be absent. */
static void check_weights(example x) {
    const int kinds = (int)LENGTH(weights);
    for (int w = 0; w < kinds * kinds * kinds * kinds; w++)
        for (int absent = 0; absent < 1 << MEMBERS; absent++) {
            x.own = weights[w % kinds];
            for (int m = 0, rest = w / kinds; m < MEMBERS; m++, rest /= kinds) {
                x.weight[m] = weights[rest % kinds];
                x.absent[m] = absent >> m & 1;
            }
            if (is_possible(&x))
                check_example(&x);
        }
}

static void check_rule(int rule) {
    for (int bits = 0; bits < 8; bits++)
        for (size_t d = 0; d < LENGTH(dtypes); d++)
            check_weights((example){.rule = rule,
                                    .average = bits & 1,
                                    .out_of_place = bits >> 1 & 1,
                                    .late = bits >> 2,
                                    .dtype = dtypes[d]});
    CHECK(failures == 0, "%d of %d examples", failures, examples);
    CHECK(examples > 10000, "%d examples", examples);
    examples = failures = 0;
}

static void test_stale(void) {
    check_rule(WAGMA_LATE_STALE);
}

static void test_skip(void) {
    check_rule(WAGMA_LATE_SKIP);
}

static void test_carry(void) {
    check_rule(WAGMA_LATE_CARRY);
}

/* ---- a rank whose group is itself ------------------------------------------------------------ */

static void test_alone(void) {
    for (int rule = 0; rule <= WAGMA_LATE_CARRY; rule++)
        for (int bits = 0; bits < 4; bits++) {
            const example x = {.rule = rule, .average = bits & 1, .dtype = WAGMA_F32};
            const struct policy p = policy_for(&x);
            const int out_of_place = bits >> 1;
            const int divided = x.average && (rule != WAGMA_LATE_STALE || !out_of_place);
            CHECK(merge_alone(&p, 0.25, out_of_place) == (divided ? 1 : 0.25), "rule %d %d", rule,
                  bits);
        }
}

/* ---- what is carried ------------------------------------------------------------------------- */

/* Calls in a row: bit k of `late`: call k is late; weight k is weights[digit k]. What the results
 * hold and what is carried in the end is all that was contributed. */
static void check_calls(int calls, int late, int digits, int rule) {
    const example kind = {.rule = rule, .average = 1, .dtype = WAGMA_F64};
    const struct policy p = policy_for(&kind);
    double contributed = 0, given = 0, carried = 0, carried_weight = 0;
    for (int k = 0; k < calls; k++, digits /= 3) {
        const double weight = weights[digits % 3], x = 3 + 5 * k;
        double contribution = x;
        const int is_late = late >> k & 1;
        contributed += weight * x;
        if (carried_weight != 0 && weight != 0)
            merge_add_carried(reduce_best(), WAGMA_F64, &contribution, &x, weight, &carried,
                              carried_weight, 1);
        given += is_late ? 0 : weight * contribution;
        switch (merge_carry(&p, is_late, weight)) {
        case MERGE_CARRY_AS_BEFORE: break;
        case MERGE_CARRY_THIS:
            carried = contribution;
            carried_weight = weight;
            break;
        case MERGE_CARRY_NOTHING: carried_weight = 0; break;
        }
        if (rule != WAGMA_LATE_CARRY)
            contributed -= is_late ? weight * x : 0;
    }
    CHECK(given + carried_weight * carried == contributed, "rule %d late %#x: %g + %g of %g", rule,
          (unsigned)late, given, carried_weight * carried, contributed);
}

static void test_carried_calls(void) {
    for (int rule = 0; rule <= WAGMA_LATE_CARRY; rule++)
        for (int late = 0; late < 1 << 4; late++)
            for (int digits = 0; digits < 3 * 3 * 3 * 3; digits++)
                check_calls(4, late, digits, rule);
}

/* ---- outcomes -------------------------------------------------------------------------------- */

typedef struct stage { /* a handle, as far as outcomes need it */
    wagma_handle handle;
    int32_t contributors[MEMBERS];
    int64_t versions[MEMBERS];
} stage;

static wagma_handle *open_stage(stage *s, int rule, int forward) {
    *s = (stage){.handle = {.rank = 2, .contributors = s->contributors, .versions = s->versions}};
    s->handle.policy = (struct policy){.ordered = rule != WAGMA_LATE_STALE, .forward = forward};
    s->handle.call = (call){.version = 7, .next = 8, .weight = 0.25};
    return &s->handle;
}

static void test_contributors(void) {
    stage s;
    wagma_handle *h = open_stage(&s, WAGMA_LATE_STALE, 0);
    merge_list(h, 0, 7, 1);
    merge_list(h, 1, 6, 0);
    merge_list(h, 2, 5, 0.5);
    merge_outcome(h, 1.5);
    const wagma_outcome *o = &h->outcome;
    CHECK(o->contributors_count == 2 && s.contributors[0] == 0 && s.contributors[1] == 2 &&
              s.versions[0] == 7 && s.versions[1] == 5,
          "of weight 0 a member is no contributor");
    CHECK(o->merged && o->weight == 1.5, "%d %g", o->merged, o->weight);
    merge_outcome(h, 0);
    CHECK(o->merged && o->weight == 0, "an earlier version was merged");
    merge_outcome_alone(h);
    CHECK(o->merged && o->weight == 0.25 && o->contributors_count == 1 && s.contributors[0] == 2 &&
              s.versions[0] == 7,
          "alone");
    h->call.weight = 0;
    merge_outcome_alone(h);
    CHECK(!o->merged && o->weight == 0 && o->contributors_count == 0, "alone, with nothing");
}

static void test_next_versions(void) {
    for (int late = 0; late <= 1; late++)
        for (int kind = 0; kind < 3; kind++) { /* stale, forward, ordered */
            stage s;
            wagma_handle *h =
                open_stage(&s, kind == 2 ? WAGMA_LATE_SKIP : WAGMA_LATE_STALE, kind == 1);
            h->outcome.late = late;
            merge_advance(h, late ? 9 : 7);
            CHECK(h->call.next == (late && kind ? 10 : 8), "next %ld", (long)h->call.next);
            CHECK(h->outcome.skipped == (late && kind == 1 ? 2 : 0), "skipped %ld",
                  (long)h->outcome.skipped);
        }
}

static void test_nothing_newer(void) {
    stage s;
    wagma_handle *h = open_stage(&s, WAGMA_LATE_STALE, 1);
    h->outcome.late = 1;
    merge_nothing(h);
    CHECK(!h->outcome.merged && h->outcome.weight == 0.25 && h->stats.unmerged == 1 &&
              h->call.next == 8 && h->outcome.contributors_count == 0,
          "x is unchanged");
}

static void test_shown_x(void) {
    stage s;
    const void *place;
    wagma_handle *h = open_stage(&s, WAGMA_LATE_SKIP, 0);
    h->call.x = &s;
    merge_show_x(h, &place);
    CHECK(h->outcome.results_count == 1 && h->outcome.results[0] == NULL, "nothing is merged");
    merge_outcome(h, 1);
    merge_show_x(h, &place);
    CHECK(h->outcome.results_count == 1 && h->outcome.results[0] == &s, "the result is x");
}

int main(void) {
    RUN(test_stale);
    RUN(test_skip);
    RUN(test_carry);
    RUN(test_alone);
    RUN(test_carried_calls);
    RUN(test_contributors);
    RUN(test_next_versions);
    RUN(test_nothing_newer);
    RUN(test_shown_x);
    return check_summary();
}
