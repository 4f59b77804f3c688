/* See driver.h. */
#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "include/wagma.h"

struct driver driver;

/* ---- the interface, as abi.h or the true header declare it ----------------------------------- */

#define IS(name, value) _Static_assert((int)(name) == (value), #name)
IS(CUDA_ERROR_INVALID_VALUE, 1);
IS(CUDA_ERROR_OUT_OF_MEMORY, 2);
IS(CUDA_ERROR_NOT_INITIALIZED, 3);
IS(CUDA_ERROR_NO_DEVICE, 100);
IS(CUDA_ERROR_INVALID_IMAGE, 200);
IS(CUDA_ERROR_INVALID_CONTEXT, 201);
IS(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217);
IS(CUDA_ERROR_INVALID_HANDLE, 400);
IS(CUDA_ERROR_NOT_FOUND, 500);
IS(CUDA_ERROR_NOT_READY, 600);
IS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704);
IS(CUDA_ERROR_UNKNOWN, 999);
IS(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75);
IS(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76);
IS(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102);
IS(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103);
IS(CU_MEM_ALLOCATION_TYPE_PINNED, 1);
IS(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1);
IS(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0);
IS(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3);
IS(CU_MEM_LOCATION_TYPE_DEVICE, 1);
IS(CU_STREAM_NON_BLOCKING, 1);
IS(CU_MEMHOSTREGISTER_PORTABLE, 1);
IS(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1);
IS(CU_EVENT_BLOCKING_SYNC, 1);
IS(CU_EVENT_DISABLE_TIMING, 2);
IS(sizeof(CUuuid), 16);
IS(sizeof(CUipcMemHandle), 64);
IS(sizeof(CUdeviceptr), 8);
IS(sizeof(CUmemAccessDesc), 12);
IS(sizeof(CUmemAllocationProp), 32);
IS(offsetof(CUmemAllocationProp, location), 8);
#ifdef WAGMA_TRUE_CUDA_H
#define SAME(name, parameters)                                                                     \
    _Static_assert(__builtin_types_compatible_p(__typeof__(driver.name), __typeof__(&name)), #name);
DRIVER_CALLS(SAME)
#endif

/* ---- loading --------------------------------------------------------------------------------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char missing[512]; /* empty: all was found */

static void load(void) {
    void *library = dlopen("libcuda.so.1", RTLD_LOCAL | RTLD_NOW), *found;
    if (!library) {
        snprintf(missing, sizeof missing,
                 "there is no CUDA driver (%s): install NVIDIA's, or give the container a GPU "
                 "(docker run --gpus all)",
                 dlerror());
        return;
    }
#define DRIVER_FIND(name, parameters)                                                              \
    found = dlsym(library, #name);                                                                 \
    memcpy(&driver.name, &found, sizeof found);                                                    \
    if (!found)                                                                                    \
        snprintf(missing, sizeof missing,                                                          \
                 "the CUDA driver has no " #name "(): it is older than CUDA 11.4; update it");
    DRIVER_CALLS(DRIVER_FIND)
#undef DRIVER_FIND
}

int driver_load(void) {
    pthread_once(&once, load);
    return missing[0] ? error_set(WAGMA_ESYS, "%s", missing) : WAGMA_OK;
}
