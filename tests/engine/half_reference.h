/* 16-bit floats by their definition, in exact double arithmetic. */
#ifndef WAGMA_TESTS_HALF_REFERENCE_H
#define WAGMA_TESTS_HALF_REFERENCE_H

#include <math.h>
#include <stdint.h>

/* A 16-bit float: sign, exponent, `mantissa` bits; the exponent of 1.0 is `bias`. */
typedef struct half_format {
    int mantissa, bias;
} half_format;
static const half_format format_f16 = {10, 15}, format_bf16 = {7, 127};

static double half_decode(half_format f, uint16_t h) {
    int exponent = (h & 0x7fff) >> f.mantissa, all_ones = (1 << (15 - f.mantissa)) - 1;
    int mantissa = h & ((1 << f.mantissa) - 1);
    double sign = h >> 15 ? -1.0 : 1.0;
    if (exponent == all_ones)
        return mantissa ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - f.bias - f.mantissa);
    return sign * ldexp(mantissa + (1 << f.mantissa), exponent - f.bias - f.mantissa);
}

/* Nearest, ties to even; the quiet NaN for any NaN. */
static uint16_t half_encode(half_format f, double x) {
    unsigned infinity = ((1u << (15 - f.mantissa)) - 1) << f.mantissa;
    if (isnan(x))
        return (uint16_t)(infinity | 1u << (f.mantissa - 1));
    unsigned sign = signbit(x) ? 0x8000 : 0;
    x = fabs(x);
    if (isinf(x))
        return (uint16_t)(sign | infinity);
    int least = 1 - f.bias, exponent = x > 0 && ilogb(x) > least ? ilogb(x) : least;
    double units = rint(ldexp(x, f.mantissa - exponent)); /* of 2^(exponent - mantissa) */
    /* A normal number has its leading bit in `units`: it counts one exponent, and so does a carry.
     */
    unsigned bits = ((unsigned)(exponent - least) << f.mantissa) + (unsigned)units;
    return (uint16_t)(sign | (bits < infinity ? bits : infinity));
}

#endif
