/* Launches of the kernels by the CUDA runtime. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sum.cuh"

#include <cuda_runtime.h>

template <class E> static int launch(const reduce_pass &pass, unsigned blocks, void *stream) {
    void *arguments[] = {(void *)&pass};
    return cudaLaunchKernel((const void *)weighted_sum<E>, blocks, BLOCK_THREADS, arguments, 0,
                            (cudaStream_t)stream);
}

#include "kernels/cuda/dispatch.h"

extern "C" int reduce_launch_copy(void *out, const void *x, size_t bytes, void *stream) {
    return cudaMemcpyAsync(out, x, bytes, cudaMemcpyDefault, (cudaStream_t)stream);
}
