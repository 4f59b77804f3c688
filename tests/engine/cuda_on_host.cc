/* The CUDA kernels, compiled for the host and run thread by thread. */
#include "cuda_on_host.h"

#include "kernels/cuda/sum.cuh"

__thread struct cuda_on_host cuda_on_host = {~0u, REDUCE_BLOCK_THREADS, 0};

extern "C" cuda_on_host_kernel *cuda_on_host_find(const char *name) {
    static const struct {
        const char *name;
        cuda_on_host_kernel *kernel;
    } kernels[] = {
        {"weighted_sum_float32", weighted_sum_float32},
        {"weighted_sum_float64", weighted_sum_float64},
        {"weighted_sum_float16", weighted_sum_float16},
        {"weighted_sum_bfloat16", weighted_sum_bfloat16},
        {"weighted_sum_int32", weighted_sum_int32},
        {"weighted_sum_int64", weighted_sum_int64},
    };
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strcmp(kernels[i].name, name) == 0)
            return kernels[i].kernel;
    return NULL;
}

extern "C" void cuda_on_host_run(cuda_on_host_kernel *kernel, unsigned blocks,
                                 const reduce_pass *pass) {
    gridDim.x = blocks < cuda_on_host.most_blocks ? blocks : cuda_on_host.most_blocks;
    blockDim.x = cuda_on_host.threads;
    const unsigned threads = gridDim.x * blockDim.x;
    for (unsigned t = 0; t < threads; t++) {
        const unsigned thread = cuda_on_host.backwards ? threads - 1 - t : t;
        blockIdx.x = thread / blockDim.x;
        threadIdx.x = thread % blockDim.x;
        kernel(*pass);
    }
}
