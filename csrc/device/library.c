/* Opens devices: those over CUDA, and those of a library that it loads. */
#include <dlfcn.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "device/cuda/device.h"

/* ISO C has no conversion from the pointer that dlsym() returns to one of a function. */
static void find(void *library, const char *symbol, void *function) {
    void *found = dlsym(library, symbol);
    memcpy(function, &found, sizeof found);
}

static int other_abi(uint64_t abi) {
    return error_set(WAGMA_EINVAL,
                     "the devices' library was built for interface %#" PRIx64
                     ", the engine for %#" PRIx64 ": build both from the same sources",
                     abi, DEVICE_ABI);
}

static int open_library(const char *path, int ordinal, wagma_device **device) {
    char message[768] = "";
    device_library_open *open = NULL;
    device_library_close *close = NULL;
    void *library = dlopen(path, RTLD_LOCAL | RTLD_NOW);
    if (!library)
        return error_set(WAGMA_ESYS, "cannot load a library of devices: %s", dlerror());
    find(library, DEVICE_LIBRARY_OPEN, &open);
    find(library, DEVICE_LIBRARY_CLOSE, &close);
    if (!open || !close)
        return error_set(WAGMA_EINVAL, "%s makes no devices: it has no " DEVICE_LIBRARY_OPEN "()",
                         path);
    const int status = open(ordinal, device, message, sizeof message);
    if (status != WAGMA_OK) {
        *device = NULL;
        return error_set(status, "%s", message);
    }
    if ((*device)->abi != DEVICE_ABI) {
        const uint64_t abi = (*device)->abi;
        close(*device);
        *device = NULL;
        return other_abi(abi);
    }
    (*device)->error = error_set;
    (*device)->library = library;
    return WAGMA_OK;
}

int wagma_device_open(const char *library, int ordinal, wagma_device **device) {
    *device = NULL;
    return library ? open_library(library, ordinal, device) : cuda_device_open(ordinal, device);
}

void wagma_device_close(wagma_device *device) {
    device_library_close *close;
    if (!device)
        return;
    if (!device->library) {
        cuda_device_close(device);
        return;
    }
    find(device->library, DEVICE_LIBRARY_CLOSE, &close);
    close(device);
}
