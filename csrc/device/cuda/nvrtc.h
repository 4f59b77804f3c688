/* NVRTC, NVIDIA's compiler for use at run time: libnvrtc.so, which PyTorch and every CUDA toolkit
 * bring. It compiles the kernels of the sums, whose text the engine has. */
#ifndef WAGMA_DEVICE_CUDA_NVRTC_H
#define WAGMA_DEVICE_CUDA_NVRTC_H

#include <stddef.h>

/* Look for it at these paths first, one a line, in their order; for the rest of the process. */
void nvrtc_set_paths(const char *paths);

/* What the kernels are compiled with beside the architecture; NULL ends it. */
extern const char *const nvrtc_options[] __attribute__((visibility("hidden")));

/* Compile the kernels for a GPU of compute capability `arch` (90 for 9.0), with an NVRTC that is
 * not newer than the driver's CUDA (13000 for 13.0). WAGMA_OK and code for cuModuleLoadData(),
 * which the caller frees: machine code, or PTX where the GPU is newer than the compiler; or an
 * error. */
int nvrtc_compile(int arch, int driver, char **code, size_t *size);

#endif
