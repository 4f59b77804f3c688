/* Functions of the CUDA driver, libcuda.so.1. It is loaded when a GPU is opened for the first time:
 * the engine is built and loaded without it. */
#ifndef WAGMA_DEVICE_CUDA_DRIVER_H
#define WAGMA_DEVICE_CUDA_DRIVER_H

#include <stddef.h>

#include "device/cuda/abi.h"

/* X(name, parameters): names as the driver exports them, with the version of the signature. */
#define DRIVER_CALLS(X)                                                                            \
    X(cuInit, (unsigned))                                                                          \
    X(cuDriverGetVersion, (int *))                                                                 \
    X(cuGetErrorString, (CUresult, const char **))                                                 \
    X(cuDeviceGetCount, (int *))                                                                   \
    X(cuDeviceGet, (CUdevice *, int))                                                              \
    X(cuDeviceGetName, (char *, int, CUdevice))                                                    \
    X(cuDeviceGetUuid_v2, (CUuuid *, CUdevice))                                                    \
    X(cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice))                                 \
    X(cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice))                                          \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                           \
    X(cuCtxPushCurrent_v2, (CUcontext))                                                            \
    X(cuCtxPopCurrent_v2, (CUcontext *))                                                           \
    X(cuCtxEnablePeerAccess, (CUcontext, unsigned))                                                \
    X(cuModuleLoadData, (CUmodule *, const void *))                                                \
    X(cuModuleUnload, (CUmodule))                                                                  \
    X(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                 \
    X(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
                       unsigned, CUstream, void **, void **))                                      \
    X(cuMemGetAllocationGranularity,                                                               \
      (size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags))                   \
    X(cuMemCreate,                                                                                 \
      (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long))   \
    X(cuMemRelease, (CUmemGenericAllocationHandle))                                                \
    X(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))       \
    X(cuMemAddressFree, (CUdeviceptr, size_t))                                                     \
    X(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))   \
    X(cuMemUnmap, (CUdeviceptr, size_t))                                                           \
    X(cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))                      \
    X(cuMemExportToShareableHandle,                                                                \
      (void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long))       \
    X(cuMemImportFromShareableHandle,                                                              \
      (CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType))                         \
    X(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr))                             \
    X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                      \
    X(cuMemFree_v2, (CUdeviceptr))                                                                 \
    X(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream))                                          \
    X(cuMemFreeAsync, (CUdeviceptr, CUstream))                                                     \
    X(cuMemHostRegister_v2, (void *, size_t, unsigned))                                            \
    X(cuMemHostUnregister, (void *))                                                               \
    X(cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr))                                          \
    X(cuIpcOpenMemHandle_v2, (CUdeviceptr *, CUipcMemHandle, unsigned))                            \
    X(cuIpcCloseMemHandle, (CUdeviceptr))                                                          \
    X(cuStreamCreate, (CUstream *, unsigned))                                                      \
    X(cuStreamDestroy_v2, (CUstream))                                                              \
    X(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                            \
    X(cuEventCreate, (CUevent *, unsigned))                                                        \
    X(cuEventDestroy_v2, (CUevent))                                                                \
    X(cuEventRecord, (CUevent, CUstream))                                                          \
    X(cuEventQuery, (CUevent))                                                                     \
    X(cuEventSynchronize, (CUevent))                                                               \
    X(cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream))

struct driver {
#define DRIVER_FIELD(name, parameters) CUresult(*name) parameters;
    DRIVER_CALLS(DRIVER_FIELD)
#undef DRIVER_FIELD
};

/* The functions, from driver_load() on. */
extern struct driver driver;

/* Load the driver, once per process. WAGMA_OK or an error. */
int driver_load(void);

#endif
