/* Quorum "all" in trouble: ranks that disagree, fail, come late or give up. Nobody may hang. */
#include "check.h"
#include "shm/handle.h"
#include "ranks.h"

#include <stdatomic.h>
#include <string.h>
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
    while (atomic_load(&g->joined) < 3 && seconds() - began < PATIENCE)
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
    RUN(test_timeout);
    RUN(test_array_of_a_rank_that_gave_up);
    return check_summary();
}
