/* Ranks in PID namespaces of their own, as in containers of one rank each: each is process 1. Their
 * deaths are noticed, and no rank reads the memory of the process that has another's ID here. */
#define _GNU_SOURCE /* unshare */
#include "check.h"
#include "shm/segment.h"
#include "support.h"
#include "shm/wait.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_PERMITTED = 77, DEATHS = 5, COUNT = 30000 };

/* Whether a system lets namespaces be made. */
static int may_unshare(void) {
    const pid_t pid = fork_child();
    if (pid == 0)
        _exit(unshare(CLONE_NEWPID) == 0 ? 0 : NOT_PERMITTED);
    int status;
    return waitpid(pid, &status, 0) == pid && status == 0;
}

/* Runs body(s, rank) as process 1; what it returns is the exit status of the process. */
static pid_t process_1(wagma_segment *s, int rank, int (*body)(wagma_segment *, int)) {
    const pid_t pid = fork_child();
    if (pid != 0)
        return pid;
    if (unshare(CLONE_NEWPID) != 0)
        _exit(NOT_PERMITTED);
    const pid_t inner = fork();
    if (inner == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(getpid() == 1 ? body(s, rank) : 9);
    }
    int status;
    _exit(waitpid(inner, &status, 0) == inner && WIFEXITED(status) ? WEXITSTATUS(status) : 8);
}

static void run_both(wagma_segment *s, int (*body)(wagma_segment *, int)) {
    const pid_t pids[2] = {process_1(s, 0, body), process_1(s, 1, body)};
    for (int r = 0; r < 2; r++) {
        int status;
        CHECK(waitpid(pids[r], &status, 0) == pids[r] && status == 0, "rank %d: status %x", r,
              (unsigned)status);
    }
}

/* ---- the segment ----------------------------------------------------------------------------- */

static void await(segment_presence *of, uint32_t state) {
    while (atomic_load(&of->state) != state)
        usleep(100);
}

static int look_at_each_other(wagma_segment *s, int rank) {
    segment_presence *me = segment_presence_of(s, rank), *other = segment_presence_of(s, !rank);
    if (segment_join(s, rank) != WAGMA_OK)
        return 1;
    if (rank == 1) {
        await(other, SEGMENT_READY);
        return 0; /* without having closed */
    }
    await(other, SEGMENT_JOINED);
    if (atomic_load(&other->pid) != 1 || segment_names_process(s, 1) ||
        !segment_names_process(s, 0) || segment_is_dead(s, 1))
        return 2;
    atomic_store(&me->state, SEGMENT_READY);
    for (int i = 0; i < 3000 && !segment_is_dead(s, 1); i++)
        usleep(1000);
    return segment_is_dead(s, 1) ? 0 : 3;
}

static void test_equal_process_ids(void) {
    wagma_options o = options_of(2, 2, 1, 100);
    wagma_segment *s;
    CHECK(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error());
    run_both(s, look_at_each_other);
    wagma_segment_close(s);
}

/* ---- handles --------------------------------------------------------------------------------- */

static _Atomic uint64_t *died; /* ns, when rank 1 was about to; shared */
static double *noticed;        /* s after that; shared */

static int reads; /* of more than a byte: a rank looks at bytes of its own memory only */

/* Instead of the C library's. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_n,
                         const struct iovec *there, unsigned long there_n, unsigned long flags) {
    reads += there[there_n - 1].iov_len > 1;
    return syscall(SYS_process_vm_readv, pid, here, here_n, there, there_n, flags);
}

static int call_until_death(wagma_segment *s, int rank) {
    static double x[COUNT];
    wagma_handle *h;
    wagma_outcome o;
    if (wagma_create(s, rank, NULL, 1, NULL, &h) != WAGMA_OK)
        return 1;
    for (int64_t t = 0; t < 10; t++)
        if (wagma_allreduce(h, x, 1, &o) != WAGMA_OK)
            return 2;
    if (reads != 0)
        return 3; /* of "process 1", which is another one here */
    if (rank == 1) {
        atomic_store(died, clock_now());
        return 0;
    }
    int status = WAGMA_OK;
    while (status == WAGMA_OK) /* with quorum 1 up to the window */
        status = wagma_allreduce(h, x, 1, &o);
    *noticed = (double)(clock_now() - atomic_load(died)) * 1e-9;
    return status == WAGMA_EPEER && strstr(wagma_last_error(), "rank 1 is dead") ? 0 : 4;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check_deaths(int quorum) {
    double after[DEATHS];
    for (int i = 0; i < DEATHS; i++) {
        wagma_options o = options_of(2, 2, quorum, COUNT);
        wagma_segment *s;
        CHECK(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error());
        run_both(s, call_until_death);
        wagma_segment_close(s);
        after[i] = *noticed;
    }
    qsort(after, DEATHS, sizeof *after, compare);
    printf("quorum %d: deaths noticed after %.3f to %.3f s, median %.3f s\n", quorum, after[0],
           after[DEATHS - 1], after[DEATHS / 2]);
    /* The last may have had no core for some seconds. */
    CHECK(after[DEATHS / 2] < 1 && after[DEATHS - 1] < 20, "median %g s, up to %g s",
          after[DEATHS / 2], after[DEATHS - 1]);
}

static void test_deaths(void) {
    died = shared_memory(sizeof *died);
    noticed = shared_memory(sizeof *noticed);
    check_deaths(1);
    check_deaths(2);
}

int main(void) {
    if (!may_unshare()) {
        printf("skipped   no PID namespaces may be made here: %s\n", strerror(EPERM));
        return check_summary();
    }
    RUN(test_equal_process_ids);
    RUN(test_deaths);
    return check_summary();
}
