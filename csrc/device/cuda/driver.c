/* See driver.h. */
#include "device/cuda/driver.h"

#include <string.h>

struct driver driver;

/* The version whose signatures driver.h has. */
enum { SIGNATURES = 12000 };

static cudaError_t find(const char *name, void *function) {
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSuccess;
    void *found = NULL;
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &found, SIGNATURES, cudaEnableDefault, &result);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
    memcpy(function, &found, sizeof found);
    return error != cudaSuccess                                     ? error
           : result == cudaDriverEntryPointSuccess && found != NULL ? cudaSuccess
                                                                    : cudaErrorInsufficientDriver;
}

cudaError_t driver_load(const char **what) {
    struct driver found;
    cudaError_t error = cudaSuccess;
#define DRIVER_FIND(name, parameters)                                                              \
    if (error == cudaSuccess)                                                                      \
        error = find(*what = #name, &found.name);
    DRIVER_CALLS(DRIVER_FIND)
#undef DRIVER_FIND
    if (error == cudaSuccess)
        driver = found;
    return error;
}
