/* Waits over messages that last: who is named, and that a rank that has closed waits for the others
 * as long as they are there. */
/* short run: c */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "engine/handle.h"
#include "fates.h"

/* ---- the end of a chain ---------------------------------------------------------------------- */

enum { SIZE = 4, AWAY = SIZE - 1 };

static char missing[128]; /* what is said when rank 3 alone is */

/* Rank 3 stays away after its first call. The others go on until one has waited for too long. */
static void stay_away(rank *me) {
    fates *f = me->shared;
    double x[3] = {0};
    wagma_handle *h = rank_join(me, NULL);
    const double timeout = h->options.timeout;
    have_patience(h, PATIENCE_SECONDS);
    int status = wagma_allreduce(h, x, 1, NULL);
    EXPECT(status == WAGMA_OK, "%s", wagma_last_error());
    if (me->rank == AWAY) {
        while (atomic_load(&f->ready) < SIZE - 1)
            sleep_ms(1);
    } else {
        while (status == WAGMA_OK) {
            EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
            status = wait_until_said(h, x, missing);
        }
        have_patience(h, timeout);
        note(f, me->rank, status == WAGMA_INPROGRESS ? wagma_finish(h, x, NULL) : status);
        atomic_fetch_add(&f->ready, 1);
    }
    wagma_free(h);
}

/* Expects every stalled rank to say `what` of rank 3, and of no other rank. */
static void expect_away_named(const wagma_options *o, const char *what) {
    fates f = {.size = SIZE};
    char text[sizeof missing + 16];
    int stalls = 0;
    snprintf(missing, sizeof missing, "for rank %d, which %s", AWAY, what);
    team_join(team_start(MESSAGES, o, stay_away, &f));
    snprintf(text, sizeof text, "%s (timeout", missing);
    for (int r = 0; r < AWAY; r++) {
        const int stalled = f.status[r] == WAGMA_ESTALL;
        stalls += stalled;
        expect_fate(&f, r, stalled ? WAGMA_ESTALL : WAGMA_EPEER,
                    stalled ? text : "rank 3 did not come in time");
    }
    CHECK(stalls > 0 && expectations_failed() == 0, "%d have stalled", stalls);
}

static void test_neighbours_of_neighbours(void) {
    wagma_options o = options_of(SIZE, 0, 0, 3);
    o.graph = WAGMA_GRAPH_RING;
    o.grace = -1;
    o.timeout = 1;
    expect_away_named(&o, "is alive and has not called yet");
}

static void test_all_of_a_group(void) {
    wagma_options o = options_of(SIZE, 0, 0, 3);
    o.timeout = 1;
    expect_away_named(&o, "is alive and has not called yet");
}

/* Nobody has to call, but rank 3 has no thread to send its data, for which one rank alone waits. */
static void test_data_of_data(void) {
    wagma_options o = options_of(SIZE, 0, 1, 3);
    o.timeout = 1;
    o.progress = WAGMA_PROGRESS_MAIN;
    expect_away_named(&o, "does not answer and has not sent its data yet");
}

/* ---- no patience ----------------------------------------------------------------------------- */

static void come_late(rank *me) {
    double x[3] = {0};
    wagma_handle *h = rank_join(me, NULL);
    fates *f = me->shared;
    while (me->rank == 1 && atomic_load(&f->ready) == 0)
        sleep_ms(1);
    note(f, me->rank, h ? wagma_allreduce(h, x, 1, NULL) : WAGMA_EINVAL);
    atomic_fetch_add(&f->ready, 1);
    wagma_free(h);
}

/* The first look at a wait ends it: there is no time for questions. */
static void test_a_timeout_of_nothing(void) {
    const double timeouts[] = {0, 1e-300, 1e-3};
    for (size_t i = 0; i < sizeof timeouts / sizeof *timeouts; i++) {
        fates f = {.size = 2};
        wagma_options o = options_of(2, 0, 0, 3);
        o.timeout = timeouts[i];
        team_join(team_start(MESSAGES, &o, come_late, &f));
        expect_fate(&f, 0, WAGMA_ESTALL, "for rank 1, which has not called yet (timeout");
        CHECK(expectations_failed() == 0, "timeout %g", timeouts[i]);
    }
}

/* ---- close ----------------------------------------------------------------------------------- */

/* Rank 0 closes first. The others call for longer than the timeout, and compute for longer. */
static void go_on(rank *me) {
    fates *f = me->shared;
    double x[3] = {0};
    wagma_handle *h = rank_join(me, NULL);
    const double timeout = h->options.timeout;
    have_patience(h, PATIENCE_SECONDS);
    for (int t = 0; t < (me->rank == 0 ? 1 : 6); t++) {
        if (me->rank > 0)
            sleep_ms(650);
        const int status = wagma_allreduce(h, x, 1, NULL);
        EXPECT(status == WAGMA_OK, "rank %d, version %d: %s", me->rank, t, wagma_last_error());
    }
    if (me->rank > 0)
        sleep_ms(4000);
    else
        have_patience(h, timeout);
    note(f, me->rank, wagma_close(h));
    wagma_free(h);
}

static void close_first(int graph) {
    fates f = {0};
    wagma_options o = options_of(3, 0, graph ? 0 : 1, 3);
    o.graph = graph ? WAGMA_GRAPH_RING : WAGMA_GRAPH_NONE;
    o.grace = graph ? -1 : 0;
    o.timeout = 3.5;
    team_join(team_start(MESSAGES, &o, go_on, &f));
    for (int r = 0; r < 3; r++)
        expect_fate(&f, r, WAGMA_OK, "");
}

/* Both at the same time, which is waiting. */
static void test_closed_ranks_wait_for_the_others(void) {
    pid_t pids[2];
    for (int graph = 0; graph < 2; graph++) {
        pids[graph] = fork_child();
        if (pids[graph] == 0) {
            close_first(graph);
            _exit(0);
        }
    }
    for (int graph = 0; graph < 2; graph++) {
        int status;
        CHECK(waitpid(pids[graph], &status, 0) == pids[graph] && status == 0, "graph %d: status %x",
              graph, (unsigned)status);
    }
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    RUN(test_neighbours_of_neighbours);
    RUN(test_all_of_a_group);
    RUN(test_data_of_data);
    RUN(test_a_timeout_of_nothing);
    RUN(test_closed_ranks_wait_for_the_others);
    return check_summary();
}
