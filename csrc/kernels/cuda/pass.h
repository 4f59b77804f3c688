/* One launch of the CUDA kernels: up to 64 inputs of a sum. The struct is a kernel's only
 * parameter.
 *
 * A sum of more inputs takes several passes: all but the last write sums that are not divided yet,
 * in the accumulation type, and all but the first continue from those of the pass before.
 *
 * Plain C without includes: NVRTC compiles this too. */
#ifndef WAGMA_KERNELS_CUDA_PASS_H
#define WAGMA_KERNELS_CUDA_PASS_H

enum { REDUCE_PASS_INPUTS = 64, REDUCE_BLOCK_THREADS = 256 };
enum { REDUCE_PACK_BYTES = 16 }; /* of the widest access, of a thread at a time */
enum { REDUCE_PASS_LOADS = 2 };  /* inputs that a thread loads before it adds the first of them */

/* A number in the accumulation type: `whole` of integers, modulo 2^64. */
typedef union reduce_number {
    double f64;
    float f32;
    unsigned long long whole;
} reduce_number;

typedef struct reduce_pass {
    void *out;          /* elements if `last`, otherwise sums; may equal any input or `before` */
    const void *before; /* sums of the passes before; NULL: this is the first pass */
    const void *in[REDUCE_PASS_INPUTS];
    reduce_number weights[REDUCE_PASS_INPUTS];
    reduce_number factor; /* the divisor, or its inverse where that is exact; not for integers */
    unsigned long long count;
    int n;      /* inputs of this pass; 0: zeros */
    int divide; /* 1: divide by factor, 0: multiply with it */
    int last;
} reduce_pass;

#endif
