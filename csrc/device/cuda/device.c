/* Opens GPUs, and says what is missing. See device.h. */
#include "device/cuda/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---------------------------------------------------------------------------------- */

/* Until the loader has set wagma_device.error. */
static _Thread_local char opening[512];

static int keep(int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(opening, sizeof opening, format, arguments);
    va_end(arguments);
    return status;
}

const char *cuda_said(void) {
    return opening;
}

int cuda_check(struct cuda_device *d, cudaError_t error, const char *call) {
    if (error == cudaSuccess)
        return WAGMA_OK;
    (void)cudaGetLastError();
    return d->device.error(error == cudaErrorMemoryAllocation ? WAGMA_ENOMEM : WAGMA_ESYS,
                           "GPU %d: %s: %s (cudaError_t %d)", d->gpu, call,
                           cudaGetErrorString(error), (int)error);
}

int cuda_check_driver(struct cuda_device *d, CUresult error, const char *call) {
    const char *said = NULL;
    if (error == CUDA_SUCCESS)
        return WAGMA_OK;
    (void)driver.cuGetErrorString(error, &said);
    return d->device.error(error == CUDA_ERROR_OUT_OF_MEMORY ? WAGMA_ENOMEM : WAGMA_ESYS,
                           "GPU %d: %s: %s (CUresult %d)", d->gpu, call,
                           said ? said : "unknown error", (int)error);
}

int cuda_enter(struct cuda_device *d) {
    return cuda_check_driver(d, driver.cuCtxPushCurrent(d->context), "cuCtxPushCurrent()");
}

int cuda_leave(int status) {
    CUcontext context;
    (void)driver.cuCtxPopCurrent(&context);
    return status;
}

void cuda_leave_if(int entered) {
    if (entered == WAGMA_OK)
        cuda_leave(WAGMA_OK);
}

/* ---- what a machine may lack ----------------------------------------------------------------- */

static const char *visible(void) {
    const char *value = getenv("CUDA_VISIBLE_DEVICES");
    return value ? value : "(unset)";
}

static int no_driver(struct cuda_device *d) {
    int has = 0, needs = 0;
    (void)cudaDriverGetVersion(&has);
    (void)cudaRuntimeGetVersion(&needs);
    if (has == 0)
        return d->device.error(WAGMA_ESYS,
                               "there is no CUDA driver (libcuda.so.1): install NVIDIA's, or give "
                               "the container a GPU (docker run --gpus all)");
    return d->device.error(WAGMA_ESYS,
                           "the driver is of CUDA %d.%d, libwagma_cuda.so was built by CUDA %d.%d: "
                           "update the driver, or build with an nvcc that is not newer",
                           has / 1000, has % 1000 / 10, needs / 1000, needs % 1000 / 10);
}

static int find_gpu(struct cuda_device *d) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    if (error == cudaErrorInsufficientDriver)
        return no_driver(d);
    if (error == cudaErrorNoDevice)
        return d->device.error(WAGMA_ESYS, "the driver shows no GPU: CUDA_VISIBLE_DEVICES is %s",
                               visible());
    if (error == cudaErrorInitializationError)
        return d->device.error(
            WAGMA_ESYS,
            "CUDA does not start (%s). A process that was forked after its "
            "parent had used CUDA cannot use it: start processes by \"spawn\" or "
            "\"forkserver\", or use CUDA in them alone",
            cudaGetErrorString(error));
    if (error != cudaSuccess)
        return cuda_check(d, error, "cudaGetDeviceCount()");
    if (d->gpu < 0 || d->gpu >= count)
        return d->device.error(WAGMA_EINVAL,
                               "gpu %d: this process sees %d GPUs, numbered from 0; "
                               "CUDA_VISIBLE_DEVICES is %s",
                               d->gpu, count, visible());
    return WAGMA_OK;
}

int cuda_find_gpu(const CUuuid *uuid) {
    int count = 0;
    CUdevice handle;
    CUuuid found;
    (void)cudaGetDeviceCount(&count);
    for (int gpu = 0; gpu < count; gpu++)
        if (driver.cuDeviceGet(&handle, gpu) == CUDA_SUCCESS &&
            driver.cuDeviceGetUuid(&found, handle) == CUDA_SUCCESS &&
            memcmp(&found, uuid, sizeof found) == 0)
            return gpu;
    return -1;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int identify(struct cuda_device *d) {
    char model[128];
    int status = cuda_check_driver(d, driver.cuDeviceGet(&d->handle, d->gpu), "cuDeviceGet()");
    if (status == WAGMA_OK)
        status = cuda_check_driver(d, driver.cuDeviceGetName(model, sizeof model, d->handle),
                                   "cuDeviceGetName()");
    if (status == WAGMA_OK)
        status =
            cuda_check_driver(d, driver.cuDeviceGetUuid(&d->uuid, d->handle), "cuDeviceGetUuid()");
    if (status == WAGMA_OK)
        snprintf(d->name, sizeof d->name, "%s (%d)", model, d->gpu);
    return status;
}

/* With the GPU's context, which `d` has. */
static int begin(struct cuda_device *d) {
    int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    status = cuda_sharing_begin(d);
    if (status == WAGMA_OK) {
        status = cuda_work_begin(d);
        if (status != WAGMA_OK)
            cuda_sharing_end();
    }
    return cuda_leave(status);
}

/* The process keeps the primary context until it ends: making one takes long, and the runtime has
 * loaded its kernels there. */
static int make(struct cuda_device *d) {
    const char *what = "";
    int status = find_gpu(d);
    if (status == WAGMA_OK)
        status = cuda_check(d, driver_load(&what), what);
    if (status == WAGMA_OK)
        status = identify(d);
    if (status == WAGMA_OK)
        status = cuda_check_driver(d, driver.cuDevicePrimaryCtxRetain(&d->context, d->handle),
                                   "cuDevicePrimaryCtxRetain()");
    return status == WAGMA_OK ? begin(d) : status;
}

WAGMA_API int wagma_device_library_open(int ordinal, wagma_device **device, char *message,
                                        size_t size) {
    struct cuda_device *d = calloc(1, sizeof *d);
    if (!d) {
        snprintf(message, size, "no memory for a device");
        return WAGMA_ENOMEM;
    }
    d->gpu = ordinal;
    d->device =
        (wagma_device){.abi = DEVICE_ABI, .calls = &cuda_calls, .name = d->name, .error = keep};
    const int status = make(d);
    if (status == WAGMA_OK) {
        *device = &d->device;
        return WAGMA_OK;
    }
    snprintf(message, size, "%s", opening);
    free(d);
    return status;
}

WAGMA_API void wagma_device_library_close(wagma_device *device) {
    struct cuda_device *d = cuda_of(device);
    const int entered = cuda_enter(d);
    cuda_work_end(d);
    cuda_leave_if(entered);
    cuda_sharing_end();
    free(d);
}
