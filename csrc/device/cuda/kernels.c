/* Loads the kernels of the sums into a GPU's context: from the cache, or compiled. See device.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mix.h"
#include "device/cuda/cache.h"
#include "device/cuda/device.h"
#include "device/cuda/nvrtc.h"
#include "kernels/cuda/text.h"
#include "kernels/reduce.h"

static uint64_t add(uint64_t hash, const char *text) {
    for (; *text; text++)
        hash = mix(hash ^ (unsigned char)*text);
    return hash;
}

/* A name for the code of this text, compiled with these options for this GPU. The version of NVRTC
 * is not in it: to ask for it, each process would load the compiler that it does not need. */
static void name_code(const struct cuda_device *d, char *name, size_t size) {
    uint64_t hash = add(add(0, reduce_text_sum), reduce_text_pass);
    for (const char *const *option = nvrtc_options; *option; option++)
        hash = add(mix(hash), *option);
    snprintf(name, size, "kernels-sm%d-%016" PRIx64, d->arch, hash);
}

static int find_kernels(struct cuda_device *d) {
    char name[64];
    int status = WAGMA_OK;
    for (wagma_dtype t = WAGMA_F32; t <= WAGMA_I64 && status == WAGMA_OK; t++) {
        snprintf(name, sizeof name, "weighted_sum_%s", reduce_dtype_name(t));
        status = cuda_check(d, driver.cuModuleGetFunction(&d->kernel[t], d->module, name),
                            "cuModuleGetFunction()");
    }
    if (status != WAGMA_OK)
        cuda_kernels_end(d);
    return status;
}

/* Code that this driver does not take, of another machine's compiler, is made anew. The driver may
 * look at it when the kernels are asked for, and not before. */
static int load_kept(struct cuda_device *d, const char *name) {
    char *code = cache_read(name);
    const int loaded = code && driver.cuModuleLoadData(&d->module, code) == CUDA_SUCCESS;
    free(code);
    return loaded && find_kernels(d) == WAGMA_OK;
}

static int load_compiled(struct cuda_device *d, const char *name) {
    char *code;
    size_t size;
    int version = 0;
    int status = cuda_check(d, driver.cuDriverGetVersion(&version), "cuDriverGetVersion()");
    if (status == WAGMA_OK)
        status = nvrtc_compile(d->arch, version, &code, &size);
    if (status != WAGMA_OK)
        return status;
    code[size] = 0;
    status = cuda_check(d, driver.cuModuleLoadData(&d->module, code), "cuModuleLoadData()");
    if (status == WAGMA_OK)
        cache_write(name, code, size);
    free(code);
    return status;
}

int cuda_kernels_begin(struct cuda_device *d) {
    char name[64];
    if (d->module)
        return WAGMA_OK;
    name_code(d, name, sizeof name);
    if (load_kept(d, name))
        return WAGMA_OK;
    const int status = load_compiled(d, name);
    return status == WAGMA_OK ? find_kernels(d) : status;
}

void cuda_kernels_end(struct cuda_device *d) {
    if (d->module)
        (void)driver.cuModuleUnload(d->module);
    d->module = NULL;
}
