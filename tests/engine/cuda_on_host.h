/* What CUDA C++ has and C++ has not, for csrc/kernels/cuda/sum.cuh on the host: a thread is a call
 * of a kernel, with these indices. */
#ifndef WAGMA_TESTS_CUDA_ON_HOST_H
#define WAGMA_TESTS_CUDA_ON_HOST_H

#ifdef __cplusplus
#include <stddef.h>
#include <string.h>

#include "kernels/reduce_half.h" /* f16_to_f32(), f32_to_f16() */

#define __global__
#define __device__

struct cuda_index {
    unsigned x;
};
static __thread cuda_index blockIdx, threadIdx, gridDim, blockDim;

static inline unsigned __float_as_uint(float x) {
    return float_bits(x);
}
static inline float __uint_as_float(unsigned u) {
    return bits_float(u);
}
static inline double __longlong_as_double(long long u) {
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

extern "C" {
#endif

/* How launches run, which a test may set, and what they were. */
struct cuda_on_host {
    unsigned most_blocks, threads; /* of a grid */
    int backwards;                 /* run the threads from the last to the first */
    int fails;                     /* status of launches and copies, which then do nothing */
    int launches, copies;
    unsigned blocks; /* that the last launch asked for */
};
extern __thread struct cuda_on_host cuda_on_host; /* of the thread that launches */

#ifdef __cplusplus
}
#endif

#endif
