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

#include "kernels/cuda/pass.h"

/* How kernels run, which a test may set. */
struct cuda_on_host {
    unsigned most_blocks, threads; /* of a grid */
    int backwards;                 /* run the threads from the last to the first */
};
extern __thread struct cuda_on_host cuda_on_host; /* of the thread that launches */

typedef void cuda_on_host_kernel(reduce_pass pass);
/* Return the kernel of this name; NULL: there is none. */
cuda_on_host_kernel *cuda_on_host_find(const char *name);
/* Run a kernel in a grid of so many blocks. */
void cuda_on_host_run(cuda_on_host_kernel *kernel, unsigned blocks, const reduce_pass *pass);

#ifdef __cplusplus
}
#endif

#endif
