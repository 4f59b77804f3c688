/* Inputs for the tests of the kernels: numbers of all kinds, at addresses of all kinds. */
#ifndef WAGMA_TESTS_REDUCE_INPUTS_H
#define WAGMA_TESTS_REDUCE_INPUTS_H

#include "periodic.h"
#include "kernels/reduce.h"
#include "reduce_reference.h"

#include <stdlib.h>

enum { MAX_N = REFERENCE_MAX_N, ARENA_N = 130, MARGIN = 128, GUARD = 64 };

/* xorshift: the same numbers in every run */
static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
static uint64_t random_bits(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * UINT64_C(0x2545f4914f6cdd1d) >> 8 | state << 56;
}

/* Numbers near 1 of both signs; of `kinds` two are special values, two any bit pattern (NaN,
 * denormal). */
static void fill_kinds(unsigned kinds, wagma_dtype dtype, unsigned char *to, size_t count) {
    static const uint64_t special_f32[] = {0,          0x80000000, 0x7f800000, 0xff800000,
                                           0x7fc00000, 0xffc12345, 0x7f800001, 1,
                                           0x007fffff, 0x7f7fffff};
    static const double special_f64[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 5e-324, 1.7e308};
    size_t size = reduce_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        uint64_t choice = random_bits() % kinds, bits = random_bits();
        double value = ldexp((double)(int64_t)bits, -62);
        float single = (float)value;
        if (choice < 2 && size < 8)
            bits = size == 4 ? special_f32[bits % 10] : special_f32[bits % 10] >> 16;
        else if (choice < 2)
            memcpy(&bits, &special_f64[bits % 7], sizeof bits);
        else if (choice >= 4 && dtype == WAGMA_F64)
            memcpy(&bits, &value, sizeof value);
        else if (choice >= 4 && dtype == WAGMA_F32)
            memcpy(&bits, &single, sizeof single);
        else if (choice >= 4 && size == 2)
            bits = half_encode(dtype == WAGMA_F16 ? format_f16 : format_bf16, value);
        memcpy(to + i * size, &bits, size);
    }
}

static void fill(wagma_dtype dtype, unsigned char *to, size_t count) {
    fill_kinds(16, dtype, to, count);
}

/* All 1, which the kernels treat by themselves, or with zeros among them, which are not to be read.
 */
static void draw_weights(wagma_dtype dtype, double *weights, int n) {
    static const double fractions[] = {1, 1, 1, 0, 0.3, 2, 1e-3, 7.5, -1, -0.7};
    static const double wholes[] = {
        1, 1, 0, 3, 1000003, 0x1p33 + 1, 0x1p63, 0x1p70 + 0x1p40, -1, -0x1p34 - 5};
    const int ones = random_bits() % 2 == 0;
    for (int k = 0; k < n; k++)
        weights[k] =
            ones ? 1 : (reduce_dtype_is_integer(dtype) ? wholes : fractions)[random_bits() % 10];
}

static double draw_divisor(wagma_dtype dtype) {
    static const double divisors[] = {1, 4, 3, 10, 0.7};
    return reduce_dtype_is_integer(dtype) ? 1 : divisors[random_bits() % 5];
}

/* Weights and divisor of each KIND: 1, or drawn. */
enum { KINDS = 4 };
static double draw_kind(int kind, wagma_dtype dtype, double *weights, int n) {
    draw_weights(dtype, weights, n);
    for (int k = 0; k < n && kind % 2 == 0; k++)
        weights[k] = 1;
    return kind / 2 == 0 ? 1 : draw_divisor(dtype);
}

/* Up to ARENA_N inputs and outputs of `count` elements at chosen addresses, between margins. What
 * is long is periodic: drawing it, and the reference of it, would take most of the time. */
typedef struct arena {
    unsigned char *memory, *in[ARENA_N], *out[ARENA_N], *expected;
    size_t bytes;
} arena;

/* 65..128 bytes on, at a multiple of 64. */
static unsigned char *next_line(unsigned char *p) {
    return p + 128 - (uintptr_t)p % 64;
}

/* Where the arrays lie: bytes beyond a multiple of 64, of the first and from one to the next. */
typedef struct placement {
    unsigned in, in_step, out, out_step;
} placement;

static arena arena_place(wagma_dtype dtype, size_t count, int n, placement at) {
    arena a = {.bytes = count * reduce_dtype_size(dtype)};
    size_t room = a.bytes + 2 * MARGIN;
    const unsigned kinds = n > MAX_N ? 16 * (unsigned)n : 16; /* or every sum would be a NaN */
    a.memory = malloc(room * (size_t)(2 * n + 1));
    memset(a.memory, 0xa5, room * (size_t)(2 * n + 1));
    for (int k = 0; k < n; k++) {
        unsigned char *in = a.memory + room * (size_t)(2 * k), *out = in + room;
        a.in[k] = next_line(in) + (at.in + at.in_step * (unsigned)k) % 64;
        a.out[k] = next_line(out) + (at.out + at.out_step * (unsigned)k) % 64;
        fill_kinds(kinds, dtype, a.in[k], (size_t)periodic_head((int64_t)count));
        periodic_repeat(a.in[k], PERIODIC_ELEMENTS * reduce_dtype_size(dtype), a.bytes);
    }
    a.expected = a.memory + room * (size_t)(2 * n);
    return a;
}

/* All at different, odd addresses. */
static arena arena_make(wagma_dtype dtype, size_t count, int n, unsigned alignment) {
    return arena_place(dtype, count, n, (placement){alignment, 5, 3 * alignment, 1});
}

/* The reference of a sum of the arena's inputs into its `expected`. */
static void arena_expect(const arena *a, wagma_dtype dtype, const double *weights, int n,
                         double divisor) {
    const size_t size = reduce_dtype_size(dtype), count = a->bytes / size;
    reference_sum(dtype, a->expected, (const void *const *)a->in, weights, n, divisor,
                  (size_t)periodic_head((int64_t)count));
    periodic_repeat(a->expected, PERIODIC_ELEMENTS * size, a->bytes);
}

static int is_margin_intact(const arena *a, const unsigned char *out) {
    int intact = 1;
    for (int i = 0; i < GUARD; i++)
        intact &= out[i - GUARD] == 0xa5 && out[a->bytes + (size_t)i] == 0xa5;
    return intact;
}

#endif
