/* See mapping.h. */
#include "device/cuda/mapping.h"

#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include "base/round_up.h"

/* CUDA's allocations by IPC begin where the driver's blocks of this size do. */
enum { IPC_BLOCK = 2 << 20 };

static CUmemAllocationProp properties(const struct cuda_device *d) {
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->gpu},
    };
}

int mapping_find_unit(struct cuda_device *d) {
    const CUmemAllocationProp p = properties(d);
    return cuda_check(
        d,
        driver.cuMemGetAllocationGranularity(&d->granularity, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity()");
}

/* ---- by descriptors -------------------------------------------------------------------------- */

static int set_access(struct cuda_device *d, const struct cuda_memory *m) {
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->gpu},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    return cuda_check(d, driver.cuMemSetAccess(mapping_pointer(m->at), m->bytes, &access, 1),
                      "cuMemSetAccess()");
}

/* Give the memory of m->handle an address. */
static int map(struct cuda_device *d, struct cuda_memory *m) {
    CUdeviceptr at = 0;
    int status =
        cuda_check(d, driver.cuMemAddressReserve(&at, m->bytes, 0, 0, 0), "cuMemAddressReserve()");
    if (status != WAGMA_OK)
        return status;
    m->at = mapping_address(at);
    status = cuda_check(d, driver.cuMemMap(at, m->bytes, 0, m->handle, 0), "cuMemMap()");
    if (status == WAGMA_OK) {
        status = set_access(d, m);
        if (status != WAGMA_OK)
            (void)driver.cuMemUnmap(at, m->bytes);
    }
    if (status != WAGMA_OK)
        (void)driver.cuMemAddressFree(at, m->bytes);
    return status;
}

static int make_by_descriptor(struct cuda_device *d, size_t bytes, struct cuda_memory *m) {
    const CUmemAllocationProp p = properties(d);
    m->bytes = round_up(bytes, d->granularity);
    int status = cuda_check(d, driver.cuMemCreate(&m->handle, m->bytes, &p, 0), "cuMemCreate()");
    if (status != WAGMA_OK)
        return status;
    status = cuda_check(d,
                        driver.cuMemExportToShareableHandle(
                            &m->descriptor, m->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                        "cuMemExportToShareableHandle()");
    if (status == WAGMA_OK) {
        (void)fcntl(m->descriptor, F_SETFD, FD_CLOEXEC); /* a program's children would keep it */
        status = map(d, m);
        if (status != WAGMA_OK)
            close(m->descriptor);
    }
    if (status != WAGMA_OK)
        (void)driver.cuMemRelease(m->handle);
    return status;
}

int mapping_import(struct cuda_device *d, int descriptor, struct cuda_memory *m) {
    m->descriptor = -1;
    int status =
        cuda_check(d,
                   driver.cuMemImportFromShareableHandle(&m->handle, (void *)(uintptr_t)descriptor,
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                   "cuMemImportFromShareableHandle()");
    if (status != WAGMA_OK)
        return status;
    status = map(d, m);
    if (status != WAGMA_OK)
        (void)driver.cuMemRelease(m->handle);
    return status;
}

/* ---- both ways ------------------------------------------------------------------------------- */

int mapping_make(struct cuda_device *d, size_t bytes, struct cuda_memory *m) {
    CUdeviceptr at = 0;
    m->descriptor = -1;
    m->by_ipc = !d->by_descriptor;
    if (!m->by_ipc)
        return make_by_descriptor(d, bytes, m);
    m->bytes = round_up(bytes, IPC_BLOCK);
    const int status = cuda_check(d, driver.cuMemAlloc_v2(&at, m->bytes), "cuMemAlloc()");
    m->at = mapping_address(at);
    return status;
}

int mapping_allow(struct cuda_device *d, struct cuda_memory *m) {
    if (!m->by_ipc)
        return set_access(d, m);
    if (m->of_other) /* cuIpcOpenMemHandle() has seen to it */
        return WAGMA_OK;
    CUdevice other;
    CUcontext context; /* the process keeps it, as that of every GPU it opens */
    int status = cuda_check(d, driver.cuDeviceGet(&other, m->gpu), "cuDeviceGet()");
    if (status == WAGMA_OK)
        status = cuda_check(d, driver.cuDevicePrimaryCtxRetain(&context, other),
                            "cuDevicePrimaryCtxRetain()");
    if (status != WAGMA_OK)
        return status;
    const CUresult error = driver.cuCtxEnablePeerAccess(context, 0);
    return error == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
               ? WAGMA_OK
               : cuda_check(d, error, "cuCtxEnablePeerAccess()");
}

void mapping_end(struct cuda_memory *m) {
    if (!m->by_ipc) {
        (void)driver.cuMemUnmap(mapping_pointer(m->at), m->bytes);
        (void)driver.cuMemAddressFree(mapping_pointer(m->at), m->bytes);
        (void)driver.cuMemRelease(m->handle);
        if (m->descriptor >= 0)
            close(m->descriptor);
    } else if (m->of_other) {
        (void)driver.cuIpcCloseMemHandle(m->opened);
    } else {
        (void)driver.cuMemFree_v2(mapping_pointer(m->at));
    }
}
