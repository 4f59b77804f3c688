/* Handles over messages that end: closed without one of the ranks, freed in flight, by the end of
 * their transport, in the middle of a wait. Everybody gets an error that says so, and nobody hangs.
 */
#include "check.h"
#include "engine/handle.h"
#include "fates.h"
#include "transport_sim.h"

#include <stdlib.h>
#include <string.h>

/* ---- close and free -------------------------------------------------------------------------- */

/* All but the last rank close. */
static void close_without_one(rank *me) {
    fates *f = me->shared;
    double x[3] = {0};
    wagma_handle *h = rank_join(me, NULL);
    const double timeout = h->options.timeout;
    have_patience(h, PATIENCE_SECONDS);
    EXPECT(wagma_allreduce(h, x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
    have_patience(h, timeout);
    if (me->rank < me->size - 1) {
        atomic_fetch_add(&f->ready, 1);
        note(f, me->rank, wagma_close(h));
        EXPECT(wagma_allreduce(h, x, 1, NULL) == WAGMA_ECLOSED, "%s", wagma_last_error());
    } else if (f->how == FAILS) {
        while (atomic_load(&f->ready) < me->size - 1)
            sleep_ms(1);
        sleep_ms(20);
    } else {
        while (atomic_load(&f->status[0]) == 0 || atomic_load(&f->status[1]) == 0)
            sleep_ms(1);
    }
    wagma_free(h);
}

static void test_close_without_one(void) {
    wagma_options o = options_of(3, 0, 1, 3);
    o.timeout = 20;
    fates f = {.how = FAILS};
    team_join(team_start(MESSAGES, &o, close_without_one, &f));
    for (int r = 0; r < 2; r++)
        expect_fate(&f, r, WAGMA_EPEER, "phase close");
    CHECK(expectations_failed() == 0, "it failed");
    o.timeout = 0.4;
    o.progress = WAGMA_PROGRESS_MAIN; /* so that nobody answers for it */
    f = (fates){.how = DIES_UNKNOWN};
    team_join(team_start(MESSAGES, &o, close_without_one, &f));
    EXPECT(f.status[0] == WAGMA_ESTALL || f.status[1] == WAGMA_ESTALL, "%s", f.message[0]);
    for (int r = 0; r < 2; r++)
        EXPECT(strstr(f.message[r], "phase close"), "%s", f.message[r]);
    for (int r = 0; r < 2; r++)
        if (f.status[r] == WAGMA_ESTALL)
            expect_fate(&f, r, WAGMA_ESTALL, "rank 2, which does not answer and has not closed");
    CHECK(expectations_failed() == 0, "it went on");
}

/* Freed while versions and calls are in flight: no thread is left. What messages under way may read
 * and write, the peers' transports do: the engine keeps its own, the caller x (see wagma.h). */
static double *in_flight[3];

static void free_in_flight(rank *me) {
    fates *f = me->shared;
    double *x = in_flight[me->rank] = calloc(50000, sizeof *x);
    wagma_handle *h = rank_join(me, x);
    if (me->rank != 0 || f->how == FAILS_IN_CALL)
        EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    sleep_ms(0.1 * random_below(me, 10));
    wagma_free(h);
}

static void test_freed_in_flight(void) {
    for (int round = 0; round < 40; round++) {
        wagma_options o = options_of(3, 0, round % 3, 50000);
        o.timeout = 20;
        fates f = {.how = round % 2};
        team_join(team_start(MESSAGES, &o, free_in_flight, &f));
        for (int r = 0; r < 3; r++)
            free(in_flight[r]);
        CHECK(expectations_failed() == 0, "round %d", round);
    }
}

/* ---- the transport ends ---------------------------------------------------------------------- */

/* Rank 0's ends, between its calls or in one; that is said once, and the others hear of it. */
static void outlive(rank *me) {
    fates *f = me->shared;
    wagma_transport *t = sim_transport(me->sim, me->rank);
    double x[3] = {0};
    wagma_handle *h = rank_join(me, NULL);
    int status = wagma_allreduce(h, x, 1, NULL);
    EXPECT(status == WAGMA_OK, "%s", wagma_last_error());
    if (me->rank == 0) {
        if (f->posted)
            EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        t->ending(t->owner);
        status = f->posted ? wagma_finish(h, x, NULL) : wagma_allreduce(h, x, 1, NULL);
    }
    while (status == WAGMA_OK && wagma_version(h) < 100) /* the posted one may be complete */
        status = wagma_allreduce(h, x, 1, NULL);
    note(f, me->rank, status);
    if (status != WAGMA_OK)
        EXPECT(wagma_allreduce(h, x, 1, NULL) == WAGMA_ECLOSED, "%s", wagma_last_error());
    wagma_free(h);
}

static void test_transport_ends(void) {
    for (int posted = 0; posted < 2; posted++) {
        wagma_options o = options_of(3, 0, 0, 3);
        o.timeout = 20;
        fates f = {.posted = posted};
        team_join(team_start(MESSAGES, &o, outlive, &f));
        expect_fate(&f, 0, WAGMA_ESYS, "simulation was finalized while the handle was open");
        for (int r = 1; r < 3; r++)
            expect_fate(&f, r, WAGMA_EPEER, "rank 0 failed");
        CHECK(expectations_failed() == 0, "posted %d", posted);
    }
}

/* ---- interrupts ------------------------------------------------------------------------------ */

/* A signal's handler may end the handle whose wait lets it run. */
static wagma_handle *ended_by_hook;

static int end_it(void *context) {
    (void)context;
    wagma_fail(ended_by_hook);
    return 0;
}

static void be_ended(rank *me) {
    fates *f = me->shared;
    double x[3] = {0};
    if (me->rank == 0)
        me->hooks = (wagma_hooks){.interrupted = end_it};
    wagma_handle *h = rank_join(me, NULL);
    if (me->rank == 0) {
        ended_by_hook = h;
        note(f, 0, f->how ? wagma_close(h) : wagma_allreduce(h, x, 1, NULL));
        atomic_fetch_add(&f->ready, 1);
    }
    while (atomic_load(&f->ready) < 1)
        sleep_ms(1);
    wagma_free(h);
}

static void test_ended_by_a_hook(void) {
    for (int how = 0; how < 2; how++) {
        wagma_options o = options_of(2, 0, 0, 3);
        o.timeout = 20;
        fates f = {.how = how};
        ended_by_hook = NULL;
        team_join(team_start(MESSAGES, &o, be_ended, &f));
        expect_fate(&f, 0, WAGMA_ECLOSED, "what its wait let run");
        CHECK(expectations_failed() == 0, "in close: %d", how);
    }
}

static int ask(void *context) {
    return atomic_fetch_add((_Atomic int *)context, 1) >= 1;
}

static void be_interrupted(rank *me) {
    fates *f = me->shared;
    double x[3] = {0};
    _Atomic int asked = -WATCHDOG_SECONDS * 1000; /* not while the handle is made */
    if (me->rank == 0)
        me->hooks = (wagma_hooks){.context = &asked, .interrupted = ask};
    wagma_handle *h = rank_join(me, NULL);
    if (me->rank == 0) {
        atomic_store(&asked, 0);
        note(f, 0, wagma_allreduce(h, x, 1, NULL));
        atomic_fetch_add(&f->ready, 1);
    }
    while (atomic_load(&f->ready) < 1)
        sleep_ms(1);
    wagma_free(h);
}

static void test_interrupted(void) {
    wagma_options o = options_of(2, 0, 0, 3);
    o.timeout = 20;
    fates f = {0};
    team_join(team_start(MESSAGES, &o, be_interrupted, &f));
    expect_fate(&f, 0, WAGMA_EINTERRUPTED, "phase quorum");
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    RUN(test_close_without_one);
    RUN(test_freed_in_flight);
    RUN(test_transport_ends);
    RUN(test_interrupted);
    RUN(test_ended_by_a_hook);
    return check_summary();
}
