/* See nvrtc.h. */
#include "device/cuda/nvrtc.h"

#define _GNU_SOURCE /* dladdr() */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "include/wagma.h"
#include "kernels/cuda/text.h"

typedef struct program *nvrtc_program;

/* X(name, parameters): each returns 0 or a number that nvrtcGetErrorString() has words for. */
#define NVRTC_CALLS(X)                                                                             \
    X(nvrtcVersion, (int *, int *))                                                                \
    X(nvrtcGetNumSupportedArchs, (int *))                                                          \
    X(nvrtcGetSupportedArchs, (int *))                                                             \
    X(nvrtcCreateProgram, (nvrtc_program *, const char *, const char *, int, const char *const *,  \
                           const char *const *))                                                   \
    X(nvrtcCompileProgram, (nvrtc_program, int, const char *const *))                              \
    X(nvrtcGetProgramLogSize, (nvrtc_program, size_t *))                                           \
    X(nvrtcGetProgramLog, (nvrtc_program, char *))                                                 \
    X(nvrtcGetCUBINSize, (nvrtc_program, size_t *))                                                \
    X(nvrtcGetCUBIN, (nvrtc_program, char *))                                                      \
    X(nvrtcGetPTXSize, (nvrtc_program, size_t *))                                                  \
    X(nvrtcGetPTX, (nvrtc_program, char *))                                                        \
    X(nvrtcDestroyProgram, (nvrtc_program *))

static struct {
#define NVRTC_FIELD(name, parameters) int(*name) parameters;
    NVRTC_CALLS(NVRTC_FIELD)
#undef NVRTC_FIELD
    const char *(*nvrtcGetErrorString)(int);
} nvrtc;

/* ---- loading --------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static char path_set[PATH_MAX];
static int version; /* 13000; 0: not loaded */

void nvrtc_set_path(const char *path) {
    pthread_mutex_lock(&lock);
    snprintf(path_set, sizeof path_set, "%s", path);
    pthread_mutex_unlock(&lock);
}

/* NVRTC looks by name for a library that lies beside it, which the linker only finds where it
 * finds NVRTC; or where it is loaded. */
static void load_builtins(int major, int minor) {
    char path[PATH_MAX];
    void *function;
    Dl_info self;
    memcpy(&function, &nvrtc.nvrtcVersion, sizeof function);
    const char *slash = dladdr(function, &self) ? strrchr(self.dli_fname, '/') : NULL;
    if (!slash)
        return;
    snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - self.dli_fname),
             self.dli_fname, major, minor);
    (void)dlopen(path, RTLD_LOCAL | RTLD_NOW);
}

/* Return the version of the library at a path, whose functions `nvrtc` has then; 0: it is none. */
static int load(const char *path) {
    void *library = path[0] ? dlopen(path, RTLD_LOCAL | RTLD_NOW) : NULL, *found;
    int has_all = library != NULL, major = 0, minor = 0;
#define NVRTC_FIND(name, parameters)                                                               \
    found = has_all ? dlsym(library, #name) : NULL;                                                \
    memcpy(&nvrtc.name, &found, sizeof found);                                                     \
    has_all = found != NULL;
    NVRTC_CALLS(NVRTC_FIND)
    NVRTC_FIND(nvrtcGetErrorString, )
#undef NVRTC_FIND
    if (!has_all || nvrtc.nvrtcVersion(&major, &minor) != 0)
        return 0;
    load_builtins(major, minor);
    return major * 1000 + minor * 10;
}

/* Code of a newer major version runs on no older driver. */
static int find(int driver) {
    char in_toolkit[PATH_MAX];
    const char *toolkit = getenv("CUDA_HOME");
    int newest = 0;
    snprintf(in_toolkit, sizeof in_toolkit, "%s/lib64/libnvrtc.so",
             toolkit ? toolkit : "/usr/local/cuda");
    const char *const paths[] = {path_set, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2",
                                 in_toolkit};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        version = load(paths[i]);
        if (version > 0 && version / 1000 <= driver / 1000)
            return WAGMA_OK;
        newest = version > newest ? version : newest;
    }
    version = 0;
    if (newest > 0)
        return error_set(WAGMA_ESYS,
                         "NVRTC is of CUDA %d.%d, the driver of CUDA %d.%d: update the driver, or "
                         "install an older NVRTC (python -m pip install nvidia-cuda-nvrtc-cu%d)",
                         newest / 1000, newest % 1000 / 10, driver / 1000, driver % 1000 / 10,
                         driver / 1000);
    return error_set(WAGMA_ESYS,
                     "NVRTC (libnvrtc.so), which compiles the kernels for the GPU, was not found: "
                     "install it (python -m pip install nvidia-cuda-nvrtc%s), or name a CUDA "
                     "toolkit by CUDA_HOME",
                     driver < 13000 ? "-cu12" : "");
}

/* ---- compiling ------------------------------------------------------------------------------- */

static int check(int result, const char *call) {
    return result == 0 ? WAGMA_OK
                       : error_set(WAGMA_ESYS, "%s: %s", call, nvrtc.nvrtcGetErrorString(result));
}

/* Find the newest architecture that NVRTC knows and a GPU of `arch` runs. */
static int choose(int arch, int *best) {
    int n = 0;
    int status = check(nvrtc.nvrtcGetNumSupportedArchs(&n), "nvrtcGetNumSupportedArchs()");
    if (status != WAGMA_OK)
        return status;
    int *known = calloc((size_t)n + 1, sizeof *known);
    if (!known)
        return error_set(WAGMA_ENOMEM, "no memory of the host");
    status = check(nvrtc.nvrtcGetSupportedArchs(known), "nvrtcGetSupportedArchs()");
    *best = 0;
    for (int i = 0; i < n; i++)
        *best = known[i] <= arch && known[i] > *best ? known[i] : *best;
    free(known);
    if (status != WAGMA_OK || *best > 0)
        return status;
    return error_set(WAGMA_ESYS,
                     "NVRTC %d.%d compiles for no GPU of compute capability %d.%d, but for others: "
                     "install another version of it",
                     version / 1000, version % 1000 / 10, arch / 10, arch % 10);
}

static int failed(nvrtc_program program, int result) {
    size_t size = 0;
    char *log = nvrtc.nvrtcGetProgramLogSize(program, &size) == 0 ? calloc(1, size + 1) : NULL;
    if (log)
        (void)nvrtc.nvrtcGetProgramLog(program, log);
    const int status = error_set(WAGMA_ESYS, "NVRTC %d.%d does not compile the kernels: %s: %.400s",
                                 version / 1000, version % 1000 / 10,
                                 nvrtc.nvrtcGetErrorString(result), log ? log : "");
    free(log);
    return status;
}

static int take(nvrtc_program program, int is_machine_code, char **code, size_t *size) {
    int status =
        check((is_machine_code ? nvrtc.nvrtcGetCUBINSize : nvrtc.nvrtcGetPTXSize)(program, size),
              "nvrtcGetCUBINSize()");
    if (status != WAGMA_OK)
        return status;
    *code = malloc(*size + 1);
    if (!*code)
        return error_set(WAGMA_ENOMEM, "no memory of the host for %zu bytes of code", *size);
    status = check((is_machine_code ? nvrtc.nvrtcGetCUBIN : nvrtc.nvrtcGetPTX)(program, *code),
                   "nvrtcGetCUBIN()");
    if (status != WAGMA_OK)
        free(*code);
    return status;
}

/* The bits of a sum need --fmad=false, and NVRTC's defaults: see sum.cuh. */
static int compile(int arch, char **code, size_t *size) {
    char target[64];
    const char *const options[] = {target, "--std=c++14", "--fmad=false"};
    nvrtc_program program;
    int known = 0;
    int status = choose(arch, &known);
    if (status != WAGMA_OK)
        return status;
    snprintf(target, sizeof target, "--gpu-architecture=%s_%d", known == arch ? "sm" : "compute",
             known);
    status = check(nvrtc.nvrtcCreateProgram(&program, reduce_text_sum, "sum.cuh", 1,
                                            (const char *[]){reduce_text_pass},
                                            (const char *[]){"kernels/cuda/pass.h"}),
                   "nvrtcCreateProgram()");
    if (status != WAGMA_OK)
        return status;
    const int result =
        nvrtc.nvrtcCompileProgram(program, sizeof options / sizeof *options, options);
    status = result == 0 ? take(program, known == arch, code, size) : failed(program, result);
    (void)nvrtc.nvrtcDestroyProgram(&program);
    return status;
}

int nvrtc_compile(int arch, int driver, char **code, size_t *size) {
    pthread_mutex_lock(&lock);
    int status = version > 0 ? WAGMA_OK : find(driver);
    if (status == WAGMA_OK)
        status = compile(arch, code, size);
    pthread_mutex_unlock(&lock);
    return status;
}
