/* The array of a large wait-avoiding handle, whose memory is published while it shows other memory:
 * its address stays, what was published is left alone, and x is what it is without any of this. */
#include "check.h"
#include "remapped.h"
#include "protocol/round.h"
#include "trap.h"

#include <signal.h>
#include <sys/mman.h>

/* What rank r has published last. */
static const double *contribution(const wagma_segment *s, int r) {
    const uint64_t word = atomic_load(segment_pub(s, r));
    return (const double *)segment_contribution(s, r, (int)round_buffer(word));
}

/* The array of rank r, or NULL if it is not one that shows other memory by turns. */
static double *array_of(cast *c, int r) {
    double *x = wagma_shared_array(c->handle[r]);
    return EXPECT(c->segment->remap && c->segment->remap[r] &&
                      (void *)x != segment_array(c->segment, r),
                  "the array of rank %d stays where it is", r)
               ? x
               : NULL;
}

static int open_cast(cast *c, const wagma_options *o, double **x, int n) {
    int opened = EXPECT(cast_open(c, o, NULL, NULL), "%s", wagma_last_error());
    for (int r = 0; r < n && opened; r++)
        opened = (x[r] = array_of(c, r)) != NULL;
    return opened;
}

/* Writes `value` into the array and calls: nobody has to be waited for. */
static void contribute(cast *c, int r, double *x, double value, wagma_outcome *o) {
    fill(x, value);
    EXPECT(wagma_allreduce(c->handle[r], x, 1, o) == WAGMA_OK, "%s", wagma_last_error());
    EXPECT(wagma_shared_array(c->handle[r]) == x, "the array has moved");
}

static void close_cast(cast *c) {
    cast_close(c);
    CHECK(expectations_failed() == 0, "see above");
}

static void test_what_is_published_is_left_alone(void) {
    const wagma_options options = choose(2, 1);
    double *x[2];
    wagma_outcome o;
    cast c;
    CHECK(open_cast(&c, &options, x, 2), "see above");
    contribute(&c, 0, x[0], 10, &o);
    EXPECT(!o.late && holds(x[0], 10), "%g", x[0][0]);
    fill(x[0], 99); /* the next contribution; the last one is used until it is there */
    EXPECT(holds(contribution(c.segment, 0), 10), "%g", contribution(c.segment, 0)[0]);
    contribute(&c, 1, x[1], 5, &o);
    EXPECT(o.late && holds(x[1], 15), "%g", x[1][0]); /* merged with its own */
    contribute(&c, 1, x[1], 7, &o);
    EXPECT(!o.late && holds(x[1], 17) && o.versions[0] == 0, "%g", x[1][0]);
    contribute(&c, 0, x[0], 99, &o);
    EXPECT(o.late && holds(x[0], 116), "%g", x[0][0]);
    close_cast(&c);
}

static void test_without_anything_newer_x_is_unchanged(void) {
    const wagma_options options = choose(2, 1);
    double *x[2];
    wagma_outcome o;
    cast c;
    CHECK(open_cast(&c, &options, x, 2), "see above");
    contribute(&c, 0, x[0], 1, &o);
    contribute(&c, 0, x[0], 2, &o);
    contribute(&c, 1, x[1], 10, &o);
    EXPECT(o.late && holds(x[1], 12), "%g", x[1][0]);
    contribute(&c, 1, x[1], 20, &o); /* version 1, which it has merged */
    EXPECT(o.late && !o.merged && holds(x[1], 20), "%g", x[1][0]);
    fill(x[1], 77);
    contribute(&c, 0, x[0], 3, &o);
    EXPECT(holds(x[0], 23), "%g", x[0][0]);
    close_cast(&c);
}

/* A group of one, which of a round of all ranks takes nothing: x is the result. */
static void test_alone_in_a_round_of_all(void) {
    wagma_options options = choose(2, 1);
    double *x[2];
    wagma_outcome o;
    cast c;
    options.group_size = 1;
    options.activation = WAGMA_ACTIVATION_WORLD;
    CHECK(open_cast(&c, &options, x, 2), "see above");
    for (int t = 0; t < 5; t++) {
        contribute(&c, 0, x[0], 10 + t, &o);
        EXPECT(holds(x[0], 10 + t) && o.weight == 1, "%g", x[0][0]);
        fill(x[0], -1);
        EXPECT(holds(contribution(c.segment, 0), 10 + t), "%g", contribution(c.segment, 0)[0]);
        contribute(&c, 1, x[1], 20 + t, &o);
        EXPECT(holds(x[1], 20 + t), "%g", x[1][0]);
    }
    close_cast(&c);
}

static void check_ordered(int late) {
    wagma_options options = choose(2, 1);
    double *x[2];
    wagma_outcome o;
    cast c;
    options.late = late;
    CHECK(open_cast(&c, &options, x, 2), "see above");
    for (int t = 0; t < 3; t++)
        contribute(&c, 0, x[0], 1 + t, &o);
    EXPECT(holds(x[0], 3), "%g", x[0][0]);
    contribute(&c, 1, x[1], 50, &o);
    EXPECT(o.late && o.results_count == 3 && holds(o.results[1], 2) && holds(x[1], 3), "%g",
           x[1][0]);
    contribute(&c, 1, x[1], 7, &o);
    EXPECT(!o.late && holds(x[1], late == WAGMA_LATE_CARRY ? 57 : 7), "%g", x[1][0]);
    close_cast(&c);
}

static void test_results_in_order(void) {
    check_ordered(WAGMA_LATE_SKIP);
    check_ordered(WAGMA_LATE_CARRY);
}

/* A call of rank 0 that published 42 and is over without a result. The others may still use that
 * while x is written. */
static void expect_kept(const cast *c, double *x) {
    EXPECT(holds(x, 42), "%g", x[0]);
    fill(x, 1);
    EXPECT(holds(contribution(c->segment, 0), 42), "%g", contribution(c->segment, 0)[0]);
}

static void test_an_error_leaves_x_as_it_was(void) {
    wagma_options options = choose(3, 2);
    double *x[1];
    wagma_outcome o;
    cast c;
    options.timeout = 0.5;
    CHECK(open_cast(&c, &options, x, 1), "see above");
    fill(x[0], 42);
    EXPECT(wagma_allreduce(c.handle[0], x[0], 1, &o) == WAGMA_ESTALL, "%s", wagma_last_error());
    expect_kept(&c, x[0]);
    cast_drop(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* C code may start a call and never finish it. */
static void test_an_abandoned_call_leaves_x_as_it_was(void) {
    const wagma_options options = choose(3, 2);
    double *x[1];
    wagma_outcome o;
    cast c;
    CHECK(open_cast(&c, &options, x, 1), "see above");
    fill(x[0], 42);
    EXPECT(wagma_start(c.handle[0], x[0], 1, 0, &o) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    wagma_free(c.handle[0]);
    c.handle[0] = NULL;
    expect_kept(&c, x[0]);
    cast_drop(&c);
    CHECK(expectations_failed() == 0, "see above");
}

enum { LONG = 4 * 8192 }; /* doubles: four slices */

typedef struct stop {
    _Atomic int others_stopped;
} stop;

static int is_interrupted(void *context) {
    return atomic_load(&((stop *)context)->others_stopped);
}

/* Rank 0 publishes; rank 1, with which there are enough, claims a slice and stops; then rank 0
 * writes the others, and is interrupted when it waits for that one. */
static void leave_a_slice(rank *me) {
    stop *p = me->shared;
    me->hooks = (wagma_hooks){.context = p, .interrupted = is_interrupted};
    wagma_handle *h = rank_join(me, NULL);
    wagma_outcome o;
    if (!h)
        return;
    double *x = me->rank == 0 ? wagma_shared_array(h) : trap_memory(LONG * 8);
    for (int i = 0; i < LONG; i++)
        x[i] = i;
    if (me->rank == 1) {
        while (published(me->segment, 0) < 0)
            sleep_ms(0.2);
        trap_arm(x, LONG * 8, TRAP_IN_SLICE, SIGSTOP);
        (void)wagma_allreduce(h, x, 1, &o);
    }
    if (me->rank == 2)
        raise(SIGSTOP);
    if (me->rank == 0) {
        EXPECT(wagma_start(h, x, 1, 0, &o) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        while (!atomic_load(&p->others_stopped))
            sleep_ms(0.2);
        EXPECT(wagma_finish(h, x, &o) == WAGMA_EINTERRUPTED, "%s", wagma_last_error());
        const segment_round *round = segment_round_of(me->segment, avoiding_of(h)->local.c);
        const uint64_t done = atomic_load(&round->done);
        EXPECT(__builtin_popcountll(done) == 3, "slices %#lx are done", (long)done);
        for (int i = 0; i < LONG; i++)
            if (!EXPECT(x[i] == i, "%g at %d", x[i], i))
                break;
    }
    wagma_free(h);
}

static void test_an_error_between_slices_leaves_x_as_it_was(void) {
    stop *p = shared_memory(sizeof *p);
    wagma_options o = options_of(3, 3, 2, LONG);
    o.redo_after = 20;
    team *t = team_start(PROCESSES, &o, leave_a_slice, p);
    team_await_stopped(t, 2);
    team_await_stopped(t, 1);
    atomic_store(&p->others_stopped, 1);
    team_await_exit(t, 0);
    team_kill(t, 1);
    team_kill(t, 2);
    team_join(t);
    CHECK(expectations_failed() == 0, "see above");
}

/* What libraries say of a page divides the mapping, which older kernels do not move then. */
static void test_a_divided_array(void) {
    const wagma_options options = choose(2, 1);
    double *x[2];
    wagma_outcome o;
    cast c;
    CHECK(open_cast(&c, &options, x, 2), "see above");
    for (int t = 0; t < 8; t++) {
        EXPECT(t % 3 != 2 || madvise((char *)x[0] + 4096, 4096, MADV_DONTFORK) == 0, "no advice");
        contribute(&c, 0, x[0], 10 + t, &o);
        EXPECT(holds(x[0], 10 + t + (t ? 5 : 0)), "version %d: %g", t, x[0][0]);
        fill(x[0], -1);
        EXPECT(holds(contribution(c.segment, 0), 10 + t), "%g", contribution(c.segment, 0)[0]);
        contribute(&c, 1, x[1], 5, &o);
        EXPECT(holds(x[1], 15 + t + (t ? 5 : 0)), "version %d: %g", t, x[1][0]);
    }
    close_cast(&c);
}

static void test_x_can_be_read_while_its_call_is_pending(void) {
    wagma_options options = choose(2, 1);
    double *x[2];
    wagma_outcome o;
    cast c;
    options.grace = 20;
    CHECK(open_cast(&c, &options, x, 2), "see above");
    for (int t = 0; t < 4; t++) {
        fill(x[0], 1 + t);
        EXPECT(wagma_post(c.handle[0], x[0], 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        EXPECT(holds(x[0], 1 + t), "%g", x[0][0]);
        contribute(&c, 1, x[1], 10, &o);
        EXPECT(holds(x[0], 1 + t) && holds(x[1], 11 + t), "%g %g", x[0][0], x[1][0]);
        EXPECT(wagma_test(c.handle[0], x[0], &o) == WAGMA_OK && holds(x[0], 11 + t), "%g", x[0][0]);
    }
    close_cast(&c);
}

static void test_without_remapping_it_is_copied(void) {
    const wagma_options options = choose(2, 1);
    wagma_outcome o;
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    for (int r = 0; r < 2; r++) { /* as on a system that cannot do it */
        remap_free(c.segment->remap[r]);
        c.segment->remap[r] = NULL;
    }
    double *x = wagma_shared_array(c.handle[0]), *y = wagma_shared_array(c.handle[1]);
    EXPECT((void *)x == segment_array(c.segment, 0) && x != y, "%p", (void *)x);
    for (int t = 0; t < 6; t++) {
        contribute(&c, 0, x, 10 + t, &o);
        EXPECT(holds(x, 10 + t + (t ? 5 : 0)), "version %d: %g", t, x[0]);
        contribute(&c, 1, y, 5, &o);
        EXPECT(o.late && holds(y, 15 + t + (t ? 5 : 0)), "version %d: %g", t, y[0]);
    }
    close_cast(&c);
}

/* ---- ranks that run by themselves ------------------------------------------------------------ */

enum { VERSIONS = 400 / SLOWDOWN };

typedef struct plan {
    int streams; /* by streaming stores, as what exceeds the caches */
} plan;

/* Every third version is of all; between them others use what was published, while its rank writes
 * into its array. */
static void run(rank *me) {
    wagma_handle *h = rank_join(me, NULL);
    if (!h)
        return;
    const plan *p = me->shared;
    double *x = wagma_shared_array(h);
    avoiding_of(h)->streams_x = p->streams;
    for (int t = 0; t < VERSIONS; t++) {
        wagma_outcome o;
        fill(x, 1000 * t + me->rank);
        if (!EXPECT(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "%s", wagma_last_error()))
            break;
        double sum = o.late ? 1000 * t + me->rank : 0;
        for (int k = 0; k < o.contributors_count; k++) /* version -1 is zeros */
            sum += o.versions[k] < 0 ? 0 : 1000 * (double)o.versions[k] + o.contributors[k];
        if (!EXPECT(!o.merged || holds(x, sum), "rank %d version %d: %g instead of %g", me->rank, t,
                    x[0], sum))
            break;
        fill(x, -1);
        jitter(me);
    }
    EXPECT(wagma_close(h) == WAGMA_OK, "%s", wagma_last_error());
    wagma_free(h);
}

static void check_many_versions(enum kind kind, int size, int streams) {
    plan *p = shared_memory(sizeof *p);
    wagma_options o = choose(size, 1);
    o.sync_period = 3;
    o.window = 2;
    o.timeout = 20;
    p->streams = streams;
    team_join_clean(team_start(kind, &o, run, p));
    CHECK(expectations_failed() == 0, "%d %s, streams %d", size, kind_name[kind], streams);
}

static void test_many_versions(void) {
    for (enum kind kind = THREADS; kind <= processes_if_seen(); kind++)
        for (int size = 2; size <= 3; size++)
            for (int streams = 0; streams <= 1; streams++)
                check_many_versions(kind, size, streams);
}

int main(void) {
    segment_remap_min = 1024;
    RUN(test_without_remapping_it_is_copied);
    if (!is_supported())
        return check_summary();
    RUN(test_what_is_published_is_left_alone);
    RUN(test_without_anything_newer_x_is_unchanged);
    RUN(test_alone_in_a_round_of_all);
    RUN(test_results_in_order);
    RUN(test_an_error_leaves_x_as_it_was);
    if (SEES_PROCESSES)
        RUN(test_an_error_between_slices_leaves_x_as_it_was);
    RUN(test_an_abandoned_call_leaves_x_as_it_was);
    RUN(test_a_divided_array);
    RUN(test_x_can_be_read_while_its_call_is_pending);
    RUN(test_many_versions);
    return check_summary();
}
