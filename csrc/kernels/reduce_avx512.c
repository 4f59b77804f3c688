/* 64-byte vectors: AVX-512 F, BW, DQ. Empty on other processors. */
#include "kernels/reduce_level.h"

#ifdef REDUCE_X86

#include <immintrin.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq"))),                 \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq")
#endif

#define VECTOR_BYTES 64
#define LEVEL_NAME "avx512"
#define LEVEL_TABLE reduce_avx512
#include "kernels/reduce_simd.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
