/* What Cython has no words for: atomics, the pause of a spinning core, MPI's calling conventions.
 */
#ifndef WAGMA_BENCHMARKS_LOOP_H
#define WAGMA_BENCHMARKS_LOOP_H

#include <sched.h>
#include <stdint.h>
#include <time.h>

static inline int64_t loop_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Returns early when a signal comes. */
static inline void loop_sleep_until(int64_t ns) {
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static inline void loop_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline void loop_store(int64_t *word, int64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline int64_t loop_load(const int64_t *word) {
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void loop_publish(int64_t *word, int64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline int64_t loop_read(const int64_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* MPI_Allreduce: its handles are ints in MPICH and its relatives, pointers in Open MPI and in MPI's
 * standard ABI. */
typedef struct loop_mpi {
    void *function;
    const void *sendbuf;
    void *recvbuf;
    int count;
    int handle_bytes; /* sizeof(MPI_Comm) */
    int64_t datatype, op, comm;
} loop_mpi;

typedef int (*loop_mpi_ints)(const void *, void *, int, int, int, int);
typedef int (*loop_mpi_pointers)(const void *, void *, int, void *, void *, void *);

static inline int loop_mpi_call(const loop_mpi *c) {
    if (c->handle_bytes == sizeof(int))
        return ((loop_mpi_ints)c->function)(c->sendbuf, c->recvbuf, c->count, (int)c->datatype,
                                            (int)c->op, (int)c->comm);
    return ((loop_mpi_pointers)c->function)(c->sendbuf, c->recvbuf, c->count,
                                            (void *)(intptr_t)c->datatype, (void *)(intptr_t)c->op,
                                            (void *)(intptr_t)c->comm);
}

#endif
