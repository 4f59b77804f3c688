/* Memory that the driver's functions of virtual memory make and map, and how it is exported; or,
 * with CUDA IPC, plain memory. All calls need the GPU's context. */
#ifndef WAGMA_DEVICE_CUDA_MAPPING_H
#define WAGMA_DEVICE_CUDA_MAPPING_H

#include "device/cuda/device.h"

/* One allocation, as far as this process has it. */
struct cuda_memory {
    struct cuda_memory *next;
    uint64_t owner, id; /* number of the process that made it, and of the memory there */
    int gpu;            /* on which it is; -1: not visible in this process */
    int uses;
    int of_other; /* another process has made it */
    unsigned char *at;
    size_t bytes;
    /* by descriptor */
    CUmemGenericAllocationHandle handle;
    int descriptor; /* -1: none */
    /* by IPC */
    int by_ipc;
    CUdeviceptr opened; /* what cuIpcOpenMemHandle() returned */
};

static inline CUdeviceptr mapping_pointer(const void *memory) {
    return (CUdeviceptr)(uintptr_t)memory;
}

static inline void *mapping_address(CUdeviceptr at) {
    return (void *)(uintptr_t)at;
}

/* Find the unit of memory that is shared by descriptors, d->granularity. */
int mapping_find_unit(struct cuda_device *d);
/* Make memory of at least so many bytes; fills `at`, `bytes` and what belongs to the way. */
int mapping_make(struct cuda_device *d, size_t bytes, struct cuda_memory *m);
/* Map another process's memory of m->bytes, given its descriptor, which the caller keeps. */
int mapping_import(struct cuda_device *d, int descriptor, struct cuda_memory *m);
/* Let the GPU use memory of another one of this machine. */
int mapping_allow(struct cuda_device *d, struct cuda_memory *m);
/* Unmap it, or free it. */
void mapping_end(struct cuda_memory *m);

#endif
