/* The text of the kernels, as NVRTC takes it (device/cuda/nvrtc.h). */
#ifndef WAGMA_KERNELS_CUDA_TEXT_H
#define WAGMA_KERNELS_CUDA_TEXT_H

/* sum.cuh, and pass.h, which it includes. */
extern const char reduce_text_sum[] __attribute__((visibility("hidden")));
extern const char reduce_text_pass[] __attribute__((visibility("hidden")));

#endif
