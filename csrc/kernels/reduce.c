/* The choice of the SIMD level. */
#include "kernels/reduce_level.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifdef REDUCE_X86
#include <cpuid.h>
#endif

#ifdef REDUCE_X86
static int has_avx2(void) {
    unsigned a, b, c, d; /* not every compiler's __builtin_cpu_supports() knows f16c */
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq");
}
#endif

const reduce_kernels *reduce_by_name(const char *name) {
#ifdef REDUCE_X86
    __builtin_cpu_init();
    if (strcmp(name, reduce_avx512.name) == 0)
        return has_avx512() ? &reduce_avx512 : NULL;
    if (strcmp(name, reduce_avx2.name) == 0)
        return has_avx2() ? &reduce_avx2 : NULL;
#endif
    return strcmp(name, reduce_scalar.name) == 0 ? &reduce_scalar : NULL;
}

static const reduce_kernels *choose(void) {
    const char *wanted = getenv("WAGMA_SIMD");
    const char *order[] = {wanted ? wanted : "", "avx512", "avx2"};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        const reduce_kernels *level = reduce_by_name(order[i]);
        if (level)
            return level;
    }
    return &reduce_scalar;
}

const reduce_kernels *reduce_best(void) {
    /* Threads that choose at the same time choose the same constant table. */
    static _Atomic(const reduce_kernels *) chosen;
    const reduce_kernels *level = chosen;
    if (!level)
        chosen = level = choose();
    return level;
}
