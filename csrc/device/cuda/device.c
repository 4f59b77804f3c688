/* Opens GPUs, and says what is missing. See device.h. */
#include "device/cuda/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- errors ---------------------------------------------------------------------------------- */

int cuda_check(const struct cuda_device *d, CUresult error, const char *call) {
    const char *said = NULL;
    if (error == CUDA_SUCCESS)
        return WAGMA_OK;
    (void)driver.cuGetErrorString(error, &said);
    return error_set(error == CUDA_ERROR_OUT_OF_MEMORY ? WAGMA_ENOMEM : WAGMA_ESYS,
                     "GPU %d: %s: %s (CUresult %d)", d->gpu, call, said ? said : "unknown error",
                     (int)error);
}

int cuda_enter(struct cuda_device *d) {
    return cuda_check(d, driver.cuCtxPushCurrent_v2(d->context), "cuCtxPushCurrent()");
}

int cuda_leave(int status) {
    CUcontext context;
    (void)driver.cuCtxPopCurrent_v2(&context);
    return status;
}

void cuda_leave_if(int entered) {
    if (entered == WAGMA_OK)
        cuda_leave(WAGMA_OK);
}

/* ---- what a machine may lack ----------------------------------------------------------------- */

const char *cuda_visible(void) {
    const char *value = getenv("CUDA_VISIBLE_DEVICES");
    return value ? value : "(unset)";
}

static int start(const struct cuda_device *d) {
    const CUresult error = driver.cuInit(0);
    if (error == CUDA_ERROR_NO_DEVICE)
        return error_set(WAGMA_ESYS, "the driver shows no GPU: CUDA_VISIBLE_DEVICES is %s",
                         cuda_visible());
    if (error == CUDA_ERROR_NOT_INITIALIZED)
        return error_set(WAGMA_ESYS,
                         "CUDA does not start. A process that was forked after its parent had used "
                         "CUDA cannot use it: start processes by \"spawn\" or \"forkserver\", or "
                         "use CUDA in them alone");
    return cuda_check(d, error, "cuInit()");
}

static int find_gpu(struct cuda_device *d) {
    int count = 0;
    const int status = cuda_check(d, driver.cuDeviceGetCount(&count), "cuDeviceGetCount()");
    if (status != WAGMA_OK)
        return status;
    if (d->gpu < 0 || d->gpu >= count)
        return error_set(WAGMA_EINVAL,
                         "gpu %d: this process sees %d GPUs, numbered from 0; "
                         "CUDA_VISIBLE_DEVICES is %s",
                         d->gpu, count, cuda_visible());
    return cuda_check(d, driver.cuDeviceGet(&d->handle, d->gpu), "cuDeviceGet()");
}

int cuda_find_gpu(const CUuuid *uuid) {
    int count = 0;
    CUdevice handle;
    CUuuid found;
    (void)driver.cuDeviceGetCount(&count);
    for (int gpu = 0; gpu < count; gpu++)
        if (driver.cuDeviceGet(&handle, gpu) == CUDA_SUCCESS &&
            driver.cuDeviceGetUuid_v2(&found, handle) == CUDA_SUCCESS &&
            memcmp(&found, uuid, sizeof found) == 0)
            return gpu;
    return -1;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int identify(struct cuda_device *d) {
    char model[128];
    int major = 0, minor = 0;
    int status =
        cuda_check(d, driver.cuDeviceGetName(model, sizeof model, d->handle), "cuDeviceGetName()");
    if (status == WAGMA_OK)
        status = cuda_check(d, driver.cuDeviceGetUuid_v2(&d->uuid, d->handle), "cuDeviceGetUuid()");
    if (status == WAGMA_OK)
        status = cuda_check(d,
                            driver.cuDeviceGetAttribute(
                                &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d->handle),
                            "cuDeviceGetAttribute()");
    if (status == WAGMA_OK)
        status = cuda_check(d,
                            driver.cuDeviceGetAttribute(
                                &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d->handle),
                            "cuDeviceGetAttribute()");
    d->arch = major * 10 + minor;
    snprintf(d->name, sizeof d->name, "%s (%d)", status == WAGMA_OK ? model : "", d->gpu);
    return status;
}

/* With the GPU's context, which `d` has. */
static int begin(struct cuda_device *d) {
    int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    status = cuda_work_begin(d);
    if (status == WAGMA_OK) {
        status = cuda_sharing_begin(d);
        if (status != WAGMA_OK)
            cuda_work_end(d);
    }
    return cuda_leave(status);
}

/* The process keeps the primary context until it ends: making one takes long, and others use it. */
static int make(struct cuda_device *d) {
    int status = driver_load();
    if (status == WAGMA_OK)
        status = start(d);
    if (status == WAGMA_OK)
        status = find_gpu(d);
    if (status == WAGMA_OK)
        status = identify(d);
    if (status == WAGMA_OK)
        status = cuda_check(d, driver.cuDevicePrimaryCtxRetain(&d->context, d->handle),
                            "cuDevicePrimaryCtxRetain()");
    return status == WAGMA_OK ? begin(d) : status;
}

int cuda_device_open(int gpu, wagma_device **device) {
    struct cuda_device *d = calloc(1, sizeof *d);
    if (!d)
        return error_set(WAGMA_ENOMEM, "no memory for a device");
    d->gpu = gpu;
    d->device = (wagma_device){
        .abi = DEVICE_ABI, .calls = &cuda_calls, .name = d->name, .error = error_set};
    const int status = make(d);
    if (status == WAGMA_OK)
        *device = &d->device;
    else
        free(d);
    return status;
}

void cuda_device_close(wagma_device *device) {
    struct cuda_device *d = cuda_of(device);
    const int entered = cuda_enter(d);
    cuda_work_end(d);
    cuda_kernels_end(d);
    cuda_leave_if(entered);
    cuda_sharing_end();
    free(d);
}
