/* The reference: plain loops over blocks, the only level on processors without AVX2. The compiler
 * turns them into the vector instructions that the platform always has. */
#include "kernels/reduce_level.h"

#include <math.h>
#include <string.h>

#include "kernels/reduce_half.h"

enum { BLOCK = 512 }; /* elements: sums stay in the first-level cache */

static const float quiet_nan_f32 = NAN;
static const double quiet_nan_f64 = NAN;

/* Elements may lie at any address. */
#define DEFINE_ACCESS(NAME, T)                                                                     \
    static inline T load_##NAME(const unsigned char *p, size_t i) {                                \
        T x;                                                                                       \
        memcpy(&x, p + i * sizeof x, sizeof x);                                                    \
        return x;                                                                                  \
    }                                                                                              \
    static inline void store_##NAME(unsigned char *p, size_t i, T x) {                             \
        memcpy(p + i * sizeof x, &x, sizeof x);                                                    \
    }
DEFINE_ACCESS(f32, float)
DEFINE_ACCESS(f64, double)
DEFINE_ACCESS(u16, uint16_t)
DEFINE_ACCESS(u32, uint32_t)
DEFINE_ACCESS(u64, uint64_t)

static inline float load_f16(const unsigned char *p, size_t i) {
    return f16_to_f32(load_u16(p, i));
}
static inline float load_bf16(const unsigned char *p, size_t i) {
    return bf16_to_f32(load_u16(p, i));
}
static inline void store_f16(unsigned char *p, size_t i, float x) {
    store_u16(p, i, f32_to_f16(x));
}
static inline void store_bf16(unsigned char *p, size_t i, float x) {
    store_u16(p, i, f32_to_bf16(x));
}

static inline float finish_f32(float x, float factor, int divide) {
    x = divide ? x / factor : x * factor;
    return x == x ? x : quiet_nan_f32;
}
static inline double finish_f64(double x, double factor, int divide) {
    x = divide ? x / factor : x * factor;
    return x == x ? x : quiet_nan_f64;
}
static inline uint32_t finish_u32(uint32_t x, uint32_t factor, int divide) {
    (void)factor, (void)divide;
    return x;
}
static inline uint64_t finish_u64(uint64_t x, uint64_t factor, int divide) {
    (void)factor, (void)divide;
    return x;
}

/* Sums in ACC (unsigned integers wrap around) of elements that are SIZE bytes in memory. */
#define DEFINE_RANGE(NAME, SIZE, ACC, FINISH, WEIGHT)                                              \
    static void range_##NAME(const reduce_job *job, size_t begin, size_t end) {                    \
        ACC factor = (ACC)job->factor;                                                             \
        for (size_t at = begin; at < end; at += BLOCK) {                                           \
            size_t count = end - at < BLOCK ? end - at : BLOCK;                                    \
            ACC total[BLOCK];                                                                      \
            int empty = 1;                                                                         \
            for (int k = 0; k < job->n; k++) {                                                     \
                if (job->weights[k] == 0.0)                                                        \
                    continue;                                                                      \
                ACC weight = (ACC)WEIGHT(job->weights[k]);                                         \
                const unsigned char *x = (const unsigned char *)job->in[k] + at * (SIZE);          \
                if (empty) {                                                                       \
                    for (size_t i = 0; i < count; i++)                                             \
                        total[i] = weight * load_##NAME(x, i);                                     \
                } else {                                                                           \
                    for (size_t i = 0; i < count; i++)                                             \
                        total[i] += weight * load_##NAME(x, i);                                    \
                }                                                                                  \
                empty = 0;                                                                         \
            }                                                                                      \
            for (size_t i = 0; i < count; i++)                                                     \
                total[i] = empty ? 0 : FINISH(total[i], factor, job->divide);                      \
            for (int k = 0; k < job->n_outs; k++) {                                                \
                unsigned char *out = (unsigned char *)job->outs[k] + at * (SIZE);                  \
                for (size_t i = 0; i < count; i++)                                                 \
                    store_##NAME(out, i, total[i]);                                                \
            }                                                                                      \
        }                                                                                          \
    }
DEFINE_RANGE(f32, 4, float, finish_f32, )
DEFINE_RANGE(f64, 8, double, finish_f64, )
DEFINE_RANGE(f16, 2, float, finish_f32, )
DEFINE_RANGE(bf16, 2, float, finish_f32, )
DEFINE_RANGE(u32, 4, uint32_t, finish_u32, reduce_integer_weight)
DEFINE_RANGE(u64, 8, uint64_t, finish_u64, reduce_integer_weight)

void reduce_scalar_range(const reduce_job *job, size_t begin, size_t end) {
    switch (job->dtype) {
    case WAGMA_F32: range_f32(job, begin, end); break;
    case WAGMA_F64: range_f64(job, begin, end); break;
    case WAGMA_F16: range_f16(job, begin, end); break;
    case WAGMA_BF16: range_bf16(job, begin, end); break;
    case WAGMA_I32: range_u32(job, begin, end); break;
    case WAGMA_I64: range_u64(job, begin, end); break;
    }
}

static void range(const reduce_job *job, size_t count) {
    reduce_scalar_range(job, 0, count);
}

static void copy(void *out, const void *x, size_t bytes, int streamed) {
    (void)streamed;
    memcpy(out, x, bytes);
}

#define LEVEL_NAME "scalar"
#define LEVEL_TABLE reduce_scalar
#include "kernels/reduce_entry.h"
