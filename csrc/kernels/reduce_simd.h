/* One vector level: included by reduce_avx2.c and reduce_avx512.c, which define VECTOR_BYTES and
 * select the target. Vectors are the compilers' own (vector_size), so that one text serves both;
 * intrinsics are used where those have no words (f16, streaming stores) or take several
 * instructions instead of one.
 *
 * The sum of STEP vectors stays in registers while the inputs are walked, hence each element is
 * read once and written once to each output: the memory is what limits it, as long as there is
 * little else to do. So weights of 1, the usual ones, take no multiplication, and NaNs are looked
 * for in all the vectors of a step at once. */

#include <immintrin.h>
#include <string.h>

enum { STEP = 8 };

/* How far ahead inputs are asked for, in bytes. Intel's prefetchers stop at the end of each page of
 * 4 KiB; AMD's do better without. */
enum { STREAM_AHEAD = 4096 };

static inline int asks_ahead(void) {
    return __builtin_cpu_is("intel") != 0;
}

typedef uint32_t vec __attribute__((vector_size(VECTOR_BYTES))); /* 32-bit lanes, or any other */
typedef uint64_t vec_u64 __attribute__((vector_size(VECTOR_BYTES)));
typedef float vec_f32 __attribute__((vector_size(VECTOR_BYTES)));
typedef double vec_f64 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t half_vec __attribute__((vector_size(VECTOR_BYTES / 2))); /* 16-bit floats */

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* `dtype` is a constant in each of these once they are inlined. */

ALWAYS_INLINE size_t lane_bytes(wagma_dtype dtype) { /* in memory */
    switch (dtype) {
    case WAGMA_F64:
    case WAGMA_I64: return 8;
    case WAGMA_F16:
    case WAGMA_BF16: return 2;
    default: return 4;
    }
}

ALWAYS_INLINE int is_integer(wagma_dtype dtype) {
    return dtype == WAGMA_I32 || dtype == WAGMA_I64;
}

ALWAYS_INLINE size_t lanes(wagma_dtype dtype) {
    return lane_bytes(dtype) == 8 ? VECTOR_BYTES / 8 : VECTOR_BYTES / 4;
}

ALWAYS_INLINE vec f16_widen(half_vec h) {
#if VECTOR_BYTES == 64
    return (vec)_mm512_cvtph_ps((__m256i)h);
#else
    return (vec)_mm256_cvtph_ps((__m128i)h);
#endif
}

ALWAYS_INLINE half_vec f16_narrow(vec x) {
#if VECTOR_BYTES == 64
    return (half_vec)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
#else
    return (half_vec)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#endif
}

/* 16 bits, zero-extended to 32-bit lanes, and the low halves of those. */
ALWAYS_INLINE vec to_lanes(half_vec h) {
#if VECTOR_BYTES == 64
    return (vec)_mm512_cvtepu16_epi32((__m256i)h);
#else
    return (vec)_mm256_cvtepu16_epi32((__m128i)h);
#endif
}

ALWAYS_INLINE half_vec low_halves(vec x) {
#if VECTOR_BYTES == 64
    return (half_vec)_mm512_cvtepi32_epi16((__m512i)x);
#else /* in order within each 16 bytes; no lane is above 0xffff */
    const __m256i packed = _mm256_packus_epi32((__m256i)x, (__m256i)x);
    return (half_vec)_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
#endif
}

ALWAYS_INLINE vec load(wagma_dtype dtype, const unsigned char *p) {
    if (lane_bytes(dtype) == 2) {
        half_vec h;
        memcpy(&h, p, sizeof h);
        return dtype == WAGMA_F16 ? f16_widen(h) : to_lanes(h) << 16;
    }
    vec x;
    memcpy(&x, p, sizeof x);
    return x;
}

ALWAYS_INLINE void store(wagma_dtype dtype, unsigned char *p, vec x) {
    if (lane_bytes(dtype) == 2) {
        half_vec h =
            dtype == WAGMA_F16 ? f16_narrow(x) : low_halves((x + 0x7fff + (x >> 16 & 1)) >> 16);
        memcpy(p, &h, sizeof h);
        return;
    }
    memcpy(p, &x, sizeof x);
}

/* Past the caches, to an aligned p; not for 16-bit floats, whose vectors are half as wide there. */
ALWAYS_INLINE void stream(unsigned char *p, vec x) {
#if VECTOR_BYTES == 64
    _mm512_stream_si512((__m512i *)p, (__m512i)x);
#else
    _mm256_stream_si256((__m256i *)p, (__m256i)x);
#endif
}

ALWAYS_INLINE vec broadcast(wagma_dtype dtype, double weight) {
    switch (dtype) {
    case WAGMA_F64: return (vec)(weight - (vec_f64){0});
    case WAGMA_I32: return (uint32_t)reduce_integer_weight(weight) - (vec){0};
    case WAGMA_I64: return (vec)(reduce_integer_weight(weight) - (vec_u64){0});
    default: return (vec)((float)weight - (vec_f32){0});
    }
}

ALWAYS_INLINE vec multiply(wagma_dtype dtype, vec a, vec b) {
    switch (dtype) {
    case WAGMA_F64: return (vec)((vec_f64)a * (vec_f64)b);
    case WAGMA_I32: return a * b;
    case WAGMA_I64: return (vec)((vec_u64)a * (vec_u64)b);
    default: return (vec)((vec_f32)a * (vec_f32)b);
    }
}

ALWAYS_INLINE vec add(wagma_dtype dtype, vec a, vec b) {
    switch (dtype) {
    case WAGMA_F64: return (vec)((vec_f64)a + (vec_f64)b);
    case WAGMA_I32: return a + b;
    case WAGMA_I64: return (vec)((vec_u64)a + (vec_u64)b);
    default: return (vec)((vec_f32)a + (vec_f32)b);
    }
}

ALWAYS_INLINE vec divide(wagma_dtype dtype, vec a, vec b) {
    if (dtype == WAGMA_F64)
        return (vec)((vec_f64)a / (vec_f64)b);
    return (vec)((vec_f32)a / (vec_f32)b);
}

/* Is any lane of x[0..n) a NaN? Two vectors are asked at once: are they unordered? */
ALWAYS_INLINE int has_nan(wagma_dtype dtype, const vec *x, int n) {
#if VECTOR_BYTES == 64
    unsigned found = 0;
    for (int v = 0; v < n; v += 2) {
        const vec a = x[v], b = x[v + 1 < n ? v + 1 : v];
        found |= dtype == WAGMA_F64 ? _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_UNORD_Q)
                                    : _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q);
    }
    return found != 0;
#else
    vec found = {0};
    for (int v = 0; v < n; v += 2) {
        const vec a = x[v], b = x[v + 1 < n ? v + 1 : v];
        found |= dtype == WAGMA_F64 ? (vec)_mm256_cmp_pd((__m256d)a, (__m256d)b, _CMP_UNORD_Q)
                                    : (vec)_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_UNORD_Q);
    }
    return _mm256_movemask_epi8((__m256i)found) != 0;
#endif
}

/* Any NaN becomes the quiet one. */
ALWAYS_INLINE vec quiet(wagma_dtype dtype, vec x) {
    if (dtype == WAGMA_F64) {
        const vec_u64 nan = (vec_u64)((vec_f64)x != (vec_f64)x);
        return (vec)((nan & UINT64_C(0x7ff8000000000000)) | (~nan & (vec_u64)x));
    }
    const vec nan = (vec)((vec_f32)x != (vec_f32)x);
    return (nan & UINT32_C(0x7fc00000)) | (~nan & x);
}

/* Asks for `bytes` from p + STREAM_AHEAD on. */
ALWAYS_INLINE void look_ahead(const void *p, size_t bytes) {
    for (size_t line = 0; line < bytes; line += 64)
        __builtin_prefetch((const unsigned char *)p + STREAM_AHEAD + line);
}

/* Shape of a job. Where it pays, steps are compiled for constant shapes. */
typedef struct shape {
    int n, n_outs;
    int first;    /* input whose weight is not 0 */
    int plain;    /* all weights are 1 */
    int streamed; /* to an aligned output, by streaming stores */
    int divided;  /* the job's factor divides */
} shape;

ALWAYS_INLINE vec weight_of(wagma_dtype dtype, shape s, const reduce_job *job, int k) {
    return s.plain ? (vec){0} : broadcast(dtype, job->weights[k]); /* plain: not looked at */
}

/* Return the term that the input at x adds to the sum. */
ALWAYS_INLINE vec term(wagma_dtype dtype, shape s, vec weight, const unsigned char *x) {
    return s.plain ? load(dtype, x) : multiply(dtype, weight, load(dtype, x));
}

/* Writes sums to all outputs. */
ALWAYS_INLINE void put(wagma_dtype dtype, int steps, shape s, const reduce_job *job, size_t at,
                       const vec *total) {
    const size_t bytes = lanes(dtype) * lane_bytes(dtype);
    for (int k = 0; k < s.n_outs; k++) {
        unsigned char *out = (unsigned char *)job->outs[k] + at;
        for (int v = 0; v < steps; v++) {
            if (s.streamed)
                stream(out + (size_t)v * bytes, total[v]);
            else
                store(dtype, out + (size_t)v * bytes, total[v]);
        }
    }
}

/* `steps` vectors from byte `at` on. `ahead`: the job goes on beyond STREAM_AHEAD. Outputs are not
 * asked for: their lines would come without the right to write. */
ALWAYS_INLINE void step(wagma_dtype dtype, int steps, shape s, int ahead, const reduce_job *job,
                        vec factor, size_t at) {
    const size_t bytes = lanes(dtype) * lane_bytes(dtype);
    vec total[STEP];
    if (ahead) {
        for (int k = s.first; k < s.n; k++)
            if (s.plain || job->weights[k] != 0.0)
                look_ahead((const unsigned char *)job->in[k] + at, (size_t)steps * bytes);
    }
    const unsigned char *x = (const unsigned char *)job->in[s.first] + at;
    vec weight = weight_of(dtype, s, job, s.first);
    for (int v = 0; v < steps; v++)
        total[v] = term(dtype, s, weight, x + (size_t)v * bytes);
    for (int k = s.first + 1; k < s.n; k++) {
        if (!s.plain && job->weights[k] == 0.0)
            continue;
        x = (const unsigned char *)job->in[k] + at;
        weight = weight_of(dtype, s, job, k);
        for (int v = 0; v < steps; v++)
            total[v] = add(dtype, total[v], term(dtype, s, weight, x + (size_t)v * bytes));
    }
    if (!is_integer(dtype))
        for (int v = 0; v < steps; v++)
            total[v] =
                s.divided ? divide(dtype, total[v], factor) : multiply(dtype, total[v], factor);
    const int nan = !is_integer(dtype) && has_nan(dtype, total, steps);
    /* Ordinary stores do not wait for that, and are repeated in the rare case; streaming ones,
     * which are ordered weakly, are not. */
    if (!s.streamed || !nan)
        put(dtype, steps, s, job, at, total);
    if (__builtin_expect(nan, 0)) {
        for (int v = 0; v < steps; v++)
            total[v] = quiet(dtype, total[v]);
        put(dtype, steps, s, job, at, total);
    }
}

/* As many elements as make whole STEPs; returns where they end. */
ALWAYS_INLINE size_t steps_to(wagma_dtype dtype, shape s, const reduce_job *job, vec factor,
                              size_t count) {
    const size_t many = STEP * lanes(dtype), size = lane_bytes(dtype);
    /* what follows the job may be another rank's: it is not asked for */
    const size_t ahead = asks_ahead() ? STREAM_AHEAD / size : count;
    size_t done = 0;
    for (; done + many <= count; done += many)
        step(dtype, STEP, s, done + many + ahead <= count, job, factor, done * size);
    return done;
}

static int are_ones(const double *weights, int n) {
    int ones = 1;
    for (int k = 0; k < n; k++)
        ones &= weights[k] == 1.0;
    return ones;
}

/* Steps of a shape that is constant but for n, n_outs and first; what is not named is 0. */
#define STEPS(...) steps_to(dtype, (shape){__VA_ARGS__}, job, factor, count)

ALWAYS_INLINE size_t steps_of(wagma_dtype dtype, shape s, const reduce_job *job, vec factor,
                              size_t count) {
    if (s.streamed && s.divided)
        return STEPS(.n = s.n, .n_outs = 1, .first = s.first, .streamed = 1, .divided = 1);
    if (s.streamed && s.plain)
        return STEPS(.n = s.n, .n_outs = 1, .streamed = 1, .plain = 1);
    if (s.streamed)
        return STEPS(.n = s.n, .n_outs = 1, .first = s.first, .streamed = 1);
    if (s.divided)
        return STEPS(.n = s.n, .n_outs = s.n_outs, .first = s.first, .divided = 1);
    if (s.plain && s.n == 2 && s.n_outs == 1)
        return STEPS(.n = 2, .n_outs = 1, .plain = 1);
    if (s.plain && s.n == 2 && s.n_outs == 2)
        return STEPS(.n = 2, .n_outs = 2, .plain = 1);
    if (s.plain)
        return STEPS(.n = s.n, .n_outs = s.n_outs, .plain = 1);
    if (s.first == 0 && s.n == 2 && s.n_outs == 1)
        return STEPS(.n = 2, .n_outs = 1);
    return STEPS(.n = s.n, .n_outs = s.n_outs, .first = s.first);
}

ALWAYS_INLINE void typed_range(wagma_dtype dtype, const reduce_job *job, size_t count) {
    shape s = {.n = job->n,
               .n_outs = job->n_outs,
               .plain = are_ones(job->weights, job->n),
               .streamed = job->stream && lane_bytes(dtype) > 2 &&
                           (uintptr_t)job->outs[0] % VECTOR_BYTES == 0,
               .divided = !is_integer(dtype) && job->divide};
    while (s.first < s.n && job->weights[s.first] == 0.0)
        s.first++;
    size_t done = 0;
    if (s.first < s.n) {
        const size_t lane = lanes(dtype);
        const vec factor = broadcast(dtype, job->factor);
        done = steps_of(dtype, s, job, factor, count);
        if (s.streamed)
            _mm_sfence(); /* these stores are ordered before those that publish them */
        s.plain = s.streamed = 0;
        for (; done + lane <= count; done += lane)
            step(dtype, 1, s, 0, job, factor, done * lane_bytes(dtype));
    }
    reduce_scalar_range(job, done, count); /* the rest, or zeros */
}

static void range(const reduce_job *job, size_t count) {
    switch (job->dtype) {
    case WAGMA_F32: typed_range(WAGMA_F32, job, count); break;
    case WAGMA_F64: typed_range(WAGMA_F64, job, count); break;
    case WAGMA_F16: typed_range(WAGMA_F16, job, count); break;
    case WAGMA_BF16: typed_range(WAGMA_BF16, job, count); break;
    case WAGMA_I32: typed_range(WAGMA_I32, job, count); break;
    case WAGMA_I64: typed_range(WAGMA_I64, job, count); break;
    }
}

static void copy(void *out, const void *x, size_t bytes, int streamed) {
    unsigned char *to = out;
    const unsigned char *from = x;
    if (streamed && bytes >= VECTOR_BYTES) {
        const size_t head = -(uintptr_t)to % VECTOR_BYTES;
        const int ahead = asks_ahead();
        memcpy(to, from, head);
        to += head, from += head, bytes -= head;
        for (; bytes >= 4 * VECTOR_BYTES; bytes -= 4 * VECTOR_BYTES) {
            if (ahead)
                look_ahead(from, 4 * VECTOR_BYTES);
            for (int v = 0; v < 4; v++) {
                vec y;
                memcpy(&y, from + v * VECTOR_BYTES, sizeof y);
#if VECTOR_BYTES == 64
                _mm512_stream_si512((__m512i *)(to + v * VECTOR_BYTES), (__m512i)y);
#else
                _mm256_stream_si256((__m256i *)(to + v * VECTOR_BYTES), (__m256i)y);
#endif
            }
            to += 4 * VECTOR_BYTES, from += 4 * VECTOR_BYTES;
        }
        _mm_sfence(); /* these stores are ordered before those that publish the copy */
    }
    memcpy(to, from, bytes);
}

#include "kernels/reduce_entry.h"
