/* Quorum "all" with private arrays, in trouble: ranks that are killed or stopped. Nobody may hang.
 */
#include "check.h"
#include "shm/quorum_all/executor.h"
#include "engine/handle.h"
#include "periodic.h"
#include "ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PATIENCE = 20 };                           /* seconds */
enum { LARGE = 400000, PLACES = SEGMENT_CHUNKS }; /* f64: more chunks than places */

/* What forked ranks tell their test. */
typedef struct report {
    wagma_options options;
    int victim, act_at, signal;
    int mixed;              /* rank 0 passes its shared array */
    int slice;              /* in which of its sums the victim acts */
    _Atomic uint64_t acted; /* ns */
    int status[RANKS_MAX];
    uint64_t ended[RANKS_MAX]; /* ns */
    char message[RANKS_MAX][256];
    const char *phase; /* that warnings are to name */
    _Atomic int named; /* warnings that name it, and the victim alone */
    char warning[256]; /* the last of the others */
    int wrong[RANKS_MAX];
    int direct[RANKS_MAX]; /* in the newest version */
} report;

static report *shared;           /* of the running test; a kernel has no context */
static reduce_kernels sabotaged; /* ranks are processes */

static void act(void) {
    atomic_store(&shared->acted, clock_now());
    raise(shared->signal);
}

static void sum_and_act(wagma_dtype dtype, void *const *outs, int n_outs, const void *const *in,
                        const double *weights, int n, double divisor, size_t count) {
    if (shared->slice-- == 0)
        act();
    reduce_best()->sum_to_all(dtype, outs, n_outs, in, weights, n, divisor, count);
}

static int iterate(wagma_handle *h, int rank, void *context) {
    report *r = context;
    const int size = r->options.size;
    const size_t bytes = LARGE * sizeof(double), head = PERIODIC_ELEMENTS * sizeof(double);
    double *own = malloc(bytes);
    for (int t = 0; t < 8 && r->status[rank] == WAGMA_OK; t++) {
        double *x = r->mixed && rank == 0 ? wagma_shared_array(h) : own;
        for (int64_t i = 0; i < PERIODIC_ELEMENTS; i++)
            x[i] = (double)(rank + t + i % 7);
        periodic_repeat(x, head, bytes);
        if (t == r->act_at && rank == r->victim && r->slice >= 0) {
            sabotaged = *reduce_best();
            sabotaged.sum_to_all = sum_and_act;
            h->kernels = &sabotaged;
        } else if (t == r->act_at && rank == r->victim) {
            act();
        }
        r->status[rank] = wagma_allreduce(h, x, 1, NULL);
        r->direct[rank] = quorum_all_of(h)->chunks.direct;
        if (r->status[rank] != WAGMA_OK)
            break;
        r->wrong[rank] |= !periodic_holds(x, head, bytes);
        for (int64_t i = 0; i < PERIODIC_ELEMENTS; i++)
            r->wrong[rank] |= x[i] != size * (size - 1) / 2 + size * (double)(t + i % 7);
    }
    r->ended[rank] = clock_now();
    snprintf(r->message[rank], sizeof r->message[rank], "%s", wagma_last_error());
    free(own);
    return r->status[rank] != WAGMA_OK;
}

/* slice: -1: the victim acts between two versions, otherwise in this one of its sums */
static report *make_report(int size, int signal, int slice, int mixed) {
    report *r = shared_memory(sizeof *r);
    r->options = ranks_options(size, 0, WAGMA_F64, LARGE);
    r->options.average = 0;
    r->victim = 1;
    r->act_at = 3;
    r->signal = signal;
    r->slice = slice;
    r->mixed = mixed;
    shared = r;
    return r;
}

static const char *const way_name[] = {"places", "direct"};

static times noticing; /* of survivors */

static void check_killed(int size, int slice, int mixed) {
    report *r = make_report(size, SIGKILL, slice, mixed);
    struct ranks_job *job;
    team *t = ranks_start(PROCESSES, &r->options, NULL, iterate, r, &job);
    CHECK(t, "no segment");
    team_await_killed(t, r->victim);
    team_join(t);
    CHECK(expectations_failed() == 0, "see above");
    for (int q = 0; q < size; q++) {
        if (q == r->victim)
            continue;
        const double late = (double)(r->ended[q] - r->acted) * 1e-9;
        CHECK(r->status[q] == WAGMA_EPEER, "P=%d, %s, sum %d, rank %d: %d %s", size,
              way_name[chunks_default], slice, q, r->status[q], r->message[q]);
        CHECK(strstr(r->message[q], "rank 1 ") || strstr(r->message[q], "failed"), "%s",
              r->message[q]);
        CHECK(slice < 0 || r->direct[q] == (chunks_default == CHUNKS_DIRECT && size - mixed > 1),
              "P=%d mixed %d, rank %d: direct %d", size, mixed, q, r->direct[q]);
        times_add(&noticing, late);
        CHECK(!r->wrong[q], "rank %d had a wrong sum", q);
    }
    munmap(r, sizeof *r);
}

static void test_killed(void) {
    for (int size = 2; size <= 4; size++)
        for (int mixed = 0; mixed <= 1; mixed++) {
            check_killed(size, -1, mixed);
            check_killed(size, 0, mixed);
            check_killed(size, PLACES + 2, mixed);
        }
    CHECK(times_are_soon(&noticing, 1, "noticing a process that has died"), "see above");
}

/* On a busy machine ranks that live are late, too. */
static void note_warning(void *context, const char *message) {
    report *r = context;
    if (strstr(message, r->phase) && strstr(message, "for rank 1, which"))
        atomic_fetch_add(&r->named, 1);
    else
        snprintf(r->warning, sizeof r->warning, "%s", message);
}

/* The others wait for it, say so, and go on with it. */
static void check_stopped(int slice, int mixed) {
    report *r = make_report(3, SIGSTOP, slice, mixed);
    wagma_hooks hooks = {r, note_warning, NULL};
    struct ranks_job *job;
    r->options.stall_warning = 0.2;
    r->phase = slice < 0 ? "quorum" : "slices";
    team *t = ranks_start(PROCESSES, &r->options, &hooks, iterate, r, &job);
    CHECK(t, "no segment");
    team_await_stopped(t, r->victim);
    const double began = seconds();
    while (atomic_load(&r->named) == 0 && seconds() - began < PATIENCE)
        usleep(1000);
    const int early = r->ended[0] || r->ended[2];
    team_continue(t, r->victim);
    team_join(t);
    CHECK(expectations_failed() == 0, "see above");
    CHECK(!early, "a rank went on without the stopped one");
    for (int q = 0; q < 3; q++)
        CHECK(r->status[q] == WAGMA_OK && !r->wrong[q], "rank %d: %d wrong %d %s", q, r->status[q],
              r->wrong[q], r->message[q]);
    CHECK(atomic_load(&r->named) > 0, "no warning of %s of rank 1, but: %s", r->phase, r->warning);
    munmap(r, sizeof *r);
}

static void test_stopped(void) {
    for (int mixed = 0; mixed <= 1; mixed++) {
        check_stopped(-1, mixed);
        check_stopped(0, mixed);
        check_stopped(PLACES + 2, mixed);
    }
}

int main(void) {
    if (!peers_may_read()) {
        printf("skipped   directly: this system does not let ranks read each other's memory\n");
        RUN(test_killed);
        RUN(test_stopped);
        return check_summary();
    }
    for (chunks_default = CHUNKS_PLACES; chunks_default <= CHUNKS_DIRECT; chunks_default++) {
        printf("%s\n", way_name[chunks_default]);
        RUN(test_killed);
        RUN(test_stopped);
    }
    return check_summary();
}
