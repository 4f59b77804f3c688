/* Ordinary and streaming stores into memory that another core reads, see ways.h; not a test.
 *
 *     cc -O3 -Icsrc tests/engine/bench_stores.c csrc/kernels/{dtypes,reduce*}.c \
 *         -lm && ./a.out [ROUNDS]
 *
 * Two processes, on the first two cores that this one may use, pass 16 MiB to each other at the
 * same time, through 4 places of 128 KiB each. A line per round: how long a cache line takes to the
 * other core and back, and the milliseconds of both ways of writing to the places. */
#define _GNU_SOURCE
#include "kernels/reduce.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 128 << 10, PLACES = 4, BYTES = 16 << 20, CHUNKS = BYTES / CHUNK };
enum { VOLLEYS = 50, TRIPS = 32 }; /* the fastest volley of so many round trips counts */

typedef struct shared {
    struct {
        _Alignas(128) atomic_long turn; /* of the round trips */
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
    double fastest = 1e18;
    for (int volley = 0; volley < VOLLEYS; volley++) {
        const double began = now();
        for (int i = 0; i < TRIPS; i++) {
            ++*at;
            if (me == 1)
                wait_until(&s->of[0].turn, *at);
            atomic_store_explicit(&s->of[me].turn, *at, memory_order_release);
            if (me == 0)
                wait_until(&s->of[1].turn, *at);
        }
        const double took = (now() - began) / TRIPS;
        fastest = took < fastest ? took : fastest;
    }
    return fastest;
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

/* This process goes to the n-th of the usable cores; 0: there is none, or it may not. */
static int go_to(const cpu_set_t *usable, int n) {
    cpu_set_t one;
    int core = 0;
    for (; core < CPU_SETSIZE; core++)
        if (CPU_ISSET((unsigned)core, usable) && n-- == 0)
            break;
    if (core == CPU_SETSIZE)
        return 0;
    CPU_ZERO(&one);
    CPU_SET((unsigned)core, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 5;
    cpu_set_t usable;
    /* both before there are two processes, of which one would wait for the other in vain */
    if (sched_getaffinity(0, sizeof usable, &usable) != 0 || !go_to(&usable, 1) ||
        !go_to(&usable, 0)) {
        printf("two cores are needed\n");
        return 1;
    }
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned char *x = aligned_alloc(2 << 20, BYTES);
    if (s == MAP_FAILED || !x)
        return 1;
    memset(s, 0, sizeof *s);
    const pid_t child = fork();
    const int me = child == 0;
    if (me)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (child < 0)
        return 1;
    (void)go_to(&usable, me);
    memset(x, 1, BYTES);
    long trips = 0, chunks = 0;
    if (me == 0)
        printf("stores of level \"%s\"%s\nround trip, ns    ordinary, ms   streaming, ms\n",
               reduce_best()->name,
               strcmp(reduce_best()->name, "scalar") ? "" : ", which has no streaming ones");
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
