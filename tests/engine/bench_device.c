/* Speed of a device's sums beside that of a copy within its memory; not a test. Bytes read and
 * written per second: GB/s, and percent of the copy's.
 *
 *     make build/c/bench_device && build/c/bench_device [MIB]
 *
 * The best of several rounds of sums over arrays of MIB, 64 by default, queued one after the
 * other. */
#include "device/device.h"
#include "kernels/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { INPUTS = 8, QUEUED = 10, ROUNDS = 5 };

static wagma_device *device;
static void *array[INPUTS + 1], *stream; /* the last array is the output */
static size_t bytes;

static void must(int status) {
    if (status == WAGMA_OK)
        return;
    fprintf(stderr, "%s\n", wagma_last_error());
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* n = 0: a copy */
static void queue(wagma_dtype dtype, int n) {
    static const double weights[INPUTS] = {1, 1, 1, 1, 1, 1, 1, 1};
    const void *const *in = (const void *const *)array;
    if (n == 0)
        must(device->calls->copy(device, stream, array[INPUTS], array[0], bytes));
    else
        must(device->calls->sum(device, stream, dtype, array[INPUTS], in, weights, n, 1,
                                bytes / reduce_dtype_size(dtype)));
}

/* Returns GB/s. */
static double speed(wagma_dtype dtype, int n) {
    const double moved = (double)bytes * (n == 0 ? 2 : n + 1) * QUEUED;
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const double began = now();
        for (int i = 0; i < QUEUED; i++)
            queue(dtype, n);
        must(device->calls->synchronise(device, stream));
        const double found = moved / (now() - began) / 1e9;
        best = found > best ? found : best;
    }
    return best;
}

static void clear(void) {
    for (int k = 0; k <= INPUTS; k++)
        must(device->calls->sum(device, stream, WAGMA_F32, array[k], NULL, NULL, 0, 1,
                                bytes / sizeof(float)));
}

int main(int argc, char **argv) {
    bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 64) << 20;
    must(wagma_device_open(NULL, 0, &device));
    must(device->calls->stream_new(device, &stream));
    for (int k = 0; k <= INPUTS; k++)
        must(device->calls->alloc(device, bytes, &array[k]));
    clear();
    const double copied = speed(WAGMA_F32, 0);
    printf("%s, arrays of %zu MiB: a copy %.0f GB/s\n", device->name, bytes >> 20, copied);
    printf("%-10s%14s%14s%14s\n", "sum of", "2", "4", "8");
    for (wagma_dtype dtype = WAGMA_F32; dtype <= WAGMA_I64; dtype++) {
        printf("%-10s", reduce_dtype_name(dtype));
        for (int n = 2; n <= INPUTS; n *= 2) {
            const double found = speed(dtype, n);
            printf("%7.0f %5.1f%%", found, 100 * found / copied);
        }
        printf("\n");
    }
    return 0;
}
