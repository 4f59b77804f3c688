/* Ranks of one handle for C tests: as threads over one mapping, or as forked processes.
 *
 *     static int body(wagma_handle *h, int rank, void *context) {
 *         EXPECT(wagma_allreduce(h, x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
 *         return 0;
 *     }
 *     CHECK(ranks_as_threads(&options, body, context) == 0, "...");
 *
 * A body that fails leaves its handle unclosed, so that the other ranks end with WAGMA_EPEER
 * instead of waiting for it. Everything ends after RANKS_SECONDS. */
#ifndef WAGMA_TESTS_RANKS_H
#define WAGMA_TESTS_RANKS_H

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wagma.h"

enum { RANKS_MAX = 24, RANKS_SECONDS = 100, RANKS_KILLED = -9 };

/* In a body: prints and leaves it with 1. */
#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            char text_[1024];                                                                      \
            snprintf(text_, sizeof text_, __VA_ARGS__);                                            \
            fprintf(stderr, "  %s:%d: %s: %s\n", __FILE__, __LINE__, #condition, text_);           \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* Returns 0 to close the handle in order; RANKS_KILLED never, it stands for a killed process. */
typedef int (*rank_body)(wagma_handle *h, int rank, void *context);

typedef struct rank_run {
    wagma_segment *segment;
    const wagma_hooks *hooks;
    rank_body body;
    void *context;
    int rank;
    int result;
} rank_run;

static void *rank_main(void *argument) {
    rank_run *run = argument;
    wagma_handle *h;
    if (wagma_create(run->segment, run->rank, NULL, 1, run->hooks, &h) != WAGMA_OK) {
        fprintf(stderr, "  rank %d: %s\n", run->rank, wagma_last_error());
        run->result = 1;
        return NULL;
    }
    run->result = run->body(h, run->rank, run->context);
    if (run->result == 0 && wagma_close(h) != WAGMA_OK) {
        fprintf(stderr, "  rank %d: close: %s\n", run->rank, wagma_last_error());
        run->result = 1;
    }
    wagma_free(h);
    return NULL;
}

/* A segment for these options, and the watchdog. NULL after a message. */
static wagma_segment *ranks_segment(const wagma_options *options) {
    wagma_segment *s;
    alarm(RANKS_SECONDS);
    if (wagma_segment_create(options, NULL, &s) == WAGMA_OK)
        return s;
    fprintf(stderr, "  %s\n", wagma_last_error());
    return NULL;
}

/* The number of ranks whose body did not return 0. */
static inline int ranks_as_threads(const wagma_options *options, rank_body body, void *context) {
    wagma_segment *s = ranks_segment(options);
    pthread_t threads[RANKS_MAX];
    rank_run runs[RANKS_MAX];
    int failed = 0;
    if (!s)
        return options->size;
    for (int r = 0; r < options->size; r++) {
        runs[r] = (rank_run){s, NULL, body, context, r, 0};
        pthread_create(&threads[r], NULL, rank_main, &runs[r]);
    }
    for (int r = 0; r < options->size; r++) {
        pthread_join(threads[r], NULL);
        failed += runs[r].result != 0;
    }
    wagma_segment_close(s);
    alarm(0);
    return failed;
}

/* Starts the ranks as processes, which end with their test program. */
static inline wagma_segment *ranks_fork(const wagma_options *options, const wagma_hooks *hooks,
                                        rank_body body, void *context, pid_t *pids) {
    wagma_segment *s = ranks_segment(options);
    fflush(stdout);
    for (int r = 0; s && r < options->size; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            rank_run run = {s, hooks, body, context, r, 0};
            rank_main(&run);
            wagma_segment_close(s);
            _exit(run.result);
        }
    }
    return s;
}

/* results[r] = what body returned, or RANKS_KILLED; the number that is not 0. */
static inline int ranks_collect(wagma_segment *s, int size, const pid_t *pids, int *results) {
    int failed = 0;
    for (int r = 0; r < size; r++) {
        int status = 0;
        waitpid(pids[r], &status, 0);
        results[r] = WIFEXITED(status) ? (signed char)WEXITSTATUS(status) : RANKS_KILLED;
        failed += results[r] != 0;
    }
    wagma_segment_close(s);
    alarm(0);
    return failed;
}

static inline int ranks_as_processes(const wagma_options *options, rank_body body, void *context) {
    pid_t pids[RANKS_MAX];
    int results[RANKS_MAX];
    wagma_segment *s = ranks_fork(options, NULL, body, context, pids);
    return s ? ranks_collect(s, options->size, pids, results) : options->size;
}

/* Zeroed memory that forked ranks share with their test. */
static inline void *ranks_shared(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static inline wagma_options ranks_options(int size, int group_size, wagma_dtype dtype,
                                          int64_t count) {
    wagma_options options;
    wagma_options_init(&options);
    options.size = size;
    options.group_size = group_size;
    options.dtype = (int32_t)dtype;
    options.count = count;
    return options;
}

#endif
