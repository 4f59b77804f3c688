/* 32-byte vectors: AVX2 and F16C. Empty on other processors. */
#include "kernels/reduce_level.h"

#ifdef REDUCE_X86

#include <immintrin.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif

#define VECTOR_BYTES 32
#define LEVEL_NAME "avx2"
#define LEVEL_TABLE reduce_avx2
#include "kernels/reduce_simd.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
