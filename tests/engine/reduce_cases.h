/* Cases that every implementation of the kernels has to pass, against reduce_reference.h: to the
 * bit. The file that includes this fills in `levels`. */
#ifndef WAGMA_TESTS_REDUCE_CASES_H
#define WAGMA_TESTS_REDUCE_CASES_H

#include "check.h"
#include "kernels/reduce.h"
#include "reduce_inputs.h"
#include "reduce_reference.h"
#include "slowdown.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { DTYPES = 6, MANY = 1000 };

static const reduce_kernels *levels[3];
static int n_levels;

/* check() on every level with every element type */
static void each(void (*check)(const reduce_kernels *level, wagma_dtype dtype)) {
    for (int l = 0; l < n_levels; l++)
        for (int dtype = 0; dtype < DTYPES; dtype++)
            check(levels[l], (wagma_dtype)dtype);
}

/* All levels: one drawing of inputs, weights and divisor. */
static void check_sum(wagma_dtype dtype, size_t count, int n, unsigned alignment) {
    arena a = arena_make(dtype, count, n, alignment);
    double weights[MAX_N], divisor = draw_divisor(dtype);
    const char *wrong = NULL;
    draw_weights(dtype, weights, n);
    const void *const *in = (const void *const *)a.in;
    arena_expect(&a, dtype, weights, n, divisor);
    for (int l = 0; l < n_levels; l++) {
        const reduce_kernels *level = levels[l];
        for (int streamed = 0; streamed < 2; streamed++) {
            memset(a.out[0], 0x5a, a.bytes);
            (streamed ? level->streamed_sum : level->sum)(dtype, a.out[0], in, weights, n, divisor,
                                                          count);
            if (memcmp(a.out[0], a.expected, a.bytes) != 0 || !is_margin_intact(&a, a.out[0]))
                wrong = level->name;
        }
    }
    free(a.memory);
    CHECK(!wrong, "%s %s count=%zu n=%d alignment=%u divisor=%g weights[0]=%g", wrong,
          reduce_dtype_name(dtype), count, n, alignment, divisor, weights[0]);
}

static void test_sum_every_count_and_n(void) {
    for (wagma_dtype dtype = WAGMA_F32; dtype <= WAGMA_I64; dtype++) {
        for (int n = 1; n <= MAX_N; n++) {
            for (unsigned count = (unsigned)n % SLOWDOWN; count <= 130; count += SLOWDOWN)
                check_sum(dtype, count, n, count * 7 + (unsigned)n);
            check_sum(dtype, MANY, n, 0);
            check_sum(dtype, MANY, n, (unsigned)n);
        }
    }
}

static void test_sum_every_alignment(void) {
    for (wagma_dtype dtype = WAGMA_F32; dtype <= WAGMA_I64; dtype++) {
        for (unsigned alignment = 0; alignment < 64; alignment += SLOWDOWN)
            for (int n = 1; n <= 3; n++)
                check_sum(dtype, 300, n, alignment);
    }
}

static void test_sum_of_a_million_elements(void) {
    for (wagma_dtype dtype = WAGMA_F32; dtype <= WAGMA_I64; dtype++)
        check_sum(dtype, (1 << 20) + 1, 3, 4);
}

/* Each of the 65536 values, times weights that leave nothing, ties, and bits just beside a tie to
 * round. */
static void check_all_values(const reduce_kernels *level, wagma_dtype dtype) {
    static const double factors[] = {1,
                                     0.5,
                                     0x1p-10,
                                     1.0 / 3,
                                     1 + 0x1p-8,
                                     1 + 0x1p-11,
                                     0x1p100,
                                     0x1p-120,
                                     1 + 0x1p-10 + 0x1p-23,
                                     1 + 0x1.8p-10};
    enum { VALUES = 1 << 16 };
    static uint16_t x[VALUES], out[VALUES], expected[VALUES];
    if (reduce_dtype_size(dtype) != sizeof *x)
        return;
    half_format format = dtype == WAGMA_F16 ? format_f16 : format_bf16;
    const void *in[1] = {x};
    for (int h = 0; h < VALUES; h++)
        x[h] = (uint16_t)h;
    for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
        reference_sum(dtype, expected, in, &factors[f], 1, 1.0, VALUES);
        level->sum(dtype, out, in, &factors[f], 1, 1.0, VALUES);
        for (int h = 0; h < VALUES; h++) {
            CHECK(out[h] == expected[h], "%s %s %04x * %g: %04x, not %04x", level->name,
                  reduce_dtype_name(dtype), (unsigned)h, factors[f], out[h], expected[h]);
            CHECK(f > 0 || out[h] == h || isnan(half_decode(format, (uint16_t)h)),
                  "%s %s %04x * 1: %04x", level->name, reduce_dtype_name(dtype), (unsigned)h,
                  out[h]);
        }
    }
}
static void test_sixteen_bit_floats_all_values(void) {
    each(check_all_values);
}

/* Sums do not depend on where a caller cuts the array. */
static void check_pieces_equal_the_whole(const reduce_kernels *level, wagma_dtype dtype) {
    {
        enum { COUNT = 5000, N = 4 };
        arena a = arena_make(dtype, COUNT, N, 3);
        size_t size = reduce_dtype_size(dtype);
        double weights[N], divisor = draw_divisor(dtype);
        draw_weights(dtype, weights, N);
        level->sum(dtype, a.out[0], (const void *const *)a.in, weights, N, divisor, COUNT);
        for (size_t at = 0, piece; at < COUNT; at += piece) {
            piece = 1 + random_bits() % 200;
            piece = piece < COUNT - at ? piece : COUNT - at;
            const void *in[N];
            for (int k = 0; k < N; k++)
                in[k] = a.in[k] + at * size;
            level->sum(dtype, a.out[1] + at * size, in, weights, N, divisor, piece);
        }
        int equal = memcmp(a.out[0], a.out[1], a.bytes) == 0;
        free(a.memory);
        CHECK(equal, "%s %s", level->name, reduce_dtype_name(dtype));
    }
}
static void test_pieces_equal_the_whole(void) {
    each(check_pieces_equal_the_whole);
}

static void check_output_may_be_any_input(const reduce_kernels *level, wagma_dtype dtype) {
    for (int n = 1; n <= 5; n++)
        for (int turn = 0; turn < n * KINDS; turn++) {
            const int same = turn / KINDS, kind = turn % KINDS;
            arena a = arena_make(dtype, MANY, n, 8);
            double weights[MAX_N], divisor = draw_kind(kind, dtype, weights, n);
            const void *const *in = (const void *const *)a.in;
            arena_expect(&a, dtype, weights, n, divisor);
            level->sum(dtype, a.in[same], in, weights, n, divisor, MANY);
            int equal = memcmp(a.in[same], a.expected, a.bytes) == 0;
            free(a.memory);
            CHECK(equal, "%s %s n=%d out=in[%d] kind %d", level->name, reduce_dtype_name(dtype), n,
                  same, kind);
        }
}
static void test_output_may_be_any_input(void) {
    each(check_output_may_be_any_input);
}

/* What a late rank does: the stored result and its own x, into either. */
static void check_merge(const reduce_kernels *level, wagma_dtype dtype) {
    static const double weights[] = {1, 0.7, 5};
    enum { APART, INTO_R, INTO_X, FORMS };
    for (int w = 0; w < 3; w++)
        for (int form = 0; form < FORMS; form++) {
            if (w == 1 && reduce_dtype_is_integer(dtype))
                continue;
            arena a = arena_make(dtype, MANY, 2, 12);
            double pair[2] = {1, weights[w]}, divisor = draw_divisor(dtype);
            arena_expect(&a, dtype, pair, 2, divisor);
            unsigned char *out = form == APART ? a.out[0] : form == INTO_R ? a.in[0] : a.in[1];
            level->sum(dtype, out, (const void *const *)a.in, pair, 2, divisor, MANY);
            int equal = memcmp(out, a.expected, a.bytes) == 0;
            free(a.memory);
            CHECK(equal, "%s %s weight=%g form %d", level->name, reduce_dtype_name(dtype),
                  weights[w], form);
        }
}
static void test_merge(void) {
    each(check_merge);
}

/* Divisor 1 copies every bit, also where the stores bypass the cache; another divisor is a sum. */
static void check_divided_copy(const reduce_kernels *level, wagma_dtype dtype) {
    const size_t counts[] = {0, 1, 63, MANY, (8 << 20) / reduce_dtype_size(dtype) + 5};
    for (int c = 0; c < 5; c++)
        for (unsigned alignment = 0; alignment < 64; alignment += 21) {
            if (c == 4 && alignment != 21)
                continue;
            arena a = arena_make(dtype, counts[c], 1, alignment);
            const double one = 1;
            int equal = 1;
            if (!reduce_dtype_is_integer(dtype))
                arena_expect(&a, dtype, &one, 1, 0.3);
            for (int streamed = 0; streamed < 2; streamed++) {
                memset(a.out[0], 0x5a, a.bytes);
                (streamed ? level->streamed_copy : level->divided_copy)(dtype, a.out[0], a.in[0],
                                                                        1.0, counts[c]);
                equal &= memcmp(a.out[0], a.in[0], a.bytes) == 0 && is_margin_intact(&a, a.out[0]);
                if (reduce_dtype_is_integer(dtype))
                    continue;
                (streamed ? level->streamed_copy : level->divided_copy)(dtype, a.out[0], a.in[0],
                                                                        0.3, counts[c]);
                equal &=
                    memcmp(a.out[0], a.expected, a.bytes) == 0 && is_margin_intact(&a, a.out[0]);
            }
            if (!reduce_dtype_is_integer(dtype)) {
                level->divided_copy(dtype, a.in[0], a.in[0], 0.3, counts[c]);
                equal &= memcmp(a.in[0], a.expected, a.bytes) == 0;
            }
            memcpy(a.expected, a.in[0], a.bytes);
            level->divided_copy(dtype, a.in[0], a.in[0], 1.0, counts[c]);
            equal &= memcmp(a.in[0], a.expected, a.bytes) == 0;
            free(a.memory);
            CHECK(equal, "%s %s count=%zu", level->name, reduce_dtype_name(dtype), counts[c]);
        }
}
static void test_divided_copy(void) {
    each(check_divided_copy);
}

enum { PAGE = 4096 };
static unsigned char *readable; /* a page between two that end the program when they are read */

/* Neither inputs of weight 0 nor bytes beside the others. */
static void check_reads(const reduce_kernels *level, wagma_dtype dtype) {
    enum { COUNT = 137, N = 4 };
    size_t bytes = COUNT * reduce_dtype_size(dtype);
    unsigned char *forbidden = readable + PAGE, out[COUNT * 8], expected[COUNT * 8];
    unsigned char *at[2] = {readable, forbidden - bytes}; /* its first and its last bytes */
    for (int test = 0; test < 2 * N * N; test++) {
        int n = 1 + test / 2 % N, used = test / 2 / N % n;
        unsigned char *x = at[test % 2];
        const void *in[N] = {forbidden, forbidden, forbidden, forbidden};
        double weights[N] = {0, -0.0, 0, 0};
        in[used] = x;
        weights[used] = 2;
        fill(dtype, x, COUNT);
        reference_sum(dtype, expected, in, weights, n, 1.0, COUNT);
        level->sum(dtype, out, in, weights, n, 1.0, COUNT);
        CHECK(memcmp(out, expected, bytes) == 0, "%s %s n=%d", level->name,
              reduce_dtype_name(dtype), n);
        level->sum(dtype, x, in, weights, n, 1.0, COUNT);
        level->divided_copy(dtype, out, x, 1.0, COUNT);
    }
}
static void test_reads_nothing_but_its_inputs(void) {
    unsigned char *pages =
        mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED, "mmap");
    readable = pages + PAGE;
    CHECK(mprotect(pages, PAGE, PROT_NONE) == 0 && mprotect(pages + 2 * PAGE, PAGE, PROT_NONE) == 0,
          "mprotect");
    each(check_reads);
    munmap(pages, 3 * PAGE);
}

/* By hand: ((1e8 + 1) - 1e8) is 0 in this order only; 4097 * 4097 rounds to 16785408, unless it is
 * fused with the addition. */
static void test_order_and_rounding(void) {
    enum { COUNT = 150 };
    static const double ones[3] = {1, 1, 1}, fusible[2] = {1, 4097};
    for (int l = 0; l < n_levels; l++) {
        float a[COUNT], b[COUNT], c[COUNT], out[COUNT];
        const void *in[3] = {a, b, c};
        for (int i = 0; i < COUNT; i++)
            a[i] = 1e8f, b[i] = 1, c[i] = -1e8f;
        levels[l]->sum(WAGMA_F32, out, in, ones, 3, 1.0, COUNT);
        for (int i = 0; i < COUNT; i++)
            CHECK(out[i] == 0, "%s: %g", levels[l]->name, (double)out[i]);
        for (int i = 0; i < COUNT; i++)
            a[i] = -16785408.0f, b[i] = 4097;
        levels[l]->sum(WAGMA_F32, out, in, fusible, 2, 1.0, COUNT);
        for (int i = 0; i < COUNT; i++)
            CHECK(out[i] == 0, "%s: %g", levels[l]->name, (double)out[i]);
    }
}

static void run_cases(void) {
    RUN(test_sum_every_count_and_n);
    RUN(test_sum_every_alignment);
    RUN(test_sum_of_a_million_elements);
    RUN(test_sixteen_bit_floats_all_values);
    RUN(test_pieces_equal_the_whole);
    RUN(test_output_may_be_any_input);
    RUN(test_merge);
    RUN(test_divided_copy);
    RUN(test_reads_nothing_but_its_inputs);
    RUN(test_order_and_rounding);
}

#endif
