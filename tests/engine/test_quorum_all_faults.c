/* Quorum "all" in trouble: ranks that disagree, are killed or stopped. Nobody may hang. */
#include "check.h"
#include "shm/handle.h"
#include "ranks.h"

#include <stdatomic.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SMALL = 3, LARGE = 40000 };

/* ---- sync at different versions -------------------------------------------------------------- */

typedef struct disagreement {
    wagma_options options;
    int at[RANKS_MAX]; /* version at which the rank calls sync; -1: never */
    int status[RANKS_MAX];
    char message[RANKS_MAX][512];
} disagreement;

static int disagree(wagma_handle *h, int rank, void *context) {
    disagreement *d = context;
    double x[SMALL] = {0};
    d->status[rank] = wagma_sync(h, x, 1, NULL); /* version 0: everybody is there */
    for (int t = 1; t < 12 && d->status[rank] == WAGMA_OK; t++)
        d->status[rank] =
            t == d->at[rank] ? wagma_sync(h, x, 1, NULL) : wagma_allreduce(h, x, 1, NULL);
    snprintf(d->message[rank], sizeof d->message[rank], "%s", wagma_last_error());
    return d->status[rank] != WAGMA_OK;
}

static void check_disagreement(int size, int group, int at0, int at1) {
    disagreement d = {.options = ranks_options(size, group, WAGMA_F64, SMALL)};
    int noticed = 0;
    for (int r = 0; r < size; r++)
        d.at[r] = at1;
    d.at[0] = at0;
    ranks_run(THREADS, &d.options, disagree, &d);
    for (int r = 0; r < size; r++) {
        /* A group that is over with its versions before needs nobody. */
        CHECK(d.status[r] == WAGMA_EMISMATCH || d.status[r] == WAGMA_EPEER ||
                  (d.status[r] == WAGMA_OK && group < size),
              "P=%d S=%d sync at %d and %d, rank %d: %d %s", size, group, at0, at1, r, d.status[r],
              d.message[r]);
        if (d.status[r] == WAGMA_EMISMATCH) {
            CHECK(strstr(d.message[r], "sync") && strstr(d.message[r], "version"), "%s",
                  d.message[r]);
            noticed++;
        }
    }
    CHECK(noticed > 0, "P=%d S=%d sync at %d and %d: no WAGMA_EMISMATCH", size, group, at0, at1);
}

static void test_sync_mismatch(void) {
    for (int size = 2; size <= 4; size++)
        for (int group = 1; group <= size; group++) {
            check_disagreement(size, group, 3, -1);
            check_disagreement(size, group, -1, 3);
            check_disagreement(size, group, 3, 4);
            check_disagreement(size, group, 5, 2);
        }
}

/* ---- failed behind somebody else ------------------------------------------------------------- */

enum { PATIENCE = 8 }; /* seconds; an unnoticed failure ends so much later */

typedef struct obstruction {
    wagma_options options;
    int slow, departing, failing; /* ranks; -1: none */
    int status[RANKS_MAX];
    _Atomic int joined; /* a rank that fails before this is `size` spoils the creation */
    _Atomic int ended;  /* ranks that run until an error */
} obstruction;

static int run_until_error(wagma_handle *h, int rank, void *context) {
    obstruction *o = context;
    double x[SMALL] = {0}, began = seconds();
    atomic_fetch_add(&o->joined, 1);
    while (atomic_load(&o->joined) < o->options.size)
        usleep(200);
    if (rank == o->departing)
        return 0;
    if (rank == o->failing)
        return 1;
    if (rank == o->slow) { /* lives, but comes to no version before the others have noticed */
        while (!atomic_load(&o->ended) && seconds() - began < PATIENCE)
            usleep(1000);
        return 1;
    }
    for (int t = 0; t < 12 && o->status[rank] == WAGMA_OK; t++)
        o->status[rank] = wagma_allreduce(h, x, 1, NULL);
    atomic_fetch_add(&o->ended, 1);
    return 1;
}

/* The window needs the failed rank, whoever else is behind, too. */
static void check_obstruction(int size, int group, int slow, int departing, int failing) {
    obstruction o = {.options = ranks_options(size, group, WAGMA_F64, SMALL),
                     .slow = slow,
                     .departing = departing,
                     .failing = failing};
    o.options.window = 1;
    o.options.timeout = PATIENCE / 2.0;
    ranks_run(THREADS, &o.options, run_until_error, &o);
    for (int r = 0; r < size; r++)
        CHECK(r == slow || r == departing || r == failing || o.status[r] == WAGMA_EPEER,
              "P=%d S=%d, rank %d: %d instead of WAGMA_EPEER", size, group, r, o.status[r]);
}

static void test_failed_behind_a_departed_rank(void) {
    check_obstruction(4, 2, -1, 0, 3);
    check_obstruction(3, 1, -1, 0, 2);
}

static void test_failed_behind_a_slow_rank(void) {
    check_obstruction(3, 1, 0, -1, 2);
    check_obstruction(4, 2, 0, -1, 3);
}

/* ---- asleep ---------------------------------------------------------------------------------- */

enum { NAPS = 20 };

/* Groups of one: rank 0 sleeps before its window until rank 1 has published. */
static int nap(wagma_handle *h, int rank, void *context) {
    segment_presence *sleeper = segment_presence_of(handle_segment(h), 0);
    _Atomic uint32_t *rung = context;
    double x[SMALL] = {0}, began = seconds();
    for (int t = 0; t < NAPS; t++) {
        /* Rank 0 is two versions ahead, but for its last ones. */
        while (rank == 1 && t + 2 < NAPS && !atomic_load(&sleeper->asleep) &&
               seconds() - began < PATIENCE)
            usleep(100);
        uint32_t before = atomic_load(&sleeper->bell);
        REQUIRE(wagma_allreduce(h, x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
        if (rank == 1)
            atomic_fetch_add(rung, atomic_load(&sleeper->bell) - before);
    }
    return 0;
}

static void test_window_rings(void) {
    wagma_options o = ranks_options(2, 1, WAGMA_F64, SMALL);
    _Atomic uint32_t rung = 0;
    o.window = 1;
    CHECK(ranks_run(THREADS, &o, nap, &rung) == 0, "see above");
    /* A sleeper that looks by itself just then needs no ring. */
    CHECK(atomic_load(&rung) > 0, "nobody woke rank 0 in %d versions", NAPS);
}

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
    while (!atomic_load(&shared->acted) && seconds() - began < PATIENCE)
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
}

static void test_killed_in_a_slice(void) {
    for (int size = 2; size <= 5; size++)
        check_killed(size, LARGE);
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
        while (!atomic_load(&r->noticed) && seconds() - began < PATIENCE)
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
}

/* Those that the tests above have measured. */
static void test_within_a_second(void) {
    CHECK(atomic_load(&noticing.n) > 0, "no survivor");
    CHECK(times_median(&noticing) < 1, "half of the survivors noticed after %.2f s and more",
          times_median(&noticing));
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

/* ---- timeouts -------------------------------------------------------------------------------- */

static int come_late(wagma_handle *h, int rank, void *context) {
    double x[SMALL] = {0}, began = seconds();
    _Atomic int *stalled = context;
    while (rank == 0 && !atomic_load(stalled) && seconds() - began < WATCHDOG_SECONDS / 2)
        usleep(1000);
    int status = wagma_allreduce(h, x, 1, NULL);
    atomic_store(stalled, 1);
    if (rank == 0)
        return 0;
    REQUIRE(status == WAGMA_ESTALL, "%d %s", status, wagma_last_error());
    REQUIRE(strstr(wagma_last_error(), "quorum") && strstr(wagma_last_error(), "for rank 0, which"),
            "%s", wagma_last_error());
    REQUIRE(seconds() - began >= 0.3, "after %.2f s", seconds() - began);
    status = wagma_allreduce(h, x, 1, NULL);
    REQUIRE(status == WAGMA_ECLOSED, "%d %s", status, wagma_last_error());
    return 0;
}

static void test_timeout(void) {
    wagma_options o = ranks_options(2, 0, WAGMA_F64, SMALL);
    o.timeout = 0.3;
    _Atomic int stalled = 0;
    CHECK(ranks_run(THREADS, &o, come_late, &stalled) == 0, "see above");
}

/* ---- interrupted ----------------------------------------------------------------------------- */

typedef struct surrender {
    wagma_options options;
    _Atomic int joined; /* who is interrupted earlier fails the others' creation, too */
    _Atomic int overwritten;
    int status[3];
} surrender;

static _Thread_local int stops; /* this thread's rank is to be interrupted */

static int is_interrupted(void *context) {
    (void)context;
    return stops;
}

/* Rank 1 has published its shared array when it is interrupted, and then writes into it. */
static int write_after_giving_up(wagma_handle *h, int rank, void *context) {
    surrender *g = context;
    double *x = wagma_shared_array(h), began = seconds();
    for (int64_t i = 0; i < g->options.count; i++)
        x[i] = rank;
    atomic_fetch_add(&g->joined, 1);
    while (atomic_load(&g->joined) < 3)
        usleep(200);
    while (rank == 2 && !atomic_load(&g->overwritten) && seconds() - began < PATIENCE)
        usleep(1000);
    stops = rank == 1;
    g->status[rank] = wagma_allreduce(h, x, 1, NULL);
    for (int64_t i = 0; rank == 1 && i < g->options.count; i++)
        x[i] = 1e9;
    if (rank == 1)
        atomic_store(&g->overwritten, 1);
    return g->status[rank] != WAGMA_OK;
}

static void test_array_of_a_rank_that_gave_up(void) {
    surrender g = {.options = ranks_options(3, 0, WAGMA_F64, LARGE)};
    wagma_hooks hooks = {NULL, NULL, is_interrupted};
    struct ranks_job *job;
    team_join(ranks_start(THREADS, &g.options, &hooks, write_after_giving_up, &g, &job));
    CHECK(expectations_failed() == 0, "see above");
    CHECK(g.status[1] == WAGMA_EINTERRUPTED, "rank 1: %d", g.status[1]);
    CHECK(g.status[0] == WAGMA_EPEER, "rank 0 delivers what rank 1 wrote: %d", g.status[0]);
    CHECK(g.status[2] == WAGMA_EPEER, "rank 2 delivers what rank 1 wrote: %d", g.status[2]);
}

int main(void) {
    RUN(test_sync_mismatch);
    RUN(test_failed_behind_a_departed_rank);
    RUN(test_failed_behind_a_slow_rank);
    RUN(test_window_rings);
    if (SEES_PROCESSES) {
        RUN(test_killed_between_versions);
        RUN(test_killed_in_a_slice);
        RUN(test_killed_while_another_is_away);
        RUN(test_within_a_second);
        RUN(test_stopped_between_versions);
        RUN(test_stopped_in_a_slice);
    }
    RUN(test_timeout);
    RUN(test_array_of_a_rank_that_gave_up);
    return check_summary();
}
