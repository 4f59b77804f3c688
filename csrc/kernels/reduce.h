/* CPU kernels: weighted n-ary sums.
 *
 *   out[i] = (sum_k weights[k] * in[k][i]) / divisor      k = 0..n-1, in this order
 *
 * Results are bit-identical for the same inputs on every rank, at every SIMD level and for every
 * split into calls: there is no reassociation over k and no fused multiply-add. 16-bit floats are
 * accumulated in f32 and rounded once, to nearest even. Inputs of weight 0 are not read. Pure;
 * `out` may equal any of the inputs; any alignment, any count. */
#ifndef WAGMA_KERNELS_REDUCE_H
#define WAGMA_KERNELS_REDUCE_H

#include <stddef.h>
#include <stdint.h>

#include "include/wagma.h"

size_t reduce_dtype_size(wagma_dtype dtype); /* bytes per element; 0: unknown dtype */
const char *reduce_dtype_name(wagma_dtype dtype);
int reduce_dtype_is_integer(wagma_dtype dtype);

/* Bytes from which arrays are copied, and shared results written, by streaming stores: such arrays
 * do not fit into the caches from which another rank would read them. Another rank reads smaller
 * arrays several times faster from a shared cache. */
#define REDUCE_STREAM_BYTES ((size_t)8 << 20)

/* One SIMD level. Weights are doubles, converted once per call to the accumulation type (f64 for
 * f64, f32 for the other floats; integers: int64, weights are whole and the divisor is 1). */
typedef struct reduce_kernels {
    const char *name; /* "scalar", "avx2", "avx512" */
    /* out = sum / divisor */
    void (*sum)(wagma_dtype dtype, void *out, const void *const *in, const double *weights, int n,
                double divisor, size_t count);
    /* the same with stores that bypass the caches, where the level has them, if out is aligned to
     * 64 bytes and its elements have more than 16 bits; out equals no input */
    void (*streamed_sum)(wagma_dtype dtype, void *out, const void *const *in, const double *weights,
                         int n, double divisor, size_t count);
    /* every outs[k] = sum / divisor: the in-place form, outs[k] may equal in[k] */
    void (*sum_to_all)(wagma_dtype dtype, void *const *outs, int n_outs, const void *const *in,
                       const double *weights, int n, double divisor, size_t count);
    /* out = x / divisor; divisor 1 is a copy (which bypasses the caches when it is large) */
    void (*divided_copy)(wagma_dtype dtype, void *out, const void *x, double divisor, size_t count);
    /* the same with stores that bypass the caches, with a divisor as streamed_sum; out does not
     * equal x */
    void (*streamed_copy)(wagma_dtype dtype, void *out, const void *x, double divisor,
                          size_t count);
} reduce_kernels;

/* Return the best level of this CPU; WAGMA_SIMD=scalar|avx2|avx512 overrides. Chosen once,
 * thread-safe. */
const reduce_kernels *reduce_best(void);
/* Return the level with this name; NULL if this CPU or build has no such level. "scalar" is the
 * reference. */
const reduce_kernels *reduce_by_name(const char *name);

#endif
