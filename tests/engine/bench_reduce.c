/* Speed of each kernel, GB of inputs read and outputs written per second; not a test.
 *
 *     cc -O3 -Icsrc tests/engine/bench_reduce.c csrc/kernels/{dtypes,reduce*}.c \
 *         -lm && ./a.out [LEVEL]
 *
 * The best of several repetitions over buffers of 4 KiB (first-level cache), 256 KiB and 64 MiB
 * (memory). */
#include "kernels/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { INPUTS = 8 };

typedef struct work {
    const reduce_kernels *level;
    wagma_dtype dtype;
    unsigned char *array[INPUTS + 1]; /* the last one is the output */
    size_t count;
} work;

static void sum_of(const work *w, int n, double weight) {
    double weights[INPUTS];
    for (int k = 0; k < n; k++)
        weights[k] = weight;
    w->level->sum(w->dtype, w->array[INPUTS], (const void *const *)w->array, weights, n, 1.0,
                  w->count);
}
static void sum_2(const work *w) {
    sum_of(w, 2, 1.0);
}
static void sum_2_weighted(const work *w) {
    sum_of(w, 2, 3.0);
}
static void sum_4(const work *w) {
    sum_of(w, 4, 1.0);
}
static void sum_8(const work *w) {
    sum_of(w, 8, 1.0);
}
static void sum_4_in_place(const work *w) {
    static const double ones[4] = {1, 1, 1, 1};
    w->level->sum_to_all(w->dtype, (void *const *)w->array, 4, (const void *const *)w->array, ones,
                         4, 1.0, w->count);
}
static void copy(const work *w) {
    w->level->divided_copy(w->dtype, w->array[INPUTS], w->array[0], 1.0, w->count);
}
static void divided_copy(const work *w) {
    w->level->divided_copy(w->dtype, w->array[INPUTS], w->array[0], 0.5, w->count);
}

static const struct {
    const char *name;
    void (*run)(const work *);
    int arrays; /* read and written */
    int floats; /* not for integers */
} kernels[] = {
    {"copy", copy, 2, 0},
    {"divided copy", divided_copy, 2, 1},
    {"sum of 2", sum_2, 3, 0},
    {"weighted 2", sum_2_weighted, 3, 0},
    {"sum of 4", sum_4, 5, 0},
    {"sum of 8", sum_8, 9, 0},
    {"4 in place", sum_4_in_place, 8, 0},
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* GB/s: the best of 15 measurements of about 2 ms, in CPU time: other processes count less. */
static double speed(const work *w, void (*run)(const work *), int arrays, size_t bytes) {
    double best = 1e9;
    int runs = 1 + (int)((32 << 20) / (bytes * (size_t)arrays));
    for (int repetition = 0; repetition < 15; repetition++) {
        double start = now();
        for (int i = 0; i < runs; i++)
            run(w);
        double seconds = (now() - start) / runs;
        best = seconds < best ? seconds : best;
    }
    return 1e-9 * (double)bytes * arrays / best;
}

int main(int argc, char **argv) {
    static const size_t sizes[] = {4 << 10, 256 << 10, 64 << 20};
    const reduce_kernels *level = argc > 1 ? reduce_by_name(argv[1]) : reduce_best();
    if (!level) {
        printf("no level %s on this processor\n", argv[1]);
        return 1;
    }
    printf("%s, GB/s%12s%12s%12s\n", level->name, "4 KiB", "256 KiB", "64 MiB");
    for (int dtype = WAGMA_F32; dtype <= WAGMA_I64; dtype++)
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
            if (kernels[k].floats && reduce_dtype_is_integer((wagma_dtype)dtype))
                continue;
            printf("%-9s%-12s", reduce_dtype_name((wagma_dtype)dtype), kernels[k].name);
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                work w = {level,
                          (wagma_dtype)dtype,
                          {0},
                          sizes[s] / reduce_dtype_size((wagma_dtype)dtype)};
                for (int a = 0; a <= INPUTS;
                     a++) /* 320: arrays do not start at the same cache set */
                    w.array[a] = (unsigned char *)calloc(1, sizes[s] + 4096) + 320 * a;
                for (int a = 0; a <= INPUTS; a++)
                    memset(w.array[a], 0, sizes[s]);
                printf("%12.1f", speed(&w, kernels[k].run, kernels[k].arrays, sizes[s]));
                fflush(stdout);
                for (int a = 0; a <= INPUTS; a++)
                    free(w.array[a] - 320 * a);
            }
            printf("\n");
        }
    return 0;
}
