/* The table of element types, and the choice of the SIMD level. */
#include "kernels/reduce_level.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifdef REDUCE_X86
#include <cpuid.h>
#endif

static const struct {
    const char *name;
    size_t size;
    int integer;
} dtypes[] = {
    [WAGMA_F32] = {"float32", 4, 0}, [WAGMA_F64] = {"float64", 8, 0},
    [WAGMA_F16] = {"float16", 2, 0}, [WAGMA_BF16] = {"bfloat16", 2, 0},
    [WAGMA_I32] = {"int32", 4, 1},   [WAGMA_I64] = {"int64", 8, 1},
};

static int is_known(wagma_dtype dtype) {
    return (size_t)dtype < sizeof dtypes / sizeof *dtypes;
}

size_t reduce_dtype_size(wagma_dtype dtype) {
    return is_known(dtype) ? dtypes[dtype].size : 0;
}

const char *reduce_dtype_name(wagma_dtype dtype) {
    return is_known(dtype) ? dtypes[dtype].name : "unknown";
}

int reduce_dtype_is_integer(wagma_dtype dtype) {
    return is_known(dtype) && dtypes[dtype].integer;
}

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
