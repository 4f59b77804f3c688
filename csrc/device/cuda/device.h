/* A device over the CUDA driver (driver.h): neither the CUDA runtime nor nvcc is needed. device.c
 * opens GPUs and turns errors into words, memory.c has memory and how ranks share it, mapping.c the
 * driver's part of that, descriptors.c carries file descriptors between processes, work.c has
 * streams, events, copies and sums, kernels.c the kernels of these, which nvrtc.c compiles and
 * cache.c keeps.
 *
 * Every call makes the primary context of its GPU current, which is the one that the CUDA runtime
 * uses, and puts back the one before: the caller's current GPU does not change. */
#ifndef WAGMA_DEVICE_CUDA_DEVICE_H
#define WAGMA_DEVICE_CUDA_DEVICE_H

#include "device/cuda/driver.h"
#include "device/device.h"

enum { CUDA_DTYPES = WAGMA_I64 + 1 };

struct cuda_device {
    wagma_device device; /* first */
    char name[160];
    int gpu;
    CUdevice handle;
    CUcontext context;
    CUuuid uuid;
    int arch;           /* compute capability: 90 for 9.0 */
    int by_descriptor;  /* 0: memory is shared by CUDA IPC */
    size_t granularity; /* of memory */
    CUevent waited;     /* of synchronise() */
    CUmodule module;    /* the kernels; NULL: not loaded yet */
    CUfunction kernel[CUDA_DTYPES];
};

static inline struct cuda_device *cuda_of(wagma_device *device) {
    return (struct cuda_device *)device;
}

/* -- device.c ---------------------------------------------------------------------------------- */
/* Open GPU `gpu`, as CUDA counts in this process. WAGMA_OK or an error. */
int cuda_device_open(int gpu, wagma_device **device);
void cuda_device_close(wagma_device *device);
/* Make the GPU current; WAGMA_OK or an error. Afterwards cuda_leave() returns the status. */
int cuda_enter(struct cuda_device *d);
int cuda_leave(int status);
/* End what cuda_enter() began, if it did. */
void cuda_leave_if(int entered);
/* Return a status for what a call of the driver returned; keep its words. */
int cuda_check(const struct cuda_device *d, CUresult error, const char *call);
/* Return the number of the GPU with this identity in this process; -1: it is not visible. */
int cuda_find_gpu(const CUuuid *uuid);
/* Return which GPUs the process may see, for messages. */
const char *cuda_visible(void);

/* -- memory.c ---------------------------------------------------------------------------------- */
/* Choose how memory is shared, by making some. WAGMA_OK or an error. */
int cuda_sharing_begin(struct cuda_device *d);
void cuda_sharing_end(void);
/* Return a copy of the file descriptor of memory of this process; -1: it is gone. */
int cuda_descriptor(uint64_t id);
/* Functions of device_calls. */
int cuda_alloc(wagma_device *device, size_t bytes, void **memory);
void cuda_free(wagma_device *device, void *memory);
int cuda_export(wagma_device *device, void *memory, device_record *record);
int cuda_open(wagma_device *device, const device_record *record, void **memory);
void cuda_close(wagma_device *device, void *memory);
int cuda_pin(wagma_device *device, void *memory, size_t bytes);
void cuda_unpin(wagma_device *device, void *memory);

/* -- kernels.c --------------------------------------------------------------------------------- */
/* Load the kernels, unless they are; they are compiled if they were not before. WAGMA_OK or an
 * error. */
int cuda_kernels_begin(struct cuda_device *d);
void cuda_kernels_end(struct cuda_device *d);

/* -- work.c ------------------------------------------------------------------------------------ */
int cuda_work_begin(struct cuda_device *d);
void cuda_work_end(struct cuda_device *d);
extern const device_calls cuda_calls;

#endif
