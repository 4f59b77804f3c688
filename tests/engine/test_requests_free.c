/* Calls that return in between, by ranks that run by themselves: mixed with the others in any
 * order, and by a rank that is stopped after it has posted. */
#include "check.h"
#include "contribution.h"
#include "support.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 3, LARGE = 20011, WHOLE = 0 /* quorum "all" */ };

static const int quorums[] = {WHOLE, 1, 2}; /* 2: the same as WHOLE in groups of two */
static const int64_t counts[] = {SMALL, LARGE};
enum { QUORUMS = 3, COUNTS = 2 };

/* ---- ranks that run by themselves ------------------------------------------------------------ */

enum { SIZE = 4, VERSIONS = 240 / SLOWDOWN };

/* Completes a version in one of several ways. */
static int some_call(rank *me, wagma_handle *h, double *x, wagma_outcome *o) {
    const int way = (int)random_below(me, 4);
    int status = WAGMA_INPROGRESS;
    if (way == 0)
        return wagma_allreduce(h, x, 1, o);
    if (!EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error()))
        return WAGMA_EINVAL;
    jitter(me);
    while (status == WAGMA_INPROGRESS) {
        status = way == 1   ? wagma_wait(h, x, -1, o)
                 : way == 2 ? wagma_wait(h, x, 1e-5, o)
                            : wagma_test(h, x, o);
        if (status == WAGMA_INPROGRESS)
            jitter(me);
    }
    return status;
}

static void run_mixed(rank *me) {
    const int64_t count = *(int64_t *)me->shared;
    double *own = malloc((size_t)count * sizeof *own);
    contribute(WAGMA_F64, own, me->rank, -1, count);
    wagma_handle *h = rank_join(me, own);
    for (int64_t t = 0; h && t < VERSIONS; t++) {
        wagma_outcome o;
        double *x = random_below(me, 2) ? own : wagma_shared_array(h);
        void *buffer = NULL; /* or out of place */
        if (random_below(me, 3) == 0 && wagma_next_contribution(h, &buffer) == WAGMA_OK)
            x = buffer;
        contribute(WAGMA_F64, x, me->rank, t, count);
        if (!EXPECT(some_call(me, h, x, &o) == WAGMA_OK, "rank %d: %s", me->rank,
                    wagma_last_error()) ||
            !EXPECT(o.version == t, "version %" PRId64, o.version) ||
            !EXPECT(!o.result == !(buffer && o.merged), "version %" PRId64, t) ||
            !expect_result(me, o.result ? o.result : x, &o))
            break;
    }
    wagma_close(h);
    wagma_free(h);
    free(own);
}

/* Sums of what the outcomes list, however the ranks call. */
static void test_mixed_calls(void) {
    for (enum kind kind = THREADS; kind <= processes_if_seen(); kind++)
        for (int q = 0; q < QUORUMS; q++)
            for (int k = 0; k < COUNTS; k++)
                for (int group = 2; group <= SIZE; group += 2) {
                    wagma_options options = options_of(
                        SIZE, group, quorums[q] == WHOLE ? group : quorums[q], counts[k]);
                    options.sync_period = 16;
                    int64_t *count = shared_memory(sizeof *count);
                    *count = counts[k];
                    team_join_clean(team_start(kind, &options, run_mixed, count));
                    CHECK(expectations_failed() == 0, "%s, quorum %d, count %" PRId64 ", group %d",
                          kind_name[kind], options.quorum, counts[k], group);
                }
}

/* ---- stopped after posting ------------------------------------------------------------------- */

enum { VICTIM = 1, AT = 3, AHEAD = 6 };

typedef struct flight {
    wagma_options options;
    _Atomic int let_go; /* the others may call version AT */
    _Atomic int64_t done[SIZE];
    int contributed[SIZE]; /* rank r merged the victim's contribution of version AT */
} flight;

static void run_with_victim(rank *me) {
    flight *f = me->shared;
    const int64_t count = f->options.count;
    const int64_t versions = f->options.quorum == SIZE ? AT + 2 : AT + AHEAD;
    double *x = malloc((size_t)count * sizeof *x);
    contribute(WAGMA_F64, x, me->rank, -1, count);
    wagma_handle *h = rank_join(me, x);
    for (int64_t t = 0; h && t < versions; t++) {
        wagma_outcome o = {0};
        contribute(WAGMA_F64, x, me->rank, t, count);
        while (t == AT && me->rank != VICTIM && !atomic_load(&f->let_go))
            sleep_ms(0.2);
        EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        if (t == AT && me->rank == VICTIM)
            raise(SIGSTOP);
        if (!EXPECT(wagma_wait(h, x, -1, &o) == WAGMA_OK, "rank %d: %s", me->rank,
                    wagma_last_error()) ||
            !expect_result(me, x, &o))
            break;
        for (int k = 0; t <= AT && k < o.contributors_count; k++) /* before AT: it was late */
            f->contributed[me->rank] |= o.contributors[k] == VICTIM && o.versions[k] == AT;
        atomic_store(&f->done[me->rank], t + 1);
    }
    wagma_close(h);
    wagma_free(h);
    free(x);
}

/* The others complete the version that the stopped rank has posted, with its contribution, and
 * where the quorum allows it the whole window after it. */
static void check_stopped(int quorum, int64_t count) {
    flight *f = shared_memory(sizeof *f);
    f->options = options_of(SIZE, SIZE, quorum == WHOLE ? SIZE : quorum, count);
    f->options.window = AHEAD;
    team *t = team_start(PROCESSES, &f->options, run_with_victim, f);
    team_await_stopped(t, VICTIM);
    atomic_store(&f->let_go, 1);
    const int64_t reach = quorum == WHOLE ? AT + 1 : AT + AHEAD;
    for (int r = 0; r < SIZE; r++) {
        const double end = seconds() + WATCHDOG_SECONDS / 2;
        while (r != VICTIM && atomic_load(&f->done[r]) < reach && seconds() < end)
            sleep_ms(0.5);
        EXPECT(r == VICTIM || atomic_load(&f->done[r]) == reach, "rank %d has done %" PRId64, r,
               atomic_load(&f->done[r]));
        EXPECT(r == VICTIM || f->contributed[r], "rank %d has not got what was posted", r);
    }
    EXPECT(atomic_load(&f->done[VICTIM]) == AT, "the victim has gone on");
    team_continue(t, VICTIM);
    team_join_clean(t);
    EXPECT(f->contributed[VICTIM], "the victim is late, although it had posted first");
    CHECK(expectations_failed() == 0, "quorum %d, count %" PRId64, quorum, count);
}

static void test_stopped_after_posting(void) {
    for (int q = 0; q < QUORUMS; q++)
        for (int k = 0; k < COUNTS; k++)
            check_stopped(quorums[q], counts[k]);
}

int main(void) {
    RUN(test_mixed_calls);
    if (SEES_PROCESSES)
        RUN(test_stopped_after_posting);
    return check_summary();
}
