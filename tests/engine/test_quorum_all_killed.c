/* Quorum "all" among processes one of which is killed or stopped, between versions and in a slice.
 * Nobody may hang: survivors notice soon, and a stop is told and then over. */
#include "check.h"
#include "shm/handle.h"
#include "ranks.h"

#include <stdatomic.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SMALL = 3, LARGE = 40000 };

/* ---- killed ---------------------------------------------------------------------------------- */

/* What forked ranks tell their test. */
typedef struct report {
    wagma_options options;
    int victim;
    int act_at;             /* version */
    int signal;             /* that the victim sends itself */
    _Atomic uint64_t acted; /* ns */
    int versions;
    int status[RANKS_MAX];
    uint64_t ended[RANKS_MAX]; /* ns */
    char message[RANKS_MAX][256];
    const char *phase;  /* in which the victim is waited for */
    _Atomic int warned; /* warnings that name the phase and the victim */
    char warning[256];  /* another one */
    int wrong[RANKS_MAX];
    int posts_last;      /* rank 0 */
    _Atomic int noticed; /* rank 2 has got its error */
} report;

static times noticing;           /* of survivors */
static report *shared;           /* of the running test; a kernel has no context */
static reduce_kernels sabotaged; /* ranks are processes */

static void act(void) {
    atomic_store(&shared->acted, clock_now());
    raise(shared->signal);
}

/* The victim acts in its first slice; the others wait in theirs, so that it certainly gets one. */
static void sum_and_act(wagma_dtype dtype, void *const *outs, int n_outs, const void *const *in,
                        const double *weights, int n, double divisor, size_t count) {
    if (!atomic_load(&shared->acted))
        act();
    reduce_best()->sum_to_all(dtype, outs, n_outs, in, weights, n, divisor, count);
}

static void sum_behind(wagma_dtype dtype, void *const *outs, int n_outs, const void *const *in,
                       const double *weights, int n, double divisor, size_t count) {
    const double began = seconds();
    while (!atomic_load(&shared->acted) && seconds() - began < PATIENCE_SECONDS)
        usleep(200);
    reduce_best()->sum_to_all(dtype, outs, n_outs, in, weights, n, divisor, count);
}

static void sabotage(wagma_handle *h, int is_victim) {
    sabotaged = *reduce_best();
    sabotaged.sum_to_all = is_victim ? sum_and_act : sum_behind;
    h->kernels = &sabotaged;
}

static int iterate(wagma_handle *h, int rank, void *context) {
    report *r = context;
    double *x = wagma_shared_array(h), sum = (r->options.size - 1) * r->options.size / 2;
    for (int t = 0; t < r->versions; t++) {
        for (int64_t i = 0; i < r->options.count; i++)
            x[i] = rank + t;
        if (t == r->act_at && r->options.count == LARGE)
            sabotage(h, rank == r->victim);
        else if (t == r->act_at && rank == r->victim)
            act();
        r->status[rank] = wagma_allreduce(h, x, 1, NULL);
        if (r->status[rank] != WAGMA_OK)
            break;
        for (int64_t i = 0; i < r->options.count; i++)
            r->wrong[rank] |= x[i] != sum + t * r->options.size;
    }
    r->ended[rank] = clock_now();
    snprintf(r->message[rank], sizeof r->message[rank], "%s", wagma_last_error());
    return r->status[rank] != WAGMA_OK;
}

static report *make_report(int size, int64_t count, int signal) {
    report *r = shared_memory(sizeof *r);
    r->options = ranks_options(size, 0, WAGMA_F64, count);
    r->options.average = 0;
    r->victim = 1;
    r->act_at = 5;
    r->versions = 10;
    r->signal = signal;
    shared = r;
    return r;
}

static void check_killed(int size, int64_t count) {
    report *r = make_report(size, count, SIGKILL);
    struct ranks_job *job;
    team *t = ranks_start(PROCESSES, &r->options, NULL, iterate, r, &job);
    CHECK(t, "no segment");
    team_await_killed(t, r->victim);
    team_join(t);
    CHECK(expectations_failed() == 0, "see above");
    for (int q = 0; q < size; q++) {
        if (q == r->victim)
            continue;
        double late = (double)(r->ended[q] - r->acted) * 1e-9;
        CHECK(r->status[q] == WAGMA_EPEER, "rank %d: %d %s", q, r->status[q], r->message[q]);
        CHECK(strstr(r->message[q], "rank 1 ") || strstr(r->message[q], "failed"), "%s",
              r->message[q]);
        times_add(&noticing, late);
        CHECK(!r->wrong[q], "rank %d had a wrong sum", q);
    }
    munmap(r, sizeof *r);
}

static void test_killed_between_versions(void) {
    for (int size = 2; size <= 5; size++)
        check_killed(size, SMALL);
    CHECK(times_are_soon(&noticing, 1, "noticing a process that has died"), "see above");
}

static void test_killed_in_a_slice(void) {
    for (int size = 2; size <= 5; size++)
        check_killed(size, LARGE);
    CHECK(times_are_soon(&noticing, 1, "noticing a process that has died"), "see above");
}

/* Rank 0 posts, and computes until rank 2 has noticed that rank 1 died in a slice. */
static int compute_meanwhile(wagma_handle *h, int rank, void *context) {
    report *r = context;
    double *x = wagma_shared_array(h);
    const double began = seconds();
    for (int64_t i = 0; i < r->options.count; i++)
        x[i] = 1;
    sabotage(h, rank == r->victim);
    for (int q = 0; q < r->options.size; q++) /* in one order or the other */
        while (r->posts_last == (rank == 0) && (q == 0) != (rank == 0) &&
               atomic_load(&segment_sync(handle_segment(h), q)->arrive) == 0)
            usleep(200);
    if (rank == 0) {
        r->status[rank] = wagma_post(h, x, 1, 0);
        while (!atomic_load(&r->noticed) && seconds() - began < PATIENCE_SECONDS)
            usleep(1000);
        r->status[rank] = wagma_wait(h, x, -1, NULL);
    } else {
        r->status[rank] = wagma_allreduce(h, x, 1, NULL);
        atomic_store(&r->noticed, 1);
    }
    r->ended[rank] = clock_now();
    snprintf(r->message[rank], sizeof r->message[rank], "%s", wagma_last_error());
    return r->status[rank] != WAGMA_OK;
}

/* A rank that is elsewhere between posting and waiting keeps nobody from noticing. */
static void check_killed_while_away(int posts_last) {
    report *r = make_report(3, LARGE, SIGKILL);
    struct ranks_job *job;
    r->posts_last = posts_last;
    team *t = ranks_start(PROCESSES, &r->options, NULL, compute_meanwhile, r, &job);
    CHECK(t, "no segment");
    team_await_killed(t, r->victim);
    team_join(t);
    CHECK(expectations_failed() == 0, "see above");
    for (int q = 0; q < 3; q += 2) {
        const double late = (double)(r->ended[q] - r->acted) * 1e-9;
        CHECK(r->status[q] == WAGMA_EPEER, "rank %d: %d %s", q, r->status[q], r->message[q]);
        times_add(&noticing, late);
    }
    munmap(r, sizeof *r);
}

static void test_killed_while_another_is_away(void) {
    check_killed_while_away(0);
    check_killed_while_away(1);
    CHECK(times_are_soon(&noticing, 1, "noticing a process that has died"), "see above");
}

/* ---- stopped --------------------------------------------------------------------------------- */

static void note_warning(void *context, const char *message) {
    report *r = context;
    if (strstr(message, r->phase) && strstr(message, "for rank 1, which"))
        atomic_fetch_add(&r->warned, 1);
    else /* on a busy machine ranks that live are late, too */
        snprintf(r->warning, sizeof r->warning, "%s", message);
}

static void check_stopped(int64_t count, const char *phase) {
    report *r = make_report(3, count, SIGSTOP);
    wagma_hooks hooks = {r, note_warning, NULL};
    struct ranks_job *job;
    r->options.stall_warning = 0.2;
    r->phase = phase;
    team *t = ranks_start(PROCESSES, &r->options, &hooks, iterate, r, &job);
    CHECK(t, "no segment");
    team_await_stopped(t, r->victim);
    for (const double end = seconds() + WATCHDOG_SECONDS / 2;
         atomic_load(&r->warned) == 0 && seconds() < end;)
        usleep(1000);
    int early = r->ended[0] || r->ended[2];
    team_continue(t, r->victim);
    team_join(t);
    CHECK(expectations_failed() == 0, "see above");
    CHECK(!early, "a rank went on without the stopped one");
    for (int q = 0; q < 3; q++)
        CHECK(r->status[q] == WAGMA_OK, "rank %d: %s", q, r->message[q]);
    for (int q = 0; q < 3; q++)
        CHECK(!r->wrong[q], "rank %d had a wrong sum", q);
    CHECK(atomic_load(&r->warned) > 0, "no warning of %s of rank 1, but: %s", phase, r->warning);
    munmap(r, sizeof *r);
}

static void test_stopped_between_versions(void) {
    check_stopped(SMALL, "quorum");
}
static void test_stopped_in_a_slice(void) {
    check_stopped(LARGE, "slices");
}

int main(void) {
    RUN(test_killed_between_versions);
    RUN(test_killed_in_a_slice);
    RUN(test_killed_while_another_is_away);
    RUN(test_stopped_between_versions);
    RUN(test_stopped_in_a_slice);
    return check_summary();
}
