/* The kernels: weighted sums as in kernels/reduce.h, in CUDA C++.
 *
 * Two compilers take this file:
 *
 *   NVRTC   at run time, for the GPU that is there (device/cuda/nvrtc.c). text.c has this text and
 *           that of pass.h; no other header is needed.
 *   g++     The tests' stand-ins (tests/engine/cuda_on_host.h) define what CUDA has and C++ has
 *           not, and run the kernels thread by thread.
 *
 * Bits: the order of the operations is that of the CPU kernels, and each operation is rounded by
 * itself. So -fmad=false is needed, and the defaults -ftz=false, -prec-div=true. Every NaN becomes
 * the quiet NaN of the CPU kernels.
 *
 * Memory: each input is read once, out is written once. A thread takes packs of 16 bytes, at a
 * distance of the grid's size. The packs begin at a boundary of the first input; an array that lies
 * otherwise is read, or written, element by element. A thread reads all inputs of an element before
 * it writes the element, so `out` may equal any of them. */
#ifndef WAGMA_KERNELS_CUDA_SUM_CUH
#define WAGMA_KERNELS_CUDA_SUM_CUH

#include "kernels/cuda/pass.h"

#ifdef __CUDACC__
static __device__ float f16_to_f32(unsigned short h) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}

static __device__ unsigned short f32_to_f16(float x) {
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
#endif

/* ---- element types --------------------------------------------------------------------------- */

/* Each has the type in memory, the type of its sums, and the conversions between them. */

template <class Stored, class Sum> struct element {
    typedef Stored stored;
    typedef Sum sum;
    static __device__ Sum widen(Stored x) { return x; }
    static __device__ Stored narrow(Sum x) { return x; }
};

/* narrow() never sees a NaN that is not quiet. */
template <class Stored> struct element_over_f32 : element<Stored, float> {
    static __device__ float number(reduce_number x) { return x.f32; }
    static __device__ float finish(float x, float factor, int divide) {
        x = divide ? x / factor : x * factor;
        return x == x ? x : __uint_as_float(0x7fc00000);
    }
};

struct element_f32 : element_over_f32<float> {};

struct element_f16 : element_over_f32<unsigned short> {
    static __device__ float widen(unsigned short h) { return f16_to_f32(h); }
    static __device__ unsigned short narrow(float x) { return x == x ? f32_to_f16(x) : 0x7e00; }
};

struct element_bf16 : element_over_f32<unsigned short> {
    static __device__ float widen(unsigned short h) { return __uint_as_float((unsigned)h << 16); }
    static __device__ unsigned short narrow(float x) {
        const unsigned u = __float_as_uint(x);
        return (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
};

struct element_f64 : element<double, double> {
    static __device__ double number(reduce_number x) { return x.f64; }
    static __device__ double finish(double x, double factor, int divide) {
        x = divide ? x / factor : x * factor;
        return x == x ? x : __longlong_as_double(0x7ff8000000000000);
    }
};

/* Unsigned: sums wrap around. */
template <class Word> struct element_whole : element<Word, Word> {
    static __device__ Word number(reduce_number x) { return (Word)x.whole; }
    static __device__ Word finish(Word x, Word, int) { return x; }
};
typedef element_whole<unsigned> element_i32;
typedef element_whole<unsigned long long> element_i64;

/* ---- memory ---------------------------------------------------------------------------------- */

/* N numbers, which are loaded and stored at once where they are aligned. */
template <class T, int N>
struct alignas(N * sizeof(T) < REDUCE_PACK_BYTES ? N * sizeof(T) : (size_t)REDUCE_PACK_BYTES) pack {
    T x[N];
};

template <class T> static __device__ bool is_aligned(const void *p) {
    return (size_t)p % alignof(T) == 0;
}

/* Elements i..i+N-1 of an array at a boundary. */
template <class T, int N> static __device__ pack<T, N> load_aligned(const void *array, size_t i) {
    return *(const pack<T, N> *)((const char *)array + i * sizeof(T));
}

/* Elements i..i+N-1 of an array at any address. */
template <class T, int N> static __device__ pack<T, N> load(const void *array, size_t i) {
    const char *p = (const char *)array + i * sizeof(T);
    if (is_aligned<pack<T, N>>(p))
        return load_aligned<T, N>(array, i);
    pack<T, N> y;
    if (is_aligned<T>(p))
        for (int j = 0; j < N; j++)
            y.x[j] = ((const T *)p)[j];
    else
        memcpy(&y, p, sizeof y);
    return y;
}

template <class T, int N> static __device__ void store(void *array, size_t i, const pack<T, N> &y) {
    char *p = (char *)array + i * sizeof(T);
    if (is_aligned<pack<T, N>>(p))
        *(pack<T, N> *)p = y;
    else if (is_aligned<T>(p))
        for (int j = 0; j < N; j++)
            ((T *)p)[j] = y.x[j];
    else
        memcpy(p, &y, sizeof y);
}

/* ---- the sum --------------------------------------------------------------------------------- */

/* Elements i..i+N-1 of the pass. The first term begins the sum: 0 + -0 would not be -0. Loads of
 * several inputs are under way together, which sums of few inputs need to keep the memory busy. */
template <class E, int N, bool ALIGNED>
static __device__ void sum_at(const reduce_pass &pass, size_t i) {
    pack<typename E::sum, N> total = {};
    if (pass.before)
        total = load<typename E::sum, N>(pass.before, i);
    for (int first = 0; first < pass.n; first += REDUCE_PASS_LOADS) {
        pack<typename E::stored, N> x[REDUCE_PASS_LOADS];
        for (int k = 0; k < REDUCE_PASS_LOADS; k++)
            if (first + k < pass.n)
                x[k] = ALIGNED ? load_aligned<typename E::stored, N>(pass.in[first + k], i)
                               : load<typename E::stored, N>(pass.in[first + k], i);
        for (int k = 0; k < REDUCE_PASS_LOADS; k++)
            if (first + k < pass.n) {
                const typename E::sum weight = E::number(pass.weights[first + k]);
                for (int j = 0; j < N; j++) {
                    const typename E::sum y = weight * E::widen(x[k].x[j]);
                    total.x[j] = first + k == 0 && !pass.before ? y : total.x[j] + y;
                }
            }
    }
    if (!pass.last) {
        store(pass.out, i, total);
        return;
    }
    pack<typename E::stored, N> y;
    for (int j = 0; j < N; j++)
        y.x[j] = E::narrow(E::finish(total.x[j], E::number(pass.factor), pass.divide));
    store(pass.out, i, y);
}

/* Whether each input lies at a boundary of packs, so many bytes on. */
static __device__ bool are_aligned(const reduce_pass &pass, size_t offset) {
    size_t odd = 0;
    for (int k = 0; k < pass.n; k++)
        odd |= (size_t)pass.in[k] + offset;
    return odd % REDUCE_PACK_BYTES == 0;
}

/* A pass, by a grid of any size. */
template <class E> static __device__ void weighted_sum(const reduce_pass &pass) {
    const int N = REDUCE_PACK_BYTES / sizeof(typename E::stored);
    const size_t thread = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    const size_t threads = (size_t)gridDim.x * blockDim.x;
    const size_t address = (size_t)(pass.n > 0 ? pass.in[0] : pass.out);
    const size_t to_boundary = -address % REDUCE_PACK_BYTES / sizeof(typename E::stored);
    const size_t head = to_boundary < pass.count ? to_boundary : pass.count;
    const size_t packs = (pass.count - head) / N;
    if (are_aligned(pass, head * sizeof(typename E::stored)))
        for (size_t p = thread; p < packs; p += threads)
            sum_at<E, N, true>(pass, head + p * N);
    else
        for (size_t p = thread; p < packs; p += threads)
            sum_at<E, N, false>(pass, head + p * N);
    /* the head and the tail */
    for (size_t i = thread; i < pass.count - packs * N; i += threads)
        sum_at<E, 1, false>(pass, i < head ? i : i + packs * N);
}

/* Five blocks at once keep the memory busy. A multiprocessor of 7.5 holds only four. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define BOUNDS __launch_bounds__(REDUCE_BLOCK_THREADS, 5)
#else
#define BOUNDS
#endif
#define KERNEL(dtype, element)                                                                     \
    extern "C" __global__ void BOUNDS weighted_sum_##dtype(const reduce_pass pass) {               \
        weighted_sum<element>(pass);                                                               \
    }
KERNEL(float32, element_f32)
KERNEL(float64, element_f64)
KERNEL(float16, element_f16)
KERNEL(bfloat16, element_bf16)
KERNEL(int32, element_i32)
KERNEL(int64, element_i64)
#undef KERNEL
#undef BOUNDS

#endif
