/* The runtime: work is done when it is queued, and events tell it two queries later. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stdatomic.h>

#include "cuda_fake/state.h"

struct cuda_fake fake = {.gpus = 2, .driver = 13000, .descriptors = 1, .peers = 1};

static _Thread_local cudaError_t last;
static pid_t started; /* CUDA does not survive a fork */

struct cuda_fake *cuda_fake(void) {
    return &fake;
}

int cuda_fake_last_error(void) {
    return last;
}

int fake_fails(const char *call) {
    int left = fake.fails;
    fake.calls++;
    while (left > 0 && !atomic_compare_exchange_weak(&fake.fails, &left, left - 1))
        ;
    if (left == 1)
        fake.failed = call;
    return left == 1;
}

cudaError_t fake_error(cudaError_t error) {
    if (error != cudaSuccess)
        last = error;
    return error;
}

/* ---- versions and GPUs ----------------------------------------------------------------------- */

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
    (void)version, (void)flags;
    *function = NULL;
    *result = cudaDriverEntryPointSymbolNotFound;
    if (fake_fails(__func__))
        return fake_error(cudaErrorUnknown);
    *function = fake_driver_function(symbol);
    if (*function)
        *result = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = fake.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 0;
    if (fake_fails(__func__))
        return fake_error(cudaErrorUnknown);
    if (fake.driver < CUDART_VERSION)
        return fake_error(cudaErrorInsufficientDriver);
    if (started == 0)
        started = getpid();
    if (started != getpid())
        return fake_error(cudaErrorInitializationError);
    *count = fake.gpus;
    return fake.gpus > 0 ? cudaSuccess : fake_error(cudaErrorNoDevice);
}

cudaError_t cudaGetLastError(void) {
    const cudaError_t error = last;
    last = cudaSuccess;
    return error;
}

const char *cudaGetErrorString(cudaError_t error) {
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "error %d of the fake", (int)error);
    return text;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int gpu, int peer) {
    if (fake_fails(__func__)) /* it needs no context */
        return fake_error(cudaErrorUnknown);
    *can = gpu != peer && fake.peers;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    static _Atomic int enabled[CONTEXTS_MAX][CONTEXTS_MAX];
    (void)flags;
    FAKE_RUNTIME();
    if (!fake.peers || peer == fake_current())
        return fake_error(cudaErrorPeerAccessUnsupported);
    return enabled[fake_current()][peer]++ ? fake_error(cudaErrorPeerAccessAlreadyEnabled)
                                           : cudaSuccess;
}

/* ---- streams and events ---------------------------------------------------------------------- */

struct CUevent_st {
    _Atomic int queries; /* until it is complete */
};

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    FAKE_RUNTIME();
    if (flags != cudaStreamNonBlocking || !(*stream = malloc(1)))
        return fake_error(cudaErrorInvalidValue);
    fake.left++;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    free(stream);
    fake.left--;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)stream, (void)event, (void)flags;
    FAKE_RUNTIME();
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    FAKE_RUNTIME();
    if (flags != (cudaEventBlockingSync | cudaEventDisableTiming) ||
        !(*event = calloc(1, sizeof **event)))
        return fake_error(cudaErrorInvalidValue);
    fake.left++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    free(event);
    fake.left--;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    (void)stream;
    FAKE_RUNTIME();
    event->queries = 2;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    FAKE_RUNTIME();
    if (event->queries == 0)
        return cudaSuccess;
    event->queries--;
    return fake_error(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    FAKE_RUNTIME();
    event->queries = 0;
    return cudaSuccess;
}

/* ---- work ------------------------------------------------------------------------------------ */

cudaError_t cudaMemcpyAsync(void *out, const void *in, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    (void)stream;
    FAKE_RUNTIME();
    if (kind != cudaMemcpyDefault)
        return fake_error(cudaErrorInvalidValue);
    memmove(out, in, bytes);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags) {
    FAKE_RUNTIME();
    if (!memory || bytes == 0 || flags != cudaHostRegisterPortable)
        return fake_error(cudaErrorInvalidValue);
    fake.left++;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory) {
    (void)memory;
    fake.left--;
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **memory, size_t bytes, cudaStream_t stream) {
    (void)stream;
    FAKE_RUNTIME();
    if (!(*memory = malloc(bytes)))
        return fake_error(cudaErrorMemoryAllocation);
    fake.left++;
    return cudaSuccess;
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream) {
    (void)stream;
    free(memory);
    fake.left--;
    return cudaSuccess;
}
