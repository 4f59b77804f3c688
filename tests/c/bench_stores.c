/* Ordinary and streaming stores into memory that another core reads, see stores.h; not a test.
 *
 *     gcc -std=gnu11 -O3 -Icsrc tests/c/bench_stores.c csrc/reduce*.c -lm && ./a.out [ROUNDS]
 *
 * Two processes, on cores 0 and 1, pass 16 MiB to each other at the same time, through 4 places of
 * 128 KiB each. A line per round: how long a cache line takes to the other core and back, and the
 * milliseconds of both ways of writing to the places. */
#define _GNU_SOURCE
#include "reduce.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 128 << 10, PLACES = 4, BYTES = 16 << 20, CHUNKS = BYTES / CHUNK, TRIPS = 2000 };

typedef struct shared {
    _Alignas(128) atomic_long turn[2]; /* of the round trips: a line that goes back and forth */
    struct {
        _Alignas(128) atomic_long written;
        _Alignas(64) unsigned char place[PLACES][CHUNK];
    } of[2];
} shared;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* acquire: pairs with the store of whoever is waited for */
static void wait_until(atomic_long *word, long value) {
    while (atomic_load_explicit(word, memory_order_acquire) < value)
        ;
}

static double round_trip(shared *s, int me, long *at) {
    const double began = now();
    for (int i = 0; i < TRIPS; i++) {
        ++*at;
        if (me == 1)
            wait_until(&s->turn[0], *at);
        atomic_store_explicit(&s->turn[me], *at, memory_order_release);
        if (me == 0)
            wait_until(&s->turn[1], *at);
    }
    return (now() - began) / TRIPS;
}

/* ms. What was read before the last chunk of the other was written is free again. */
static double pass(shared *s, int me, const reduce_kernels *k, int streamed, unsigned char *x,
                   long *at) {
    const double began = now();
    for (int c = 0; c < CHUNKS; c++) {
        unsigned char *own = s->of[me].place[c % PLACES], *chunk = x + (size_t)c * CHUNK;
        if (streamed)
            k->streamed_copy(WAGMA_I32, own, chunk, 1, CHUNK / 4);
        else
            memcpy(own, chunk, CHUNK);
        /* release: the chunk, and that the one before was read */
        atomic_store_explicit(&s->of[me].written, ++*at, memory_order_release);
        wait_until(&s->of[1 - me].written, *at);
        memcpy(chunk, s->of[1 - me].place[c % PLACES], CHUNK);
    }
    return (now() - began) * 1e-6;
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 5;
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED)
        return 1;
    memset(s, 0, sizeof *s);
    const int me = fork() == 0;
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET((unsigned)me, &core);
    if (sched_setaffinity(0, sizeof core, &core) != 0) {
        printf("core %d cannot be used: two are needed\n", me);
        return 1;
    }
    unsigned char *x = aligned_alloc(2 << 20, BYTES);
    memset(x, 1, BYTES);
    long trips = 0, chunks = 0;
    if (me == 0)
        printf("round trip, ns    ordinary, ms   streaming, ms\n");
    for (int i = 0; i < rounds; i++) {
        const double trip = round_trip(s, me, &trips);
        const double ordinary = pass(s, me, reduce_best(), 0, x, &chunks);
        const double streaming = pass(s, me, reduce_best(), 1, x, &chunks);
        if (me == 0)
            printf("%14.0f%16.2f%16.2f\n", trip, ordinary, streaming);
        fflush(stdout);
        usleep(20000);
    }
    free(x);
    if (me == 0)
        wait(NULL);
    return 0;
}
