/* GPUs, contexts and memory, also that of CUDA IPC: files without a name. */
#define _GNU_SOURCE /* memfd_create() */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_fake/state.h"

enum { GRANULARITY = 1 << 16, BEFORE = 512 /* of a block, before what cuMemAlloc() returns */ };

struct cuda_fake fake = {
    .gpus = 2, .driver = 13000, .newest = 90, .arch = 90, .descriptors = 1, .peers = 1};

static _Thread_local CUcontext stack[CONTEXTS_MAX];
static _Thread_local int depth;

struct cuda_fake *cuda_fake(void) {
    return &fake;
}

int fake_fails(const char *call) {
    int left = fake.fails;
    fake.is_broken |= fake.breaks && strcmp(call, fake.breaks) == 0;
    if (fake.is_broken)
        return 1;
    while (left > 0 && !atomic_compare_exchange_weak(&fake.fails, &left, left - 1))
        ;
    if (left == 1)
        fake.failed = call;
    return left == 1;
}

int cuda_fake_contexts(void) {
    return depth;
}

int fake_current(void) {
    return depth ? (int)(intptr_t)stack[depth - 1] - 1 : -1;
}

/* ---- GPUs and contexts ----------------------------------------------------------------------- */

CUresult cuGetErrorString(CUresult error, const char **text) {
    (void)error;
    *text = "error of the fake driver";
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags) {
    static pid_t started; /* CUDA does not survive a fork */
    FAKE_CALL(0);
    if (fake.gpus == 0)
        return CUDA_ERROR_NO_DEVICE;
    if (started == 0)
        started = getpid();
    return flags == 0 && started == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDriverGetVersion(int *version) {
    *version = fake.driver;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    FAKE_CALL(0);
    *count = fake.gpus;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int gpu) {
    FAKE_CALL(0);
    *device = gpu;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    FAKE_CALL(0);
    (void)device;
    snprintf(name, (size_t)size, "fake GPU");
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    FAKE_CALL(0);
    memset(uuid, fake.reversed ? fake.gpus - device : device + fake.first + 1, sizeof *uuid);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    FAKE_CALL(0);
    (void)device;
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? fake.arch / 10
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? fake.arch % 10
                                                                         : fake.descriptors;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    FAKE_CALL(0);
    *context = (CUcontext)(intptr_t)(device + 1);
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    FAKE_CALL(0);
    if (depth == CONTEXTS_MAX)
        abort();
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    if (depth == 0)
        abort();
    *context = stack[--depth];
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice gpu, CUdevice peer) {
    FAKE_CALL(0);
    *can = gpu != peer && fake.peers;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    static _Atomic int enabled[CONTEXTS_MAX][CONTEXTS_MAX];
    const int gpu = (int)(intptr_t)peer - 1;
    FAKE_CALL(1);
    if (flags != 0 || !fake.peers || gpu == fake_current())
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return enabled[fake_current()][gpu]++ ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

/* ---- virtual memory -------------------------------------------------------------------------- */

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *p,
                                       CUmemAllocationGranularity_flags flags) {
    FAKE_CALL(0);
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

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *p, unsigned long long flags) {
    FAKE_CALL(0);
    if (flags != 0 || bytes % GRANULARITY != 0 || p->location.id >= fake.gpus)
        return CUDA_ERROR_INVALID_VALUE;
    const int fd = memfd_create("fake GPU", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0)
        abort();
    return new_handle(fd, handle);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    close((int)handle - 1);
    fake.left--;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags) {
    FAKE_CALL(0);
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

CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes) {
    munmap(address(at), bytes);
    fake.left--;
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    struct stat file;
    FAKE_CALL(0);
    if (offset != 0 || flags != 0 || fstat((int)handle - 1, &file) != 0 ||
        (size_t)file.st_size != bytes ||
        mmap(address(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle - 1, 0) ==
            MAP_FAILED)
        return CUDA_ERROR_INVALID_VALUE;
    fake.left++;
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
    if (mmap(address(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        abort();
    fake.left--;
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t n) {
    FAKE_CALL(0);
    if (n != 1 || access->location.id >= fake.gpus || access->location.id != fake_current())
        return CUDA_ERROR_INVALID_VALUE;
    return mprotect(address(at), bytes, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemExportToShareableHandle(void *fd, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
    FAKE_CALL(0);
    (void)type, (void)flags;
    const int copy = fcntl((int)handle - 1, F_DUPFD_CLOEXEC, 0);
    memcpy(fd, &copy, sizeof copy);
    return copy < 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *fd,
                                        CUmemAllocationHandleType type) {
    FAKE_CALL(0);
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

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr at) {
    FAKE_CALL(1);
    *base = at - BEFORE;
    *bytes = block_of(address(at))->bytes;
    return CUDA_SUCCESS;
}

static struct block *map_block(int fd, size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        abort();
    fake.left++;
    return at;
}

CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t bytes) {
    FAKE_CALL(1);
    const int fd = memfd_create("fake GPU", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)(BEFORE + bytes)) != 0)
        abort();
    struct block *b = map_block(fd, BEFORE + bytes);
    *b = (struct block){BEFORE + bytes, getpid(), fd};
    *memory = (CUdeviceptr)(uintptr_t)b + BEFORE;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr memory) {
    struct block *b = block_of(address(memory));
    close(b->fd);
    munmap(b, b->bytes);
    fake.left--;
    return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr memory) {
    FAKE_CALL(1);
    memset(handle, 0, sizeof *handle);
    memcpy(handle->reserved, block_of(address(memory)), sizeof(struct block));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *memory, CUipcMemHandle handle, unsigned flags) {
    char path[64];
    struct block b;
    FAKE_CALL(1);
    memcpy(&b, handle.reserved, sizeof b);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)b.process, b.fd);
    const int fd = b.process == getpid() || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
                       ? -1
                       : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    *memory = (CUdeviceptr)(uintptr_t)map_block(fd, b.bytes);
    close(fd);
    return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr memory) {
    const struct block *b = address(memory);
    munmap(address(memory), b->bytes);
    fake.left--;
    return CUDA_SUCCESS;
}
