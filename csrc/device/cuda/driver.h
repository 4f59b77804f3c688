/* Functions of the CUDA driver, which the runtime finds: the library is not linked with libcuda,
 * and so can be loaded where there is no driver. */
#ifndef WAGMA_DEVICE_CUDA_DRIVER_H
#define WAGMA_DEVICE_CUDA_DRIVER_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stddef.h>

/* X(name, parameters) */
#define DRIVER_CALLS(X)                                                                            \
    X(cuGetErrorString, (CUresult, const char **))                                                 \
    X(cuDeviceGet, (CUdevice *, int))                                                              \
    X(cuDeviceGetName, (char *, int, CUdevice))                                                    \
    X(cuDeviceGetUuid, (CUuuid *, CUdevice))                                                       \
    X(cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice))                                 \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                           \
    X(cuCtxPushCurrent, (CUcontext))                                                               \
    X(cuCtxPopCurrent, (CUcontext *))                                                              \
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
    X(cuMemGetAddressRange, (CUdeviceptr *, size_t *, CUdeviceptr))

struct driver {
#define DRIVER_FIELD(name, parameters) CUresult(CUDAAPI *name) parameters;
    DRIVER_CALLS(DRIVER_FIELD)
#undef DRIVER_FIELD
};

/* Functions of the driver that this process has, from driver_load() on. */
extern struct driver driver;

/* Find the functions. cudaSuccess, or an error and the name of what failed. Repeated calls are
 * harmless. */
cudaError_t driver_load(const char **what);

#endif
