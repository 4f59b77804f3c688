/* Who goes on while whom: the progress thread of a rank that sleeps, waiting callers, ranks without
 * a thread; and how little an idle thread does. */
#include "check.h"
#include "contribution.h"
#include "engine/handle.h"
#include "support.h"
#include "transport_sim.h"
#include "shm/wait.h"

#include <inttypes.h>
#include <string.h>

/* ---- ranks that sleep ------------------------------------------------------------------------ */

typedef struct absence {
    int64_t versions; /* that the others call meanwhile */
    int mode;         /* wagma_progress of the one that is away */
    _Atomic int done; /* others that have called them */
    _Atomic int stalled;
    _Atomic int64_t late;
} absence;

/* With the contribution that is decoded as version -1. */
static wagma_handle *join(rank *me) {
    const wagma_options *o = &me->segment->options;
    double x[64];
    contribute(o->dtype, x, me->rank, -1, o->count);
    return rank_join(me, x);
}

/* Calls version after version; what x becomes is decoded. */
static int call_versions(rank *me, wagma_handle *h, int64_t until, absence *a) {
    const wagma_options *o = &me->segment->options;
    double x[64];
    while (wagma_version(h) < until) {
        wagma_outcome outcome;
        contribute(o->dtype, x, me->rank, wagma_version(h), o->count);
        const int status = wagma_allreduce(h, x, 1, &outcome);
        if (status != WAGMA_OK)
            return status;
        expect_result(me, x, &outcome);
        atomic_fetch_add(&a->late, outcome.late);
    }
    return WAGMA_OK;
}

/* The last rank calls version 0 and then goes away, until the others have called all versions. */
static void be_away(rank *me) {
    absence *a = me->shared;
    const int sleeper = me->size - 1;
    wagma_handle *h = join(me);
    const double timeout = h->options.timeout;
    have_patience(h, PATIENCE_SECONDS);
    int status = call_versions(me, h, 1, a);
    EXPECT(status == WAGMA_OK, "rank %d: %s", me->rank, wagma_last_error());
    have_patience(h, timeout);
    if (me->rank == sleeper) {
        while (atomic_load(&a->done) < sleeper)
            sleep_ms(1);
    } else {
        status = call_versions(me, h, a->versions, a);
        atomic_fetch_add(&a->stalled, status == WAGMA_ESTALL);
        EXPECT(status == WAGMA_OK || a->mode == WAGMA_PROGRESS_MAIN, "rank %d: %s", me->rank,
               wagma_last_error());
        atomic_fetch_add(&a->done, 1);
    }
    if (a->mode != WAGMA_PROGRESS_MAIN)
        EXPECT(call_versions(me, h, a->versions, a) == WAGMA_OK, "rank %d: %s", me->rank,
               wagma_last_error());
    wagma_close(h);
    wagma_free(h);
}

static void let_one_sleep(const wagma_options *o, absence *a) {
    a->mode = o->progress;
    team *t = team_start(MESSAGES, o, be_away, a);
    if (a->mode == WAGMA_PROGRESS_MAIN)
        team_join(t);
    else
        team_join_clean(t);
}

/* I3: the thread of the one that sleeps takes part for it. */
static void test_sleeper_makes_nobody_wait(void) {
    static const int sizes[][2] = {{2, 2}, {4, 4}, {4, 2}, {5, 3}};
    static const int modes[] = {WAGMA_PROGRESS_SLEEP, WAGMA_PROGRESS_YIELD, WAGMA_PROGRESS_SPIN};
    for (int i = 0; i < 4 + 2; i++) {
        wagma_options o = options_of(sizes[i % 4][0], sizes[i % 4][1], 1, 7);
        o.timeout = 20;
        o.progress = modes[i < 4 ? 0 : i - 3];
        absence a = {.versions = 40};
        let_one_sleep(&o, &a);
        CHECK(expectations_failed() == 0, "P=%d S=%d progress %d", o.size, o.group_size,
              o.progress);
        CHECK(atomic_load(&a.late) > 0, "nobody was late: this proves nothing");
    }
}

/* Without a thread they do wait: the test above can fail. */
static void test_without_a_thread(void) {
    wagma_options o = options_of(3, 3, 1, 7);
    o.timeout = 0.3;
    o.progress = WAGMA_PROGRESS_MAIN;
    absence a = {.versions = 40};
    let_one_sleep(&o, &a);
    CHECK(expectations_failed() == 0, "see above");
    CHECK(atomic_load(&a.stalled) > 0, "the others went on without the one that sleeps");
}

/* ---- calls drive ----------------------------------------------------------------------------- */

static void run_main(rank *me) {
    absence *a = me->shared;
    wagma_handle *h = join(me);
    EXPECT(call_versions(me, h, a->versions, a) == WAGMA_OK, "rank %d: %s", me->rank,
           wagma_last_error());
    wagma_stats stats;
    wagma_get_stats(h, &stats);
    EXPECT(stats.wakeups == 0, "a thread polled %" PRIu64 " times", stats.wakeups);
    EXPECT(wagma_close(h) == WAGMA_OK, "rank %d: %s", me->rank, wagma_last_error());
    wagma_free(h);
}

static void test_callers_alone(void) {
    for (int size = 1; size <= 5; size++)
        for (int quorum = 0; quorum <= (size > 1); quorum++) {
            wagma_options o = options_of(size, 0, quorum, 7);
            o.timeout = 20;
            o.progress = WAGMA_PROGRESS_MAIN;
            absence a = {.versions = 50};
            team_join_clean(team_start(MESSAGES, &o, run_main, &a));
            CHECK(expectations_failed() == 0, "P=%d quorum=%d", size, quorum);
        }
}

/* A transport that only its thread may use. */
static void run_funnelled(rank *me) {
    absence *a = me->shared;
    sim_transport(me->sim, me->rank)->threads = 0;
    run_main(me);
    EXPECT(team_warnings(me->team, me->rank, "no progress thread") == 1, "warnings: %s",
           team_warning(me->team, me->rank));
    atomic_fetch_add(&a->done, 1);
}

static void test_funnelled(void) {
    wagma_options o = options_of(3, 3, 1, 7);
    o.timeout = 20;
    absence a = {.versions = 20};
    team_join_clean(team_start(MESSAGES, &o, run_funnelled, &a));
    CHECK(expectations_failed() == 0 && atomic_load(&a.done) == 3, "see above");
}

/* ---- posted calls ---------------------------------------------------------------------------- */

enum { POSTS = 15 };
static _Atomic int done_alone[RANKS_MAX]; /* calls that were over at the first look */

/* The threads sleep when idle; what they have to do wakes them. */
static void post_and_compute(rank *me) {
    double x[7];
    wagma_handle *h = join(me);
    wagma_outcome o;
    for (int t = 0; t < POSTS; t++) {
        sleep_ms(5); /* until they are asleep */
        contribute(WAGMA_F64, x, me->rank, t, 7);
        EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        sleep_ms(100);
        const int over = wagma_test(h, x, &o) == WAGMA_OK;
        atomic_fetch_add(&done_alone[me->rank], over);
        EXPECT(over || wagma_finish(h, x, &o) == WAGMA_OK, "%s", wagma_last_error());
        expect_result(me, x, &o);
    }
    EXPECT(wagma_close(h) == WAGMA_OK, "rank %d: %s", me->rank, wagma_last_error());
    wagma_free(h);
}

static void test_posting_wakes(void) {
    wagma_options o = options_of(4, 4, 0, 7);
    o.timeout = 20;
    o.progress_sleep = 1;
    team_join_clean(team_start(MESSAGES, &o, post_and_compute, NULL));
    CHECK(expectations_failed() == 0, "see above");
    for (int r = 0; r < 4; r++) /* in the others some rank may have had no core */
        CHECK(atomic_load(&done_alone[r]) > POSTS / 3,
              "rank %d: the thread has done %d calls of %d", r, atomic_load(&done_alone[r]), POSTS);
}

/* ---- how little an idle thread does ---------------------------------------------------------- */

static uint64_t wakeups_of(const wagma_handle *h) {
    wagma_stats stats;
    wagma_get_stats(h, &stats);
    return stats.wakeups;
}

/* Expects that the thread polls within some time, but not more often than pauses of its sleep fit
 * into that. It may begin late, with no core or with a message under way. */
static void expect_few_polls(const wagma_handle *h, const char *when) {
    uint64_t polls = 0;
    double most = 0;
    for (int i = 0; i < 20 && (polls == 0 || (double)polls > most); i++) {
        const double began = seconds();
        const uint64_t before = wakeups_of(h);
        sleep_ms(200);
        polls = wakeups_of(h) - before;
        most = (seconds() - began) / h->options.progress_sleep + 3;
    }
    EXPECT(polls > 0 && (double)polls <= most, "%s: %" PRIu64 " polls, %g at most", when, polls,
           most);
}

static void be_idle(rank *me) {
    _Atomic int *looked = me->shared; /* ranks; then what rank 0 has in flight, too */
    double x[7] = {0};
    wagma_handle *h = join(me);
    wagma_outcome o;
    EXPECT(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "%s", wagma_last_error());
    expect_few_polls(h, "idle");
    atomic_fetch_add(looked, 1);
    while (atomic_load(looked) < 2)
        sleep_ms(1);
    if (me->rank == 0) { /* in flight, and rank 1 does not come: it backs off */
        EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        sleep_ms(100); /* 1/64 of it is more than the sleep of an idle thread */
        expect_few_polls(h, "still");
        atomic_fetch_add(looked, 1);
        EXPECT(wagma_finish(h, x, &o) == WAGMA_OK, "%s", wagma_last_error());
    } else {
        while (atomic_load(looked) < 3)
            sleep_ms(1);
        EXPECT(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "%s", wagma_last_error());
    }
    EXPECT(wagma_close(h) == WAGMA_OK, "rank %d: %s", me->rank, wagma_last_error());
    wagma_free(h);
}

static void test_idle(void) {
    wagma_options o = options_of(2, 2, 0, 7);
    o.timeout = 20;
    _Atomic int looked = 0;
    team_join_clean(team_start(MESSAGES, &o, be_idle, &looked));
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- several handles ------------------------------------------------------------------------- */

enum { HANDLES = 3, SHARED_RANKS = 3 };

/* Each rank has a handle over each of three transports, and calls them in turn. */
static struct sim *sims[HANDLES];

static void run_several(rank *me) {
    wagma_handle *h[HANDLES] = {NULL};
    wagma_outcome o;
    double x[HANDLES][7];
    for (int k = 0; k < HANDLES; k++) {
        contribute(WAGMA_F64, x[k], me->rank, -1, 7);
        EXPECT(wagma_create_over(sim_transport(sims[k], me->rank), &me->segment->options, x[k], 1,
                                 &me->hooks, &h[k]) == WAGMA_OK,
               "%s", wagma_last_error());
    }
    for (int64_t t = 0; t < 100; t++) {
        for (int k = 0; k < HANDLES; k++) {
            contribute(WAGMA_F64, x[k], me->rank, t, 7);
            EXPECT(wagma_post(h[k], x[k], 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        }
        jitter(me);
        for (int k = HANDLES; k-- > 0;) {
            EXPECT(wagma_finish(h[k], x[k], &o) == WAGMA_OK, "%s", wagma_last_error());
            expect_result(me, x[k], &o);
        }
    }
    for (int k = 0; k < HANDLES; k++)
        EXPECT(wagma_close(h[k]) == WAGMA_OK, "%s", wagma_last_error());
    for (int k = 0; k < HANDLES; k++)
        wagma_free(h[k]);
}

static void test_several_handles(void) {
    for (int quorum = 0; quorum < 2; quorum++) {
        wagma_options o = options_of(SHARED_RANKS, 2, quorum, 7);
        o.timeout = 20;
        for (int k = 0; k < HANDLES; k++)
            sims[k] = sim_create(SHARED_RANKS, (uint64_t)k + 1,
                                 (struct sim_options){.delay = 5, .threads = 1});
        team_join_clean(team_start(MESSAGES, &o, run_several, NULL));
        for (int k = 0; k < HANDLES; k++) {
            CHECK(!sim_trouble(sims[k]), "%s", sim_trouble(sims[k]));
            CHECK(sim_pending(sims[k]) == 0, "%" PRId64 " messages are left", sim_pending(sims[k]));
            sim_free(sims[k]);
        }
        CHECK(expectations_failed() == 0, "quorum %d", quorum);
    }
}

int main(void) {
    RUN(test_sleeper_makes_nobody_wait);
    RUN(test_without_a_thread);
    RUN(test_callers_alone);
    RUN(test_funnelled);
    RUN(test_posting_wakes);
    RUN(test_idle);
    RUN(test_several_handles);
    return check_summary();
}
