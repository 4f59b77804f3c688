/* What reduce_cuda.c asks of the device: launch.cu, or the tests' stand-in on the host. Both return
 * before the work is done, in the order of the stream; 0, or a cudaError_t. */
#ifndef WAGMA_KERNELS_CUDA_LAUNCH_H
#define WAGMA_KERNELS_CUDA_LAUNCH_H

#include <stddef.h>

#include "include/wagma.h"
#include "kernels/cuda/pass.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Run a pass of at least one element. */
int reduce_launch(wagma_dtype dtype, const reduce_pass *pass, void *stream);
int reduce_launch_copy(void *out, const void *x, size_t bytes, void *stream);

#ifdef __cplusplus
}
#endif

#endif
