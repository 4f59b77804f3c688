/* NVRTC: it looks at the text and the options, and makes "code" that the fake driver takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_fake/state.h"

#ifndef FAKE_MAJOR /* of the version, see the Makefile */
#define FAKE_MAJOR 13
#endif

typedef struct program {
    int arch, is_machine_code, is_right;
} program;

enum { ERROR = 6 /* NVRTC_ERROR_COMPILATION */ };

WAGMA_API int nvrtcVersion(int *major, int *minor);
WAGMA_API int nvrtcGetNumSupportedArchs(int *n);
WAGMA_API int nvrtcGetSupportedArchs(int *archs);
WAGMA_API int nvrtcCreateProgram(program **made, const char *text, const char *name, int headers,
                                 const char *const *texts, const char *const *names);
WAGMA_API int nvrtcCompileProgram(program *p, int n, const char *const *options);
WAGMA_API int nvrtcGetProgramLogSize(program *p, size_t *size);
WAGMA_API int nvrtcGetProgramLog(program *p, char *log);
WAGMA_API int nvrtcGetCUBINSize(program *p, size_t *size);
WAGMA_API int nvrtcGetCUBIN(program *p, char *code);
WAGMA_API int nvrtcGetPTXSize(program *p, size_t *size);
WAGMA_API int nvrtcGetPTX(program *p, char *code);
WAGMA_API int nvrtcDestroyProgram(program **p);
WAGMA_API const char *nvrtcGetErrorString(int error);

#define FAKE_FAILS()                                                                               \
    do {                                                                                           \
        if (fake_fails(__func__))                                                                  \
            return ERROR;                                                                          \
    } while (0)

int nvrtcVersion(int *major, int *minor) {
    *major = FAKE_MAJOR;
    *minor = 0;
    return 0;
}

int nvrtcGetNumSupportedArchs(int *n) {
    FAKE_FAILS();
    *n = 2;
    return 0;
}

int nvrtcGetSupportedArchs(int *archs) {
    FAKE_FAILS();
    archs[0] = FAKE_MAJOR < 13 ? 50 : 75;
    archs[1] = cuda_fake()->newest;
    return 0;
}

int nvrtcCreateProgram(program **made, const char *text, const char *name, int headers,
                       const char *const *texts, const char *const *names) {
    FAKE_FAILS();
    (void)name;
    *made = calloc(1, sizeof **made);
    cuda_fake()->left++;
    (*made)->is_right = headers == 1 && strcmp(names[0], "kernels/cuda/pass.h") == 0 &&
                        strstr(text, "#include \"kernels/cuda/pass.h\"") &&
                        strstr(text, "weighted_sum_##dtype") && strstr(texts[0], "reduce_pass;") &&
                        strcmp(text + strlen(text) - strlen("\n#endif\n"), "\n#endif\n") == 0;
    return 0;
}

int nvrtcCompileProgram(program *p, int n, const char *const *options) {
    FAKE_FAILS();
    int unfused = 0;
    for (int i = 0; i < n; i++) {
        unfused |= strcmp(options[i], "--fmad=false") == 0;
        p->is_machine_code |= sscanf(options[i], "--gpu-architecture=sm_%d", &p->arch) == 1;
        (void)sscanf(options[i], "--gpu-architecture=compute_%d", &p->arch);
    }
    cuda_fake()->compiled++;
    return p->is_right && unfused && p->arch > 0 ? 0 : ERROR;
}

int nvrtcGetProgramLogSize(program *p, size_t *size) {
    (void)p;
    *size = sizeof "log of the fake";
    return 0;
}

int nvrtcGetProgramLog(program *p, char *log) {
    (void)p;
    memcpy(log, "log of the fake", sizeof "log of the fake");
    return 0;
}

static int write_code(const program *p, char *code, size_t size) {
    return snprintf(code, size, "%s" FAKE_CODE "%d", p->is_machine_code ? "" : "PTX, ", p->arch) +
           1;
}

int nvrtcGetCUBINSize(program *p, size_t *size) {
    FAKE_FAILS();
    *size = (size_t)write_code(p, NULL, 0);
    return p->is_machine_code ? 0 : ERROR;
}

int nvrtcGetCUBIN(program *p, char *code) {
    FAKE_FAILS();
    write_code(p, code, 64);
    return p->is_machine_code ? 0 : ERROR;
}

int nvrtcGetPTXSize(program *p, size_t *size) {
    FAKE_FAILS();
    *size = (size_t)write_code(p, NULL, 0);
    return 0;
}

int nvrtcGetPTX(program *p, char *code) {
    FAKE_FAILS();
    write_code(p, code, 64);
    return 0;
}

int nvrtcDestroyProgram(program **p) {
    free(*p);
    cuda_fake()->left--;
    return 0;
}

const char *nvrtcGetErrorString(int error) {
    (void)error;
    return "error of the fake NVRTC";
}
