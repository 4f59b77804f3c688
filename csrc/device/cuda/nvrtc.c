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
static char paths_set[8 * PATH_MAX];
static int version; /* 13000; 0: not loaded */

void nvrtc_set_paths(const char *paths) {
    pthread_mutex_lock(&lock);
    snprintf(paths_set, sizeof paths_set, "%s", paths);
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
    void *library = dlopen(path, RTLD_LOCAL | RTLD_NOW), *found;
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

static int check(int result, const char *call) {
    return result == 0 ? WAGMA_OK
                       : error_set(WAGMA_ESYS, "%s: %s", call, nvrtc.nvrtcGetErrorString(result));
}

/* Return the newest architecture that the NVRTC in use knows and a GPU of `arch` runs; 0: there is
 * none; or an error. */
static int choose(int arch) {
    int n = 0, best = 0;
    int status = check(nvrtc.nvrtcGetNumSupportedArchs(&n), "nvrtcGetNumSupportedArchs()");
    if (status != WAGMA_OK)
        return status;
    int *known = calloc((size_t)n + 1, sizeof *known);
    if (!known)
        return error_set(WAGMA_ENOMEM, "no memory of the host");
    status = check(nvrtc.nvrtcGetSupportedArchs(known), "nvrtcGetSupportedArchs()");
    for (int i = 0; i < n; i++)
        best = known[i] <= arch && known[i] > best ? known[i] : best;
    free(known);
    return status == WAGMA_OK ? best : status;
}

/* Name a package for the driver, which takes no code of a newer major version, and for the GPU:
 * CUDA 13 knows none before 7.5, CUDA 12 none before 5.0. */
static void name_package(int arch, int driver, char *name, size_t size) {
    const int newest = arch < 50 ? 11 : arch < 75 ? 12 : driver / 1000;
    const int major = newest < driver / 1000 ? newest : driver / 1000;
    if (major < 13)
        snprintf(name, size, "nvidia-cuda-nvrtc-cu%d", major);
    else
        snprintf(name, size, "'nvidia-cuda-nvrtc==%d.*'", major);
}

static int refuse(int arch, int driver, int found) {
    char package[48];
    name_package(arch, driver, package, sizeof package);
    if (found > 0)
        return error_set(
            WAGMA_ESYS,
            "NVRTC %d.%d compiles for no GPU of compute capability %d.%d with a driver "
            "of CUDA %d.%d: install one that does (python -m pip install %s)",
            found / 1000, found % 1000 / 10, arch / 10, arch % 10, driver / 1000,
            driver % 1000 / 10, package);
    return error_set(WAGMA_ESYS,
                     "NVRTC (libnvrtc.so), which compiles the kernels for the GPU, was not found: "
                     "install it (python -m pip install %s), or name a CUDA toolkit by CUDA_HOME",
                     package);
}

/* Use the first NVRTC that is for the driver and the GPU; return as choose(). */
static int find(int arch, int driver) {
    char paths[sizeof paths_set + 2 * PATH_MAX], *rest;
    const char *toolkit = getenv("CUDA_HOME");
    int newest = 0;
    snprintf(paths, sizeof paths,
             "%s\nlibnvrtc.so.13\nlibnvrtc.so.12\nlibnvrtc.so.11.2\n%.*s/lib64/libnvrtc.so",
             paths_set, PATH_MAX, toolkit ? toolkit : "/usr/local/cuda");
    for (char *path = strtok_r(paths, "\n", &rest); path; path = strtok_r(NULL, "\n", &rest)) {
        version = load(path);
        newest = version > newest ? version : newest;
        const int fits = version > 0 && version / 1000 <= driver / 1000;
        const int known = fits ? choose(arch) : 0;
        if (known != 0)
            return known;
    }
    version = 0;
    return refuse(arch, driver, newest);
}

/* ---- compiling ------------------------------------------------------------------------------- */

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
const char *const nvrtc_options[] = {"--std=c++14", "--fmad=false", NULL};
enum { OPTIONS = sizeof nvrtc_options / sizeof *nvrtc_options };

static int compile(int arch, int known, char **code, size_t *size) {
    char target[64];
    const char *options[OPTIONS]; /* the target's place is that of the NULL */
    nvrtc_program program;
    snprintf(target, sizeof target, "--gpu-architecture=%s_%d", known == arch ? "sm" : "compute",
             known);
    int status = check(nvrtc.nvrtcCreateProgram(&program, reduce_text_sum, "sum.cuh", 1,
                                                (const char *[]){reduce_text_pass},
                                                (const char *[]){"kernels/cuda/pass.h"}),
                       "nvrtcCreateProgram()");
    if (status != WAGMA_OK)
        return status;
    memcpy(options, nvrtc_options, sizeof options);
    options[OPTIONS - 1] = target;
    const int result = nvrtc.nvrtcCompileProgram(program, OPTIONS, options);
    status = result == 0 ? take(program, known == arch, code, size) : failed(program, result);
    (void)nvrtc.nvrtcDestroyProgram(&program);
    return status;
}

int nvrtc_compile(int arch, int driver, char **code, size_t *size) {
    pthread_mutex_lock(&lock);
    int known = version > 0 ? choose(arch) : 0;
    if (known == 0)
        known = find(arch, driver);
    const int status = known > 0 ? compile(arch, known, code, size) : known;
    pthread_mutex_unlock(&lock);
    return status;
}
