/* The table of element types. */
#include "kernels/reduce.h"

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
