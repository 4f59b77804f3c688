/* See expect.h. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "expect.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shm/peer_memory.h"
#include "include/wagma.h"

enum { PRINTED_FAILURES = 8 };

static _Atomic int *failures; /* shared with forked ranks */

void *shared_memory(size_t bytes) {
    void *memory =
        mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return memory;
}

__attribute__((constructor)) static void make_counter(void) {
    failures = shared_memory(sizeof *failures);
}

int expect(int holds, const char *file, int line, const char *what, const char *format, ...) {
    if (holds)
        return 1;
    if (atomic_fetch_add(failures, 1) < PRINTED_FAILURES) {
        char text[512];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        printf("  %s:%d: %s: %s\n", file, line, what, text);
        fflush(stdout);
    }
    return 0;
}

void expect_refused(const char *file, int line, int status, int wanted, const char *const *words,
                    int n) {
    expect(status == wanted, file, line, "status", "%d instead of %d (%s)", status, wanted,
           wagma_last_error());
    for (int i = 0; i < n; i++)
        expect(strstr(wagma_last_error(), words[i]) != NULL, file, line, words[i], "not in: %s",
               wagma_last_error());
}

int expectations_failed(void) {
    return atomic_exchange(failures, 0);
}

double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void sleep_ms(double ms) {
    const double ns = ms * 1e6;
    struct timespec time = {(time_t)(ns / 1e9), (long)(ns - 1e9 * (double)(time_t)(ns / 1e9))};
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}

pid_t fork_child(void) {
    fflush(stdout);
    const pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    return 0;
}

void times_add(times *t, double value) {
    const int n = atomic_fetch_add(&t->n, 1);
    if (n < (int)(sizeof t->value / sizeof *t->value))
        t->value[n] = value;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double times_median(const times *t) {
    const int most = sizeof t->value / sizeof *t->value,
              n = atomic_load(&t->n) < most ? atomic_load(&t->n) : most;
    double sorted[sizeof t->value / sizeof *t->value];
    memcpy(sorted, t->value, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    return n ? sorted[(n - 1) / 2] : INFINITY;
}

int times_are_soon(times *t, double limit, const char *what) {
    enum { MOST = 20 }; /* s; a thread may be without a core for some seconds */
    const double median = times_median(t);
    int soon = EXPECT(median < limit, "%s: %d times, the median is %g s", what, atomic_load(&t->n),
                      median);
    for (int i = 0; soon && i < atomic_load(&t->n); i++)
        soon = EXPECT(t->value[i] < MOST, "%s: one took %g s", what, t->value[i]);
    *t = (times){0};
    return soon;
}

int peers_may_read(void) {
    uint64_t cookie = peer_memory_cookie();
    const struct peer_memory me = {(uint32_t)getpid(), cookie, (uint64_t)(uintptr_t)&cookie};
    const pid_t pid = fork_child();
    if (pid == 0)
        _exit(peer_memory_read(&me, &cookie, me.cookie_at, sizeof cookie) != 0);
    int status;
    return waitpid(pid, &status, 0) == pid && status == 0;
}
