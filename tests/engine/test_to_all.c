/* Rounds whose members are all there from their arrays: each slice is written into what all arrays
 * show next, and who does not wait for a slice leaves that buffer to the round (round.h, TO_ALL).
 */
#include "check.h"
#include "shm/avoiding/executor.h"
#include "periodic.h"
#include "protocol/round.h"
#include "support.h"
#include "trap.h"

#include <signal.h>

enum { COUNT = 4 * 8192 }; /* doubles: four slices */

#include "uniform.h"

static int wrote_to_all(const wagma_handle *h) {
    return (int)avoiding_of(h)->local.to_all && !avoiding_of(h)->local.copying;
}

static uint64_t word_of(const wagma_segment *s, int r) {
    return atomic_load(segment_pub(s, r));
}

/* ---- all are there --------------------------------------------------------------------------- */

enum { VERSIONS = 60 / SLOWDOWN };

typedef struct plan {
    wagma_dtype dtype; /* f32 or f64 */
    int average, groups;
    _Atomic int written; /* calls that were written by all */
} plan;

static double weight_of(int rank, int64_t t) {
    return 1 + (double)((rank + t) % 3);
}

static double value_of(int rank, int64_t t, int i) {
    return (double)((rank * 7 + t * 13 + i % PERIODIC_ELEMENTS) % 1000);
}

static void set(const plan *p, void *x, int64_t i, double value) {
    if (p->dtype == WAGMA_F64)
        ((double *)x)[i] = value;
    else
        ((float *)x)[i] = (float)value;
}

static double get(const plan *p, const void *x, int64_t i) {
    return p->dtype == WAGMA_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

/* The whole numbers of f32 are exact; an average is rounded once. */
static double expected_at(const plan *p, const wagma_outcome *o, int i) {
    double sum = 0;
    for (int k = 0; k < o->contributors_count; k++)
        sum += weight_of(o->contributors[k], o->versions[k]) *
               value_of(o->contributors[k], o->versions[k], i);
    if (!p->average)
        return sum;
    return p->dtype == WAGMA_F64 ? sum / o->weight : (double)((float)sum / (float)o->weight);
}

static void run(rank *me) {
    plan *p = me->shared;
    wagma_handle *h = rank_join(me, NULL);
    if (!h)
        return;
    const size_t element = p->dtype == WAGMA_F64 ? sizeof(double) : sizeof(float);
    void *x = wagma_shared_array(h);
    for (int64_t t = 0; t < VERSIONS; t++) {
        wagma_outcome o;
        for (int i = 0; i < PERIODIC_ELEMENTS; i++)
            set(p, x, i, value_of(me->rank, t, i));
        periodic_repeat(x, PERIODIC_ELEMENTS * element, COUNT * element);
        if (!EXPECT(wagma_allreduce(h, x, weight_of(me->rank, t), &o) == WAGMA_OK, "%s",
                    wagma_last_error()))
            break;
        EXPECT(!o.late && o.contributors_count == me->size / p->groups, "version %d: %d of %d",
               (int)t, o.contributors_count, me->size);
        const int64_t enough = periodic_enough(x, element, PERIODIC_ELEMENTS, COUNT);
        for (int i = 0; i < enough; i++)
            if (!EXPECT(get(p, x, i) == expected_at(p, &o, i),
                        "rank %d version %d at %d: %g instead of %g", me->rank, (int)t, i,
                        get(p, x, i), expected_at(p, &o, i)))
                break;
        atomic_fetch_add(&p->written, wrote_to_all(h));
    }
    EXPECT(wagma_close(h) == WAGMA_OK, "%s", wagma_last_error());
    wagma_free(h);
}

static void check_all_there(enum kind kind, int size, int groups, wagma_dtype dtype, int average) {
    plan *p = shared_memory(sizeof *p);
    *p = (plan){.dtype = dtype, .average = average, .groups = groups};
    wagma_options o = options_of(size, size / groups, 1, COUNT);
    o.dtype = (int)dtype;
    o.average = average;
    o.grouping = groups > 1 ? WAGMA_GROUPING_FIXED : WAGMA_GROUPING_DYNAMIC;
    o.sync_period = groups > 1 ? 0 : 5;
    o.grace = 20;
    o.redo_after = 20;
    team_join_clean(team_start(kind, &o, run, p));
    CHECK(expectations_failed() == 0, "%d %s in %d groups, %d", size, kind_name[kind], groups,
          average);
    CHECK(p->written == size * VERSIONS, "%d of %d calls", p->written, size * VERSIONS);
}

static void test_everybody_writes_for_everybody(void) {
    for (enum kind kind = THREADS; kind <= processes_if_seen(); kind++)
        for (int size = 2; size <= 4; size++)
            check_all_there(kind, size, 1, size % 2 ? WAGMA_F32 : WAGMA_F64, size > 2);
    check_all_there(THREADS, 4, 2, WAGMA_F32, 1);
}

/* What is not from an array has nothing to write into. */
static void test_one_from_elsewhere(void) {
    wagma_options options = options_of(2, 2, 1, COUNT);
    static double y[COUNT];
    wagma_outcome o;
    cast c;
    options.grace = 20;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    double *x = wagma_shared_array(c.handle[0]);
    for (int t = 0; t < 4; t++) {
        fill(x, 1 + t), fill(y, 10);
        EXPECT(wagma_start(c.handle[0], x, 1, 0, &o) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        EXPECT(wagma_allreduce(c.handle[1], y, 1, &o) == WAGMA_OK && holds(y, 11 + t), "%g", y[0]);
        EXPECT(wagma_finish(c.handle[0], x, &o) == WAGMA_OK && holds(x, 11 + t), "%g", x[0]);
        EXPECT(!wrote_to_all(c.handle[0]) && !wrote_to_all(c.handle[1]), "version %d", t);
    }
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* With less memory than a rank that leaves a buffer may need, nobody has to. */
static void test_not_with_a_limit(void) {
    wagma_options options = options_of(2, 2, 1, COUNT);
    wagma_outcome o;
    double *x[2];
    cast c;
    options.grace = 20;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    options.shm_limit = segment_joined_bytes(c.segment);
    cast_close(&c);
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    for (int r = 0; r < 2; r++)
        fill(x[r] = wagma_shared_array(c.handle[r]), 1 + r);
    EXPECT(wagma_start(c.handle[0], x[0], 1, 0, &o) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    EXPECT(round_takes(word_of(c.segment, 0)) == 0, "a buffer is promised");
    EXPECT(wagma_allreduce(c.handle[1], x[1], 1, &o) == WAGMA_OK && holds(x[1], 3), "%g", x[1][0]);
    EXPECT(wagma_finish(c.handle[0], x[0], &o) == WAGMA_OK && holds(x[0], 3), "%g", x[0][0]);
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- a call that fails ----------------------------------------------------------------------- */

/* Its rank may have x as it was, and write into it, while others give the version a result. `ends`:
 * the call ends in an error, and then the handle is freed; otherwise it is freed in the call, as C
 * code may do. */
static void check_failed_call(int ends) {
    wagma_options options = options_of(3, 3, 2, COUNT);
    wagma_outcome o;
    double *x[3];
    cast c;
    options.grace = 20;
    options.timeout = 0.5;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    for (int r = 0; r < 3; r++)
        fill(x[r] = wagma_shared_array(c.handle[r]), 1 + r);
    EXPECT(wagma_start(c.handle[0], x[0], 1, 0, &o) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    const int taker = (int)round_takes(word_of(c.segment, 0)) - 1;
    EXPECT(taker >= 0, "no buffer is promised");
    EXPECT(!ends || wagma_finish(c.handle[0], x[0], &o) == WAGMA_ESTALL, "%s", wagma_last_error());
    if (ends)
        fill(x[0], 42);
    wagma_free(c.handle[0]);
    c.handle[0] = NULL;
    EXPECT(holds(x[0], ends ? 42 : 1), "%g", x[0][0]);
    fill(x[0], 42);
    EXPECT(wagma_start(c.handle[1], x[1], 1, 0, &o) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    EXPECT(wagma_allreduce(c.handle[2], x[2], 1, &o) == WAGMA_OK && holds(x[2], 6), "%g", x[2][0]);
    EXPECT(o.contributors_count == 3 && wrote_to_all(c.handle[2]), "%d", o.contributors_count);
    EXPECT(holds((double *)segment_contribution(c.segment, 0, taker), 6), "not written to all");
    EXPECT(holds(x[0], 42), "%g", x[0][0]);
    EXPECT(wagma_finish(c.handle[1], x[1], &o) == WAGMA_OK && holds(x[1], 6), "%g", x[1][0]);
    cast_drop(&c);
    CHECK(expectations_failed() == 0, "ends: %d", ends);
}

static void test_a_failed_call_has_its_array_for_itself(void) {
    check_failed_call(0);
    check_failed_call(1);
}

/* ---- a slice that does not come -------------------------------------------------------------- */

typedef struct fate {
    int signum;
    _Atomic int stopped; /* rank 1 is, with a slice that it has claimed */
    _Atomic int went_on; /* rank 0 has called all its versions */
    _Atomic int back;    /* rank 1 has returned */
} fate;

enum { MORE = 5 };

/* Rank 1 stops (or dies) when it writes into rank 0's array. */
static void stop_in_slice(rank *me, wagma_handle *h, double *x) {
    fate *f = me->shared;
    wagma_outcome o;
    while (published(me->segment, 0) < 0)
        sleep_ms(0.2);
    const int b = (int)round_takes(word_of(me->segment, 0)) - 1;
    if (!EXPECT(b >= 0, "no buffer is promised"))
        return;
    trap_arm(segment_contribution(me->segment, 0, b), COUNT * sizeof(double), TRAP_IN_SLICE,
             f->signum);
    fill(x, 10);
    EXPECT(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "%s", wagma_last_error());
    EXPECT(holds(x, 11) && !o.late, "%g", x[0]);
    atomic_store(&f->back, 1);
    while (!atomic_load(&f->went_on))
        sleep_ms(0.2);
}

/* Rank 0 has published, does the other slices, does not wait for that one, and goes on. */
static void go_on(rank *me, wagma_handle *h, double *x) {
    fate *f = me->shared;
    const uint64_t grace = avoiding_of(h)->grace.fixed;
    wagma_stats stats;
    wagma_outcome o;
    fill(x, 1);
    avoiding_of(h)->grace.fixed = (uint64_t)PATIENCE_SECONDS * 1000000000; /* rank 1 comes */
    EXPECT(wagma_start(h, x, 1, 0, &o) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    while (!atomic_load(&f->stopped))
        sleep_ms(0.2);
    avoiding_of(h)->grace.fixed = grace;
    EXPECT(wagma_finish(h, x, &o) == WAGMA_OK, "%s", wagma_last_error());
    EXPECT(holds(x, 11) && !o.late && o.contributors_count == 2, "%g", x[0]);
    EXPECT(avoiding_of(h)->local.to_all && avoiding_of(h)->local.copying,
           "nothing was left to the round");
    const int left = (int)avoiding_of(h)->local.takes - 1;
    wagma_get_stats(h, &stats);
    EXPECT(stats.redone_slices == 1, "%d slices", (int)stats.redone_slices);
    for (int t = 1; t <= MORE; t++) { /* every buffer has its turn, but for that one */
        fill(x, 100 * t);
        EXPECT(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "%s", wagma_last_error());
        EXPECT(holds(x, 100 * t + 10), "version %d: %g", t, x[0]);
        EXPECT((int)avoiding_of(h)->local.array - 1 != left &&
                   (int)avoiding_of(h)->local.own != left,
               "version %d has buffer %d", t, left);
    }
    fill(x, 42);
    EXPECT(atomic_load(segment_cref(me->segment, 0, left)) == 1, "buffer %d is free", left);
    atomic_store(&f->went_on, 1);
    while (f->signum == SIGSTOP && !atomic_load(&f->back))
        sleep_ms(0.2);
    EXPECT(holds(x, 42), "%g", x[0]);
    EXPECT(f->signum != SIGSTOP || atomic_load(segment_cref(me->segment, 0, left)) == 0,
           "buffer %d is kept", left);
}

static void live(rank *me) {
    wagma_handle *h = rank_join(me, NULL);
    if (!h)
        return;
    (me->rank == 1 ? stop_in_slice : go_on)(me, h, wagma_shared_array(h));
    wagma_free(h);
}

static void check_fate(int signum) {
    fate *f = shared_memory(sizeof *f);
    f->signum = signum;
    wagma_options o = options_of(2, 2, 1, COUNT);
    o.grace = 0.5;
    o.redo_after = 0.05;
    team *t = team_start(PROCESSES, &o, live, f);
    if (signum == SIGKILL) {
        team_await_killed(t, 1);
        atomic_store(&f->stopped, 1);
    } else {
        team_await_stopped(t, 1);
        atomic_store(&f->stopped, 1);
        while (!atomic_load(&f->went_on) && expectations_failed() == 0)
            sleep_ms(0.2);
        team_continue(t, 1);
    }
    team_join(t);
    CHECK(expectations_failed() == 0, "signal %d", signum);
}

static void test_a_rank_stops_in_a_slice(void) {
    check_fate(SIGSTOP);
}

static void test_a_rank_dies_in_a_slice(void) {
    check_fate(SIGKILL);
}

int main(void) {
    segment_remap_min = 1024;
    RUN(test_everybody_writes_for_everybody);
    RUN(test_one_from_elsewhere);
    RUN(test_not_with_a_limit);
    RUN(test_a_failed_call_has_its_array_for_itself);
    if (SEES_PROCESSES) {
        RUN(test_a_rank_stops_in_a_slice);
        RUN(test_a_rank_dies_in_a_slice);
    }
    return check_summary();
}
