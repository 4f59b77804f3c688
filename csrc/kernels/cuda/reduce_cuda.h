/* CUDA kernels: weighted n-ary sums of arrays in a GPU's memory, with the semantics and the bits of
 * reduce_kernels (kernels/reduce.h).
 *
 *   out[i] = (sum_k weights[k] * in[k][i]) / divisor      k = 0..n-1, in this order
 *
 * `out` may equal any of the inputs; any alignment, any count. Inputs of weight 0 are not read. */
#ifndef WAGMA_KERNELS_CUDA_REDUCE_CUDA_H
#define WAGMA_KERNELS_CUDA_REDUCE_CUDA_H

#include <stddef.h>

#include "include/wagma.h"
#include "kernels/cuda/pass.h"

/* Puts a pass of at least one element into a stream: `blocks` blocks of REDUCE_BLOCK_THREADS
 * threads of the kernel weighted_sum_DTYPE of sum.cuh, with DTYPE as reduce_dtype_name(). 0, or an
 * error, which ends the sum. */
typedef int reduce_cuda_launch(void *context, wagma_dtype dtype, const reduce_pass *pass,
                               unsigned blocks);

/* Return the bytes of scratch that a sum of n inputs needs: none up to 64 inputs; for more the sum
 * so far, in the accumulation type. */
size_t reduce_cuda_scratch(wagma_dtype dtype, int n, size_t count);

/* Launch the passes of out = sum / divisor. `scratch`: memory of the device, aligned to 16 bytes,
 * that overlaps no array; NULL where reduce_cuda_scratch() is 0. The memory that the arrays name,
 * and the scratch, are in use until the stream has passed the work. 0, or the first error. */
int reduce_cuda_sum(wagma_dtype dtype, void *out, const void *const *in, const double *weights,
                    int n, double divisor, size_t count, void *scratch, reduce_cuda_launch *launch,
                    void *context);

#endif
