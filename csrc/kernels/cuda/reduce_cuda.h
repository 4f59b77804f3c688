/* CUDA kernels: weighted n-ary sums of arrays that the current device reads, with the semantics and
 * the bits of reduce_kernels (kernels/reduce.h).
 *
 *   out[i] = (sum_k weights[k] * in[k][i]) / divisor      k = 0..n-1, in this order
 *
 * A call puts its work into the stream and returns. The arrays `in` and `weights` are free then;
 * the memory that they name, and the scratch, are in use until the stream has passed the work.
 * `out` may equal any of the inputs; any alignment, any count. Inputs of weight 0 are not read.
 *
 * Every call returns 0, or the cudaError_t of the first launch that failed. The library that has
 * these functions, libwagma_cuda, can be loaded without a driver: calls then fail. */
#ifndef WAGMA_KERNELS_CUDA_REDUCE_CUDA_H
#define WAGMA_KERNELS_CUDA_REDUCE_CUDA_H

#include <stddef.h>

#include "include/wagma.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Return the bytes of scratch that a sum of n inputs needs: none up to 64 inputs; for more the sum
 * so far, in the accumulation type. */
WAGMA_API size_t reduce_cuda_scratch(wagma_dtype dtype, int n, size_t count);

/* out = sum / divisor. `scratch`: memory of the device, aligned to 16 bytes, that overlaps no
 * array; NULL where reduce_cuda_scratch() is 0. `stream`: a cudaStream_t. */
WAGMA_API int reduce_cuda_sum(wagma_dtype dtype, void *out, const void *const *in,
                              const double *weights, int n, double divisor, size_t count,
                              void *scratch, void *stream);

/* out = x / divisor; divisor 1 is a copy. */
WAGMA_API int reduce_cuda_divided_copy(wagma_dtype dtype, void *out, const void *x, double divisor,
                                       size_t count, void *stream);

#ifdef __cplusplus
}
#endif

#endif
