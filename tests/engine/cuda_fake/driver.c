/* The driver's contexts and memory, and the memory of CUDA IPC: files without a name. */
#define _GNU_SOURCE /* memfd_create() */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_fake/state.h"
#include "device/cuda/driver.h"

enum { GRANULARITY = 1 << 16, BEFORE = 512 /* of a block, before what cudaMalloc() returns */ };

static _Thread_local CUcontext stack[CONTEXTS_MAX];
static _Thread_local int depth;

int cuda_fake_contexts(void) {
    return depth;
}

int fake_current(void) {
    return depth ? (int)(intptr_t)stack[depth - 1] - 1 : -1;
}

/* Begin a call of the driver. */
#define FAKE_DRIVER(call)                                                                          \
    do {                                                                                           \
        if (fake_fails(call))                                                                      \
            return CUDA_ERROR_UNKNOWN;                                                             \
    } while (0)

/* ---- GPUs and contexts ----------------------------------------------------------------------- */

static CUresult get_error_string(CUresult error, const char **text) {
    (void)error;
    *text = "error of the fake driver";
    return CUDA_SUCCESS;
}

static CUresult get(CUdevice *device, int gpu) {
    FAKE_DRIVER("cuDeviceGet");
    *device = gpu;
    return CUDA_SUCCESS;
}

static CUresult get_name(char *name, int size, CUdevice device) {
    FAKE_DRIVER("cuDeviceGetName");
    (void)device;
    snprintf(name, (size_t)size, "fake GPU");
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice device) {
    FAKE_DRIVER("cuDeviceGetUuid");
    memset(uuid, device + 1, sizeof *uuid);
    return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    FAKE_DRIVER("cuDeviceGetAttribute");
    (void)attribute, (void)device;
    *value = fake.descriptors;
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *context, CUdevice device) {
    FAKE_DRIVER("cuDevicePrimaryCtxRetain");
    *context = (CUcontext)(intptr_t)(device + 1);
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext context) {
    FAKE_DRIVER("cuCtxPushCurrent");
    if (depth == CONTEXTS_MAX)
        abort();
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *context) {
    if (depth == 0)
        abort();
    *context = stack[--depth];
    return CUDA_SUCCESS;
}

/* ---- virtual memory -------------------------------------------------------------------------- */

static CUresult get_granularity(size_t *granularity, const CUmemAllocationProp *p,
                                CUmemAllocationGranularity_flags flags) {
    FAKE_DRIVER("cuMemGetAllocationGranularity");
    (void)p, (void)flags;
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

/* A handle is a descriptor and 1. */
static CUresult new_handle(int fd, CUmemGenericAllocationHandle *handle) {
    if (fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = (CUmemGenericAllocationHandle)fd + 1;
    fake.left++;
    return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
                       const CUmemAllocationProp *p, unsigned long long flags) {
    FAKE_DRIVER("cuMemCreate");
    if (flags != 0 || bytes % GRANULARITY != 0 || p->location.id >= fake.gpus)
        return CUDA_ERROR_INVALID_VALUE;
    const int fd = memfd_create("fake GPU", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0)
        abort();
    return new_handle(fd, handle);
}

static CUresult release(CUmemGenericAllocationHandle handle) {
    close((int)handle - 1);
    fake.left--;
    return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr wanted,
                        unsigned long long flags) {
    FAKE_DRIVER("cuMemAddressReserve");
    (void)alignment, (void)wanted, (void)flags;
    void *found = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *at = (CUdeviceptr)(uintptr_t)found;
    fake.left++;
    return CUDA_SUCCESS;
}

static void *address(CUdeviceptr at) {
    return (void *)(uintptr_t)at;
}

static CUresult address_free(CUdeviceptr at, size_t bytes) {
    munmap(address(at), bytes);
    fake.left--;
    return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr at, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags) {
    struct stat file;
    FAKE_DRIVER("cuMemMap");
    if (offset != 0 || flags != 0 || fstat((int)handle - 1, &file) != 0 ||
        (size_t)file.st_size != bytes ||
        mmap(address(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle - 1, 0) ==
            MAP_FAILED)
        return CUDA_ERROR_INVALID_VALUE;
    fake.left++;
    return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr at, size_t bytes) {
    if (mmap(address(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        abort();
    fake.left--;
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t n) {
    FAKE_DRIVER("cuMemSetAccess");
    if (n != 1 || access->location.id >= fake.gpus || access->location.id != fake_current())
        return CUDA_ERROR_INVALID_VALUE;
    return mprotect(address(at), bytes, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_VALUE;
}

static CUresult export(void *fd, CUmemGenericAllocationHandle handle,
                       CUmemAllocationHandleType type, unsigned long long flags) {
    FAKE_DRIVER("cuMemExportToShareableHandle");
    (void)type, (void)flags;
    const int copy = fcntl((int)handle - 1, F_DUPFD_CLOEXEC, 0);
    memcpy(fd, &copy, sizeof copy);
    return copy < 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult import(CUmemGenericAllocationHandle *handle, void *fd,
                       CUmemAllocationHandleType type) {
    FAKE_DRIVER("cuMemImportFromShareableHandle");
    (void)type;
    return new_handle(fcntl((int)(intptr_t)fd, F_DUPFD_CLOEXEC, 0), handle);
}

/* ---- CUDA IPC -------------------------------------------------------------------------------- */

/* At the beginning of a block, which other processes map as a whole. */
struct block {
    size_t bytes;
    pid_t process;
    int fd; /* of the process that made it */
};

static struct block *block_of(const void *memory) {
    return (struct block *)(void *)((unsigned char *)(uintptr_t)memory - BEFORE);
}

static CUresult get_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr at) {
    FAKE_DRIVER("cuMemGetAddressRange");
    *base = at - BEFORE;
    *bytes = block_of(address(at))->bytes;
    return CUDA_SUCCESS;
}

static void *map_block(int fd, size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        abort();
    fake.left++;
    return at;
}

cudaError_t cudaMalloc(void **memory, size_t bytes) {
    FAKE_RUNTIME();
    const int fd = memfd_create("fake GPU", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)(BEFORE + bytes)) != 0)
        abort();
    struct block *b = map_block(fd, BEFORE + bytes);
    *b = (struct block){BEFORE + bytes, getpid(), fd};
    *memory = (unsigned char *)b + BEFORE;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory) {
    struct block *b = block_of(memory);
    close(b->fd);
    munmap(b, b->bytes);
    fake.left--;
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory) {
    FAKE_RUNTIME();
    memset(handle, 0, sizeof *handle);
    memcpy(handle->reserved, block_of(memory), sizeof(struct block));
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned flags) {
    char path[64];
    struct block b;
    FAKE_RUNTIME();
    memcpy(&b, handle.reserved, sizeof b);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)b.process, b.fd);
    const int fd = b.process == getpid() || flags != cudaIpcMemLazyEnablePeerAccess
                       ? -1
                       : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return fake_error(cudaErrorInvalidValue);
    *memory = map_block(fd, b.bytes);
    close(fd);
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *memory) {
    const struct block *b = memory;
    munmap(memory, b->bytes);
    fake.left--;
    return cudaSuccess;
}

/* ---- names ----------------------------------------------------------------------------------- */

static const struct driver functions = {
    .cuGetErrorString = get_error_string,
    .cuDeviceGet = get,
    .cuDeviceGetName = get_name,
    .cuDeviceGetUuid = get_uuid,
    .cuDeviceGetAttribute = get_attribute,
    .cuDevicePrimaryCtxRetain = retain,
    .cuCtxPushCurrent = push,
    .cuCtxPopCurrent = pop,
    .cuMemGetAllocationGranularity = get_granularity,
    .cuMemCreate = create,
    .cuMemRelease = release,
    .cuMemAddressReserve = reserve,
    .cuMemAddressFree = address_free,
    .cuMemMap = map,
    .cuMemUnmap = unmap,
    .cuMemSetAccess = set_access,
    .cuMemExportToShareableHandle = export,
    .cuMemImportFromShareableHandle = import,
    .cuMemGetAddressRange = get_range,
};

void *fake_driver_function(const char *name) {
    void *found = NULL;
#define FAKE_NAME(call, parameters)                                                                \
    if (strcmp(name, #call) == 0)                                                                  \
        memcpy(&found, &functions.call, sizeof found);
    DRIVER_CALLS(FAKE_NAME)
#undef FAKE_NAME
    return found;
}
