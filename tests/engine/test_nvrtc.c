/* The text of the kernels, compiled by the true NVRTC as for a GPU that is there: machine code, and
 * PTX, none of whose instructions rounds otherwise than the CPU's kernels do. NVRTC is that of the
 * package nvidia-cuda-nvrtc, or one that the linker finds. */
/* short run: c */
#include "check.h"
#include "device/cuda/nvrtc.h"
#include "include/wagma.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

/* Compute capabilities; the others are in test_nvrtc_others.c. */
#ifndef ARCHS
#define ARCHS 75, 120
#endif

enum {
    DRIVER = 99000, /* one for which no NVRTC is too new */
    OLDEST = 1,     /* older than any GPU that NVRTC knows: nothing is compiled */
    SINCE_12_8 = 100
};

/* Return whether files have names like this. */
static int exists(const char *pattern) {
    glob_t found;
    const int result = glob(pattern, 0, NULL, &found);
    globfree(&found);
    return result == 0;
}

/* Return whether there is an NVRTC. */
static int find_nvrtc(void) {
    glob_t found;
    char *code;
    size_t size;
    if (glob(".venv*/lib/python*/site-packages/nvidia/*/lib/libnvrtc.so.*", 0, NULL, &found) == 0)
        nvrtc_set_paths(found.gl_pathv[0]);
    globfree(&found);
    return nvrtc_compile(OLDEST, DRIVER, &code, &size) != WAGMA_OK &&
           strstr(wagma_last_error(), "compiles for no GPU");
}

/* An NVRTC before 12.8 knows the older ones, and makes PTX for the others. */
static void test_machine_code(void) {
    static const int archs[] = {ARCHS};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        char *code;
        size_t size;
        CHECK(nvrtc_compile(archs[i], DRIVER, &code, &size) == WAGMA_OK, "%s", wagma_last_error());
        const int is_machine_code = size > 4 && memcmp(code, "\177ELF", 4) == 0;
        CHECK(is_machine_code || (archs[i] >= SINCE_12_8 && strstr(code, ".visible .entry")),
              "sm_%d: %zu bytes", archs[i], size);
        free(code);
    }
}

/* mad.lo and mad.wide are of integers. Without .rn the driver may fuse. Local memory would hold a
 * copy of the pass. */
static void check_instructions(const char *ptx) {
    static const char *const wrong[] = {"fma.",   "mad.r", ".ftz",  ".approx", ".full",
                                        ".local", "add.f", "mul.f", "div.f"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *at = strstr(ptx, wrong[i]);
        CHECK(!at, "%.60s", at - ptx < 20 ? ptx : at - 20);
    }
}

/* A GPU that the compiler does not know gets PTX of the nearest before it. */
static void test_instructions(void) {
    static const char *const kernels[] = {"float32",  "float64", "float16",
                                          "bfloat16", "int32",   "int64"};
    static const int archs[] = {99, 999};
    for (int i = 0; i < 2; i++) {
        char *ptx, line[64];
        size_t size;
        CHECK(nvrtc_compile(archs[i], DRIVER, &ptx, &size) == WAGMA_OK, "%s", wagma_last_error());
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
            snprintf(line, sizeof line, ".visible .entry weighted_sum_%s(", kernels[k]);
            CHECK(strstr(ptx, line), "there is no %s", line);
        }
        check_instructions(ptx);
        free(ptx);
    }
}

int main(void) {
    if (!find_nvrtc()) {
        const int is_missing = exists(".venv*/bin/python"); /* `make environment` installs it */
        printf("%s   %s\n", is_missing ? "FAILED" : "skipped", wagma_last_error());
        return is_missing;
    }
    RUN(test_machine_code);
    RUN(test_instructions);
    return check_summary();
}
