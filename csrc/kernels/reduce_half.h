/* 16-bit floats as uint16_t: conversion from and to f32 in integer arithmetic and without branches,
 * so that loops over it vectorise. To nearest even; a NaN becomes quiet. Denormals are exact even
 * where the processor flushes those of f32, for no f32 denormal occurs on the way. */
#ifndef WAGMA_KERNELS_REDUCE_HALF_H
#define WAGMA_KERNELS_REDUCE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float bits_float(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float bf16_to_f32(uint16_t h) {
    return bits_float((uint32_t)h << 16);
}

static inline uint16_t f32_to_bf16(float x) {
    uint32_t u = float_bits(x);
    uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    uint32_t nan = u >> 16 | 0x40;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

static inline float f16_to_f32(uint16_t h) {
    uint32_t magnitude = ((uint32_t)h & 0x7fff) << 13; /* exponent and mantissa in f32's places */
    uint32_t normal = magnitude + (112u << 23);        /* bias 15 becomes 127 */
    uint32_t special = magnitude + (224u << 23);       /* Inf, NaN: exponent 31 becomes 255 */
    /* denormal: m * 2^-24 = (2^-14 + m * 2^-24) - 2^-14 */
    uint32_t denormal = float_bits(bits_float(magnitude + (113u << 23)) - 0x1p-14f);
    uint32_t u = magnitude < (1u << 23) ? denormal : magnitude >= (31u << 23) ? special : normal;
    return bits_float(u | ((uint32_t)h & 0x8000) << 16);
}

static inline uint16_t f32_to_f16(float x) {
    uint32_t u = float_bits(x);
    uint32_t magnitude = u & 0x7fffffff;
    uint32_t sign = u >> 16 & 0x8000;
    /* 13 mantissa bits go; a carry moves into the exponent, at most up to Inf */
    uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    /* in 0.5 + m * 2^-24, m is the last bits of the mantissa: the addition rounds */
    uint32_t denormal = float_bits(bits_float(magnitude) + 0.5f) - float_bits(0.5f);
    uint32_t special = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
    uint32_t h = magnitude < (113u << 23) ? denormal : magnitude >= (143u << 23) ? special : normal;
    return (uint16_t)(sign | h);
}

#endif
