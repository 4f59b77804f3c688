/* Internals of the kernels, shared by the levels (scalar, AVX2, AVX-512); reduce.h is the
 * interface.
 *
 * All three entry points are one operation, the *range*: elements begin..end-1 of a weighted sum,
 * written to one or several outputs. A level implements the range (and a copy) and includes
 * reduce_entry.h for the rest.
 *
 * Every level computes, in the accumulation type,
 *
 *     ((w[a]*x[a] + w[b]*x[b]) + w[c]*x[c] ...) / divisor
 *
 * over the inputs a < b < c ... whose weights are not 0,
 * each operation rounded by itself, and replaces a NaN by one quiet NaN: which of two NaNs a sum
 * returns depends on the order of an instruction's operands, which the compiler chooses. */
#ifndef WAGMA_KERNELS_REDUCE_LEVEL_H
#define WAGMA_KERNELS_REDUCE_LEVEL_H

#include <math.h>

#include "kernels/reduce.h"

/* No fused multiply-add, in any function of a file that includes this. gcc vectorises loops of
 * unknown length from -O3 on, clang from -O2. With a sanitizer gcc would take twice as long for the
 * vectorised ones: there the loops are checked as they are written. */
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#pragma GCC optimize("O3")
#endif
#pragma GCC optimize("fp-contract=off", "no-trapping-math")
#endif

typedef struct reduce_job {
    wagma_dtype dtype;
    void *const *outs;
    int n_outs;
    const void *const *in;
    const double *weights;
    int n;
    double factor; /* the divisor, or its inverse where that is exact; ignored for integers */
    int divide;    /* 1: divide by factor, 0: multiply with it */
    int stream;    /* 1: stores bypass the caches where the level can */
} reduce_job;

/* Sets factor and divide. A product with the inverse of a power of two is the quotient to the bit,
 * as long as neither leaves the normal numbers of f32. */
static inline void reduce_set_divisor(reduce_job *job, double divisor) {
    int exponent;
    const double fraction = frexp(divisor, &exponent);
    job->divide = fraction != 0.5 || exponent < -100 || exponent > 100;
    job->factor = job->divide ? divisor : 1 / divisor;
}

/* The reference, and the ends of the other levels' ranges. */
void reduce_scalar_range(const reduce_job *job, size_t begin, size_t end);

/* A whole number of any magnitude, modulo 2^64. */
static inline uint64_t reduce_integer_weight(double weight) {
    double modulo = fmod(weight, 0x1p64); /* exact */
    return modulo < 0 ? -(uint64_t)-modulo : (uint64_t)modulo;
}

extern const reduce_kernels reduce_scalar;
#if defined(__x86_64__)
#define REDUCE_X86 1
extern const reduce_kernels reduce_avx2;
extern const reduce_kernels reduce_avx512;
#endif

#endif
