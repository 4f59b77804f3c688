/* The CUDA kernels, compiled for the host and run thread by thread. */
#include "cuda_on_host.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/sum.cuh"

__thread struct cuda_on_host cuda_on_host = {~0u, BLOCK_THREADS, 0, 0, 0, 0, 0};

template <class E> static int launch(const reduce_pass &pass, unsigned blocks, void *) {
    cuda_on_host.launches++;
    cuda_on_host.blocks = blocks;
    if (cuda_on_host.fails)
        return cuda_on_host.fails;
    gridDim.x = blocks < cuda_on_host.most_blocks ? blocks : cuda_on_host.most_blocks;
    blockDim.x = cuda_on_host.threads;
    const unsigned threads = gridDim.x * blockDim.x;
    for (unsigned t = 0; t < threads; t++) {
        const unsigned thread = cuda_on_host.backwards ? threads - 1 - t : t;
        blockIdx.x = thread / blockDim.x;
        threadIdx.x = thread % blockDim.x;
        weighted_sum<E>(pass);
    }
    return 0;
}

#include "kernels/cuda/dispatch.h"

extern "C" int reduce_launch_copy(void *out, const void *x, size_t bytes, void *) {
    cuda_on_host.copies++;
    if (!cuda_on_host.fails)
        memcpy(out, x, bytes);
    return cuda_on_host.fails;
}
