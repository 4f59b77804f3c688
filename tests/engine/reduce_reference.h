/* Reference for the kernels, computed another way: one element at a time, 16-bit floats by their
 * definition in exact double arithmetic, integers in 128 bits. */
#ifndef WAGMA_TESTS_REDUCE_REFERENCE_H
#define WAGMA_TESTS_REDUCE_REFERENCE_H

#include "half_reference.h"
#include "include/wagma.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Modulo 2^64; weights of the tests are below 2^100, of either sign. */
static uint64_t whole(double weight) {
    return (uint64_t)(__int128)weight;
}

/* volatile: each operation is rounded by itself, whatever the compiler's options. */
static float float_element(const float *x, const double *weights, int n, double divisor) {
    volatile float total = 0, product;
    int first = 1;
    for (int k = 0; k < n; k++)
        if (weights[k] != 0.0) {
            product = (float)weights[k] * x[k];
            total = first ? product : total + product;
            first = 0;
        }
    product = first ? 0 : total / (float)divisor;
    return product;
}

static double double_element(const double *x, const double *weights, int n, double divisor) {
    volatile double total = 0, product;
    int first = 1;
    for (int k = 0; k < n; k++)
        if (weights[k] != 0.0) {
            product = weights[k] * x[k];
            total = first ? product : total + product;
            first = 0;
        }
    product = first ? 0 : total / divisor;
    return product;
}

static uint64_t integer_element(const uint64_t *x, const double *weights, int n) {
    unsigned __int128 total = 0;
    for (int k = 0; k < n; k++)
        total += (unsigned __int128)whole(weights[k]) * x[k];
    return (uint64_t)total;
}

enum { REFERENCE_MAX_N = 9 };

/* out = (sum of weights[k] * in[k]) / divisor, the specification of reduce.h. Inputs may be
 * anywhere; `out` is none of them. */
static void reference_sum(wagma_dtype dtype, void *out, const void *const *in,
                          const double *weights, int n, double divisor, size_t count) {
    static const size_t sizes[] = {4, 8, 2, 2, 4, 8};
    const half_format half = dtype == WAGMA_F16 ? format_f16 : format_bf16;
    size_t size = sizes[dtype];
    assert(n <= REFERENCE_MAX_N);
    for (size_t i = 0; i < count; i++) {
        float f[REFERENCE_MAX_N] = {0};
        double d[REFERENCE_MAX_N] = {0};
        uint64_t q[REFERENCE_MAX_N] = {0};
        for (int k = 0; k < n; k++) {
            if (weights[k] == 0.0)
                continue;
            memcpy(&q[k], (const unsigned char *)in[k] + i * size, size); /* little-endian */
            memcpy(&f[k], &q[k], sizeof f[k]);
            memcpy(&d[k], &q[k], sizeof d[k]);
            if (size == 2)
                f[k] = (float)half_decode(half, (uint16_t)q[k]);
        }
        uint64_t bits = 0;
        if (dtype == WAGMA_F64) {
            double total = double_element(d, weights, n, divisor);
            memcpy(&bits, &total, sizeof total);
            bits = isnan(total) ? UINT64_C(0x7ff8000000000000) : bits;
        } else if (dtype == WAGMA_I32 || dtype == WAGMA_I64) {
            bits = integer_element(q, weights, n);
        } else {
            float total = float_element(f, weights, n, divisor);
            uint32_t word;
            memcpy(&word, &total, sizeof total);
            bits = size == 2 ? half_encode(half, total) : isnan(total) ? 0x7fc00000 : word;
        }
        memcpy((unsigned char *)out + i * size, &bits, size);
    }
}

#endif
