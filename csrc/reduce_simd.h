/* One vector level: included by reduce_avx2.c and reduce_avx512.c, which define VECTOR_BYTES and
 * select the target. Vectors are the compilers' own (vector_size), so that one text serves both;
 * intrinsics are used where those have no words: f16 conversion, streaming stores.
 *
 * The sum of STEP vectors stays in registers while the inputs are walked, hence each element is
 * read once and written once to each output: the memory is what limits it. */

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
    case WAGMA_I64:
        return 8;
    case WAGMA_F16:
    case WAGMA_BF16:
        return 2;
    default:
        return 4;
    }
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

ALWAYS_INLINE vec load(wagma_dtype dtype, const unsigned char *p) {
    if (lane_bytes(dtype) == 2) {
        half_vec h;
        memcpy(&h, p, sizeof h);
        return dtype == WAGMA_F16 ? f16_widen(h) : __builtin_convertvector(h, vec) << 16;
    }
    vec x;
    memcpy(&x, p, sizeof x);
    return x;
}

ALWAYS_INLINE void store(wagma_dtype dtype, unsigned char *p, vec x) {
    if (lane_bytes(dtype) == 2) {
        half_vec h = dtype == WAGMA_F16
                         ? f16_narrow(x)
                         : __builtin_convertvector((x + 0x7fff + (x >> 16 & 1)) >> 16, half_vec);
        memcpy(p, &h, sizeof h);
        return;
    }
    memcpy(p, &x, sizeof x);
}

/* Past the caches; p is aligned to a whole vector. 16-bit floats take the way of store(). */
ALWAYS_INLINE void stream(wagma_dtype dtype, unsigned char *p, vec x) {
    if (lane_bytes(dtype) == 2) {
        store(dtype, p, x);
        return;
    }
#if VECTOR_BYTES == 64
    _mm512_stream_si512((__m512i *)p, (__m512i)x);
#else
    _mm256_stream_si256((__m256i *)p, (__m256i)x);
#endif
}

ALWAYS_INLINE vec broadcast(wagma_dtype dtype, double weight) {
    switch (dtype) {
    case WAGMA_F64:
        return (vec)(weight - (vec_f64){0});
    case WAGMA_I32:
        return (uint32_t)reduce_integer_weight(weight) - (vec){0};
    case WAGMA_I64:
        return (vec)(reduce_integer_weight(weight) - (vec_u64){0});
    default:
        return (vec)((float)weight - (vec_f32){0});
    }
}

ALWAYS_INLINE vec multiply(wagma_dtype dtype, vec a, vec b) {
    switch (dtype) {
    case WAGMA_F64:
        return (vec)((vec_f64)a * (vec_f64)b);
    case WAGMA_I32:
        return a * b;
    case WAGMA_I64:
        return (vec)((vec_u64)a * (vec_u64)b);
    default:
        return (vec)((vec_f32)a * (vec_f32)b);
    }
}

ALWAYS_INLINE vec add(wagma_dtype dtype, vec a, vec b) {
    switch (dtype) {
    case WAGMA_F64:
        return (vec)((vec_f64)a + (vec_f64)b);
    case WAGMA_I32:
        return a + b;
    case WAGMA_I64:
        return (vec)((vec_u64)a + (vec_u64)b);
    default:
        return (vec)((vec_f32)a + (vec_f32)b);
    }
}

/* Divides; any NaN becomes the quiet one. */
ALWAYS_INLINE vec finish(wagma_dtype dtype, vec x, vec factor, int divide) {
    switch (dtype) {
    case WAGMA_I32:
    case WAGMA_I64:
        return x;
    case WAGMA_F64: {
        vec_f64 y = divide ? (vec_f64)x / (vec_f64)factor : (vec_f64)x * (vec_f64)factor;
        vec_u64 nan = (vec_u64)(y != y);
        return (vec)((nan & UINT64_C(0x7ff8000000000000)) | (~nan & (vec_u64)y));
    }
    default: {
        vec_f32 y = divide ? (vec_f32)x / (vec_f32)factor : (vec_f32)x * (vec_f32)factor;
        vec nan = (vec)(y != y);
        return (nan & UINT32_C(0x7fc00000)) | (~nan & (vec)y);
    }
    }
}

/* Asks for `bytes` from p + STREAM_AHEAD on. */
ALWAYS_INLINE void look_ahead(const void *p, size_t bytes) {
    for (size_t line = 0; line < bytes; line += 64)
        __builtin_prefetch((const unsigned char *)p + STREAM_AHEAD + line);
}

/* `steps` vectors from byte `at` on. n and n_outs repeat the job's, as constants where it pays;
 * `streamed`: by streaming stores, to an aligned output. `ahead`: the job goes on beyond
 * STREAM_AHEAD. Outputs are not asked for: their lines would come without the right to write. */
ALWAYS_INLINE void step(wagma_dtype dtype, int steps, int n, int n_outs, int first, int streamed,
                        int ahead, const reduce_job *job, vec factor, size_t at) {
    const size_t bytes = lanes(dtype) * lane_bytes(dtype);
    vec total[STEP];
    if (ahead) {
        for (int k = first; k < n; k++)
            if (job->weights[k] != 0.0)
                look_ahead((const unsigned char *)job->in[k] + at, (size_t)steps * bytes);
    }
    const unsigned char *x = (const unsigned char *)job->in[first] + at;
    vec weight = broadcast(dtype, job->weights[first]);
    for (int v = 0; v < steps; v++)
        total[v] = multiply(dtype, weight, load(dtype, x + (size_t)v * bytes));
    for (int k = first + 1; k < n; k++) {
        if (job->weights[k] == 0.0)
            continue;
        x = (const unsigned char *)job->in[k] + at;
        weight = broadcast(dtype, job->weights[k]);
        for (int v = 0; v < steps; v++)
            total[v] =
                add(dtype, total[v], multiply(dtype, weight, load(dtype, x + (size_t)v * bytes)));
    }
    if (job->divide)
        for (int v = 0; v < steps; v++)
            total[v] = finish(dtype, total[v], factor, 1);
    else
        for (int v = 0; v < steps; v++)
            total[v] = finish(dtype, total[v], factor, 0);
    for (int k = 0; k < n_outs; k++) {
        unsigned char *out = (unsigned char *)job->outs[k] + at;
        if (streamed) {
            for (int v = 0; v < steps; v++)
                stream(dtype, out + (size_t)v * bytes, total[v]);
            continue;
        }
        for (int v = 0; v < steps; v++)
            store(dtype, out + (size_t)v * bytes, total[v]);
    }
}

/* Elements from `done` on, as many as make whole STEPs; returns where they end. */
ALWAYS_INLINE size_t steps_to(wagma_dtype dtype, int n, int n_outs, int first, int streamed,
                              const reduce_job *job, vec factor, size_t done, size_t count) {
    const size_t many = STEP * lanes(dtype), size = lane_bytes(dtype);
    /* what follows the job may be another rank's: it is not asked for */
    const size_t ahead = asks_ahead() ? STREAM_AHEAD / size : count;
    for (; done + many + ahead <= count; done += many)
        step(dtype, STEP, n, n_outs, first, streamed, 1, job, factor, done * size);
    for (; done + many <= count; done += many)
        step(dtype, STEP, n, n_outs, first, streamed, 0, job, factor, done * size);
    return done;
}

ALWAYS_INLINE void typed_range(wagma_dtype dtype, const reduce_job *job, size_t count) {
    const int n = job->n;
    int first = 0;
    while (first < n && job->weights[first] == 0.0)
        first++;
    size_t done = 0;
    if (first < n) {
        const size_t lane = lanes(dtype);
        vec factor = broadcast(dtype, job->factor);
        if (job->stream && (uintptr_t)job->outs[0] % VECTOR_BYTES == 0) {
            done = steps_to(dtype, n, 1, first, 1, job, factor, 0, count);
            _mm_sfence(); /* these stores are ordered before those that publish them */
        } else if (n == 2 && first == 0 && job->n_outs == 1) {
            done = steps_to(dtype, 2, 1, 0, 0, job, factor, 0, count);
        } else {
            done = steps_to(dtype, n, job->n_outs, first, 0, job, factor, 0, count);
        }
        for (; done + lane <= count; done += lane)
            step(dtype, 1, n, job->n_outs, first, 0, 0, job, factor, done * lane_bytes(dtype));
    }
    reduce_scalar_range(job, done, count); /* the rest, or zeros */
}

static void range(const reduce_job *job, size_t count) {
    switch (job->dtype) {
    case WAGMA_F32:
        typed_range(WAGMA_F32, job, count);
        break;
    case WAGMA_F64:
        typed_range(WAGMA_F64, job, count);
        break;
    case WAGMA_F16:
        typed_range(WAGMA_F16, job, count);
        break;
    case WAGMA_BF16:
        typed_range(WAGMA_BF16, job, count);
        break;
    case WAGMA_I32:
        typed_range(WAGMA_I32, job, count);
        break;
    case WAGMA_I64:
        typed_range(WAGMA_I64, job, count);
        break;
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

#include "reduce_entry.h"
