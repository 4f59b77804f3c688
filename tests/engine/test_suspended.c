/* A job that is suspended and goes on: the time in which a rank itself was stopped is no waiting.
 */
#include "check.h"
#include "support.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 1000, PRIVATE = 100003, STOPPED_MS = 4500 };

/* How long a rank is late in running time, and what the other one takes for a stall, in seconds. In
 * between it may be without a core for some seconds. */
static const double LATE = 0.3, PATIENCE = 4;

static const struct what {
    const char *name;
    enum kind kind;
    int quorum, graph, late_at_creation, tests; /* tests: it calls wagma_test() until it is over */
    int64_t count;
} cases[] = {
    {"sync(x), shared memory", THREADS, 1, 0, 0, 0, COUNT},
    {"quorum all, shared memory", THREADS, 2, 0, 0, 0, COUNT},
    {"private array, shared memory", THREADS, 2, 0, 0, 0, PRIVATE},
    {"graph, shared memory", THREADS, 0, WAGMA_GRAPH_RING, 0, 0, COUNT},
    {"tests, shared memory", THREADS, 2, 0, 0, 1, COUNT},
    {"creation, shared memory", THREADS, 2, 0, 1, 0, COUNT},
    {"sync(x), messages", MESSAGES, 1, 0, 0, 0, COUNT},
    {"quorum all, messages", MESSAGES, 2, 0, 0, 0, COUNT},
    {"graph, messages", MESSAGES, 0, WAGMA_GRAPH_RING, 0, 0, COUNT},
    {"tests, messages", MESSAGES, 2, 0, 0, 1, COUNT},
    {"creation, messages", MESSAGES, 2, 0, 1, 0, COUNT},
};
enum { CASES = sizeof cases / sizeof *cases };

static const struct what *this_case;
static _Atomic int *waiting; /* [CASES] */

/* In running time: a stop makes only one of the sleeps longer. */
static void be_late(void) {
    for (int i = 0; i < 50; i++)
        sleep_ms(LATE * 1e3 / 50);
}

static int call(wagma_handle *h, void *x) {
    if (!this_case->tests)
        return this_case->graph ? wagma_allreduce(h, x, 1, NULL) : wagma_sync(h, x, 1, NULL);
    int status = wagma_post(h, x, 1, 0);
    while (status == WAGMA_INPROGRESS) {
        sleep_ms(0.5);
        status = wagma_test(h, x, NULL);
    }
    return status;
}

static void run(rank *me) {
    double *x = shared_memory((size_t)this_case->count * sizeof *x);
    if (me->rank == 0 && this_case->late_at_creation)
        waiting[this_case - cases] = 1;
    if (me->rank == 1 && this_case->late_at_creation)
        be_late();
    wagma_handle *h = rank_join(me, NULL);
    if (!h)
        return;
    if (me->rank == 0)
        waiting[this_case - cases] = 1;
    if (me->rank == 1 && !this_case->late_at_creation)
        be_late();
    EXPECT(call(h, x) == WAGMA_OK, "%s, rank %d: %s", this_case->name, me->rank,
           wagma_last_error());
    EXPECT(team_warnings(me->team, me->rank, "") == 0, "%s, rank %d: %s", this_case->name, me->rank,
           team_warning(me->team, me->rank));
    wagma_close(h);
    wagma_free(h);
}

/* All ranks, which one process has. */
static pid_t start(const struct what *what) {
    const pid_t pid = fork_child();
    if (pid != 0)
        return pid;
    this_case = what;
    wagma_options o = options_of(2, 2, what->quorum, what->count);
    o.graph = what->graph;
    if (what->graph)
        o.group_size = 0, o.grace = -1;
    o.timeout = o.stall_warning = PATIENCE;
    team_join(team_start(what->kind, &o, run, NULL));
    _exit(0);
}

static void test_suspended(void) {
    pid_t pids[CASES];
    waiting = shared_memory(CASES * sizeof *waiting);
    for (int i = 0; i < CASES; i++)
        pids[i] = start(&cases[i]);
    for (int i = 0; i < CASES; i++)
        for (const double end = seconds() + WATCHDOG_SECONDS / 2; !waiting[i] && seconds() < end;)
            sleep_ms(0.2);
    sleep_ms(LATE * 1e3 / 3);
    for (int i = 0; i < CASES; i++)
        kill(pids[i], SIGSTOP);
    sleep_ms(STOPPED_MS);
    for (int i = 0; i < CASES; i++)
        kill(pids[i], SIGCONT);
    for (int i = 0; i < CASES; i++) {
        int status;
        CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0, "%s: status %x",
              cases[i].name, (unsigned)status);
    }
    CHECK(expectations_failed() == 0, "a stop was counted as waiting");
}

int main(void) {
    RUN(test_suspended);
    return check_summary();
}
