/* Graphs with ranks that fail, die, are killed or do not come: the neighbours that need them get an
 * error that names one, then theirs, and nobody hangs. */
#define _GNU_SOURCE
#include "check.h"
#include "engine/handle.h"
#include "fates.h"
#include "protocol/graph.h"
#include "transport_sim.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1000, BEFORE = 4, AFTER = 1000 };

static wagma_options graph_options(int size, int neighbors, double timeout) {
    wagma_options o = options_of(size, 0, 0, COUNT);
    o.grace = -1;
    o.graph = neighbors ? WAGMA_GRAPH_EXPONENTIAL : WAGMA_GRAPH_RING;
    o.neighbors = neighbors;
    o.timeout = timeout;
    return o;
}

/* Returns when all have come. */
static void meet(rank *me) {
    fates *f = me->shared;
    atomic_fetch_add(&f->ready, 1);
    while (atomic_load(&f->ready) < me->size)
        sleep_ms(0.2);
}

static times noticing; /* of ranks that needed one that was lost, and known to be */

static void be_lost(rank *me, wagma_handle *h, double *x) {
    fates *f = me->shared;
    if (f->how == FAILS_IN_CALL)
        EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    atomic_store(&f->when, seconds());
    if (!me->sim && f->how == DIES_KNOWN)
        raise(SIGKILL);
    if (f->how == DIES_KNOWN || f->how == DIES_UNKNOWN)
        sim_kill(me->sim, me->rank, f->how == DIES_KNOWN);
    wagma_free(h); /* unclosed: fails */
}

/* All take some versions; then the last rank is lost, and the others go on until they cannot. */
static void lose_one(rank *me) {
    fates *f = me->shared;
    double *x = calloc(COUNT, sizeof *x);
    wagma_handle *h = rank_join(me, NULL);
    int status = WAGMA_OK;
    const double timeout = h->options.timeout;
    have_patience(h, PATIENCE_SECONDS);
    for (int t = 0; t < BEFORE; t++)
        EXPECT(wagma_allreduce(h, x, 1, NULL) == WAGMA_OK, "rank %d: %s", me->rank,
               wagma_last_error());
    meet(me); /* what the last rank has sent so far has come */
    have_patience(h, timeout);
    if (me->rank == me->size - 1) {
        be_lost(me, h, x);
    } else {
        for (int t = 0; t < AFTER && status == WAGMA_OK; t++)
            status = wagma_allreduce(h, x, 1, NULL);
        note(f, me->rank, status);
        EXPECT(wagma_allreduce(h, x, 1, NULL) == WAGMA_ECLOSED, "%s", wagma_last_error());
        wagma_free(h);
    }
    free(x);
}

static void check_lost(enum kind kind, int size, int neighbors, int how) {
    fates *f = shared_memory(sizeof *f);
    const wagma_options o = graph_options(size, neighbors, how == DIES_UNKNOWN ? 0.6 : 20);
    *f = (fates){.size = size, .how = how};
    team *t = team_start(kind, &o, lose_one, f);
    if (kind == PROCESSES && how == DIES_KNOWN)
        team_await_killed(t, size - 1);
    team_join(t);
    for (int r = 0; r < size - 1; r++) {
        const int may_stall = how == DIES_UNKNOWN && f->status[r] == WAGMA_ESTALL;
        EXPECT(f->status[r] == WAGMA_EPEER || may_stall, "rank %d: %d %s", r, f->status[r],
               f->message[r]);
        if (how != DIES_UNKNOWN)
            times_add(&noticing, f->took[r]);
        EXPECT(strstr(f->message[r], "(phase neighbors)") ||
                   strstr(f->message[r], "(phase window)"),
               "%s", f->message[r]);
    }
    CHECK(expectations_failed() == 0, "P=%d n=%d %s: how %d", size, neighbors, kind_name[kind],
          how);
}

static void test_lost_rank(void) {
    for (int size = 2; size <= 5; size += size == 3 ? 2 : 1)
        for (int neighbors = 0; neighbors <= graph_neighbors_most(size); neighbors++) {
            for (int how = 0; how < HOWS; how++)
                check_lost(MESSAGES, size, neighbors, how);
            for (int how = FAILS; how <= FAILS_IN_CALL; how++)
                check_lost(THREADS, size, neighbors, how);
            if (SEES_PROCESSES)
                check_lost(PROCESSES, size, neighbors, DIES_KNOWN);
        }
    CHECK(times_are_soon(&noticing, 2, "noticing a rank that is lost"), "see above");
}

/* ---- a neighbour that does not come ---------------------------------------------------------- */

/* Ranks 1 and 3 lose their patience when rank 2 has its result. */
static void stay_away(rank *me) {
    fates *f = me->shared;
    double x[COUNT] = {0};
    wagma_handle *h = rank_join(me, NULL);
    const double timeout = h->options.timeout;
    have_patience(h, PATIENCE_SECONDS);
    if (me->rank != 0) {
        int status = wagma_post(h, x, 1, 0);
        while (me->rank != 2 && atomic_load(&f->ready) == 0)
            sleep_ms(1);
        if (me->rank != 2)
            have_patience(h, timeout);
        EXPECT(status == WAGMA_INPROGRESS, "%d %s", status, wagma_last_error());
        note(f, me->rank, wagma_finish(h, x, NULL));
        atomic_fetch_add(&f->ready, 1);
    }
    while (atomic_load(&f->ready) < me->size - 1)
        sleep_ms(1);
    wagma_free(h);
}

/* In a ring of four rank 2 has no need of rank 0. */
static void check_stalled(enum kind kind) {
    fates *f = shared_memory(sizeof *f);
    wagma_options o = graph_options(4, 0, 0.5);
    o.stall_warning = 0.1;
    team *t = team_start(kind, &o, stay_away, f);
    while (atomic_load(&f->ready) < 3)
        sleep_ms(1);
    EXPECT(team_warnings(t, 1, "for rank 0, which is alive and has not called yet") > 0, "%s",
           team_warning(t, 1));
    EXPECT(team_warnings(t, 2, "rank 0") == 0, "%s", team_warning(t, 2));
    team_join(t);
    EXPECT(f->status[2] == WAGMA_OK, "%s", f->message[2]);
    for (int r = 1; r < 4; r += 2) /* who gives up first ends the other's wait, over messages */
        EXPECT(f->status[r] == WAGMA_ESTALL && strstr(f->message[r], "(phase neighbors)") &&
                   strstr(f->message[r], "for rank 0, which"),
               "rank %d: %d %s", r, f->status[r], f->message[r]);
    CHECK(expectations_failed() == 0, "%s", kind_name[kind]);
}

static void test_stalled(void) {
    check_stalled(THREADS);
    check_stalled(MESSAGES);
}

/* ---- freed in flight ------------------------------------------------------------------------- */

/* Large contributions are on their way; nothing is read or written any more. */
static void free_in_flight(rank *me) {
    const size_t count = 50000;
    double *x = calloc(count, sizeof *x);
    wagma_handle *h = rank_join(me, NULL);
    meet(me);
    EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    sleep_ms(0.1 * random_below(me, 10));
    wagma_free(h);
    free(x);
}

static void test_freed_in_flight(void) {
    for (int round = 0; round < 12; round++) {
        wagma_options o = graph_options(3, round % 3, 20);
        fates f = {.size = 3};
        o.count = 50000;
        team_join(team_start(round % 2 ? MESSAGES : THREADS, &o, free_in_flight, &f));
        CHECK(expectations_failed() == 0, "round %d", round);
    }
}

/* ---- ranks that disagree --------------------------------------------------------------------- */

static void disagree(rank *me) {
    wagma_options o = me->segment->options;
    wagma_handle *h;
    if (me->rank == 1)
        o.graph = WAGMA_GRAPH_EXPONENTIAL;
    const int status =
        wagma_create_over(sim_transport(me->sim, me->rank), &o, NULL, 1, &me->hooks, &h);
    EXPECT(status == WAGMA_EMISMATCH || status == WAGMA_EPEER, "rank %d: %d %s", me->rank, status,
           wagma_last_error());
    EXPECT(h == NULL, "rank %d has a handle", me->rank);
}

static void test_other_graphs(void) {
    const wagma_options o = graph_options(3, 0, 20);
    team_join(team_start(MESSAGES, &o, disagree, NULL));
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    RUN(test_lost_rank);
    RUN(test_stalled);
    RUN(test_freed_in_flight);
    RUN(test_other_graphs);
    return check_summary();
}
