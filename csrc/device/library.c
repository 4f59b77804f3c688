/* Loads the library that makes devices. */
#define _GNU_SOURCE /* dladdr() */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "device/device.h"

#define NAME "libwagma_cuda.so"

/* ISO C has no conversion from the pointer that dlsym() returns to one of a function. */
static void find(void *library, const char *symbol, void *function) {
    void *found = dlsym(library, symbol);
    memcpy(function, &found, sizeof found);
}

/* Loads libwagma_cuda.so: the one beside this file, otherwise one of the linker's path. */
static void *load_default(void) {
    char path[4096];
    Dl_info self;
    const char *slash =
        dladdr(&load_default, &self) && self.dli_fname ? strrchr(self.dli_fname, '/') : NULL;
    void *library = NULL;
    if (slash) {
        snprintf(path, sizeof path, "%.*s/" NAME, (int)(slash - self.dli_fname), self.dli_fname);
        library = dlopen(path, RTLD_LOCAL | RTLD_NOW);
    }
    return library ? library : dlopen(NAME, RTLD_LOCAL | RTLD_NOW);
}

static int no_library(const char *path) {
    const char *said = dlerror();
    return error_set(WAGMA_ESYS,
                     "cannot load %s (%s): build it where nvcc is found (WAGMA_CUDA=1 python -m "
                     "pip install --force-reinstall .; the C library: make cuda)",
                     path ? path : NAME, said ? said : "no reason given");
}

static int other_abi(uint64_t abi) {
    return error_set(WAGMA_EINVAL,
                     "the devices' library was built for interface %#" PRIx64
                     ", the engine for %#" PRIx64 ": build both from the same sources",
                     abi, DEVICE_ABI);
}

int wagma_device_open(const char *path, int ordinal, wagma_device **device) {
    char message[768] = "";
    device_library_open *open = NULL;
    device_library_close *close = NULL;
    *device = NULL;
    void *library = path ? dlopen(path, RTLD_LOCAL | RTLD_NOW) : load_default();
    if (!library)
        return no_library(path);
    find(library, DEVICE_LIBRARY_OPEN, &open);
    find(library, DEVICE_LIBRARY_CLOSE, &close);
    if (!open || !close)
        return error_set(WAGMA_EINVAL, "%s makes no devices: it has no " DEVICE_LIBRARY_OPEN "()",
                         path ? path : NAME);
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

void wagma_device_close(wagma_device *device) {
    device_library_close *close;
    if (!device)
        return;
    find(device->library, DEVICE_LIBRARY_CLOSE, &close);
    close(device);
}
