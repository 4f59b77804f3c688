/* Kernels, streams and events: work is done when it is queued, and events tell it two queries
 * later. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_fake/state.h"
#include "cuda_on_host.h"
#include "kernels/cuda/pass.h"

/* ---- kernels --------------------------------------------------------------------------------- */

CUresult cuModuleLoadData(CUmodule *module, const void *code) {
    int arch = 0;
    FAKE_CALL(1);
    const int is_ptx = sscanf(code, "PTX, " FAKE_CODE "%d", &arch) == 1;
    if (is_ptx ? arch > fake.arch : sscanf(code, FAKE_CODE "%d", &arch) != 1 || arch != fake.arch)
        return CUDA_ERROR_INVALID_IMAGE;
    *module = malloc(1);
    fake.left++;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
    free(module);
    fake.left--;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    cuda_on_host_kernel *kernel = cuda_on_host_find(name);
    FAKE_CALL(1);
    (void)module;
    memcpy(function, &kernel, sizeof kernel);
    return kernel ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuLaunchKernel(CUfunction function, unsigned blocks, unsigned y, unsigned z,
                        unsigned threads, unsigned in_y, unsigned in_z, unsigned shared,
                        CUstream stream, void **parameters, void **extra) {
    cuda_on_host_kernel *kernel;
    (void)stream;
    FAKE_CALL(1);
    if (y != 1 || z != 1 || in_y != 1 || in_z != 1 || shared != 0 || extra ||
        threads != REDUCE_BLOCK_THREADS)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&kernel, &function, sizeof kernel);
    cuda_on_host_run(kernel, blocks, parameters[0]);
    return CUDA_SUCCESS;
}

/* ---- streams and events ---------------------------------------------------------------------- */

struct CUevent_st {
    _Atomic int queries; /* until it is complete */
};

/* Those that are there are the streams that the driver knows. */
static struct CUstream_st { _Atomic int is_there; } streams[4096];

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    FAKE_CALL(1);
    if (flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    for (*stream = streams; atomic_exchange(&(*stream)->is_there, 1); ++*stream)
        if (*stream == streams + 4095)
            return CUDA_ERROR_OUT_OF_MEMORY;
    fake.left++;
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    stream->is_there = 0;
    fake.left--;
    return CUDA_SUCCESS;
}

static int is_stream(CUstream stream) {
    return !stream || stream->is_there;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    (void)event, (void)flags;
    FAKE_CALL(1);
    return is_stream(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    FAKE_CALL(1);
    if (flags != (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING) ||
        !(*event = calloc(1, sizeof **event)))
        return CUDA_ERROR_INVALID_VALUE;
    fake.left++;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
    free(event);
    fake.left--;
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    FAKE_CALL(1);
    if (!is_stream(stream))
        return CUDA_ERROR_INVALID_HANDLE;
    event->queries = 2;
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event) {
    FAKE_CALL(1);
    if (event->queries == 0)
        return CUDA_SUCCESS;
    event->queries--;
    return CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event) {
    FAKE_CALL(1);
    event->queries = 0;
    return CUDA_SUCCESS;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *address(CUdeviceptr at) {
    return (void *)(uintptr_t)at;
}

CUresult cuMemcpyAsync(CUdeviceptr out, CUdeviceptr in, size_t bytes, CUstream stream) {
    (void)stream;
    FAKE_CALL(1);
    memmove(address(out), address(in), bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags) {
    FAKE_CALL(1);
    if (!memory || bytes == 0 || flags != CU_MEMHOSTREGISTER_PORTABLE)
        return CUDA_ERROR_INVALID_VALUE;
    fake.left++;
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *memory) {
    (void)memory;
    fake.left--;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *memory, size_t bytes, CUstream stream) {
    (void)stream;
    FAKE_CALL(1);
    void *made = malloc(bytes);
    *memory = (CUdeviceptr)(uintptr_t)made;
    fake.left += made != NULL;
    return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream stream) {
    (void)stream;
    free(address(memory));
    fake.left--;
    return fake.is_broken ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}
