/* See exchange_sum.h. */
#include "messages/exchange_sum.h"

#include "kernels/reduce_half.h"

enum { BLOCK = 1024 }; /* elements that are converted at a time: they stay in the first cache */

static int is_half(wagma_dtype dtype) {
    return dtype == WAGMA_F16 || dtype == WAGMA_BF16;
}

size_t sum_size(wagma_dtype dtype, sum_form form) {
    return is_half(dtype) && form == SUM_PARTIAL ? sizeof(float) : reduce_dtype_size(dtype);
}

static void widen(wagma_dtype dtype, float *out, const uint16_t *x, size_t count) {
    if (dtype == WAGMA_F16)
        for (size_t i = 0; i < count; i++)
            out[i] = f16_to_f32(x[i]);
    else
        for (size_t i = 0; i < count; i++)
            out[i] = bf16_to_f32(x[i]);
}

static void narrow(wagma_dtype dtype, uint16_t *out, const float *x, size_t count) {
    if (dtype == WAGMA_F16)
        for (size_t i = 0; i < count; i++)
            out[i] = f32_to_f16(x[i]);
    else
        for (size_t i = 0; i < count; i++)
            out[i] = f32_to_bf16(x[i]);
}

/* Sum 16-bit floats into f32, one input after the other: the order of the kernels. */
static void widening_sum(const reduce_kernels *kernels, wagma_dtype dtype, float *out,
                         const void *const *in, const double *weights, int n, size_t count) {
    for (size_t at = 0; at < count; at += BLOCK) {
        const size_t block = count - at < BLOCK ? count - at : BLOCK;
        float wide[BLOCK];
        const void *operands[2] = {out + at, wide};
        double factors[2] = {0, 1};
        for (int k = 0; k < n; k++) {
            if (weights[k] == 0.0)
                continue;
            widen(dtype, wide, (const uint16_t *)in[k] + at, block);
            factors[1] = weights[k];
            kernels->sum(WAGMA_F32, out + at, operands, factors, 2, 1, block);
            factors[0] = 1;
        }
    }
}

/* Sum f32 into 16-bit floats; at least one weight is not 0. */
static void narrowing_sum(const reduce_kernels *kernels, wagma_dtype dtype, uint16_t *out,
                          const void *const *in, const double *weights, int n, double divisor,
                          size_t count) {
    int last = n - 1;
    while (weights[last] == 0.0)
        last--;
    for (size_t at = 0; at < count; at += BLOCK) {
        const size_t block = count - at < BLOCK ? count - at : BLOCK;
        float wide[BLOCK];
        const void *operands[2] = {wide};
        double factors[2] = {0, 1};
        for (int k = 0; k <= last; k++) {
            if (weights[k] == 0.0)
                continue;
            operands[1] = (const float *)in[k] + at;
            factors[1] = weights[k];
            kernels->sum(WAGMA_F32, wide, operands, factors, 2, k == last ? divisor : 1, block);
            factors[0] = 1;
        }
        narrow(dtype, out + at, wide, block);
    }
}

void sum_range(const reduce_kernels *kernels, wagma_dtype dtype, sum_form from, sum_form to,
               void *out, const void *const *in, const double *weights, int n, double divisor,
               size_t count) {
    if (!is_half(dtype) || (from == SUM_DATA && to == SUM_DATA))
        kernels->sum(dtype, out, in, weights, n, divisor, count);
    else if (from == SUM_DATA)
        widening_sum(kernels, dtype, out, in, weights, n, count);
    else if (to == SUM_PARTIAL)
        kernels->sum(WAGMA_F32, out, in, weights, n, divisor, count);
    else
        narrowing_sum(kernels, dtype, out, in, weights, n, divisor, count);
}
