/* Sums as passes: what each launch of a kernel reads, and where the sum so far is kept. */
#include "kernels/cuda/reduce_cuda.h"

#include "kernels/reduce_level.h"

/* Blocks take turns on the multiprocessors. So many do that evenly on every GPU, and are still few
 * enough to begin quickly. */
enum { MOST_BLOCKS = 16384 };

size_t reduce_cuda_scratch(wagma_dtype dtype, int n, size_t count) {
    const size_t size = reduce_dtype_size(dtype);
    return n > REDUCE_PASS_INPUTS ? count * (size == 2 ? sizeof(float) : size) : 0;
}

/* Convert to the accumulation type. */
static reduce_number to_number(wagma_dtype dtype, double x) {
    if (reduce_dtype_is_integer(dtype))
        return (reduce_number){.whole = reduce_integer_weight(x)};
    return dtype == WAGMA_F64 ? (reduce_number){.f64 = x} : (reduce_number){.f32 = (float)x};
}

static void set_divisor(reduce_pass *pass, wagma_dtype dtype, double divisor) {
    reduce_job job;
    reduce_set_divisor(&job, divisor);
    pass->factor = to_number(dtype, job.factor);
    pass->divide = job.divide;
}

/* A grid has a thread for each pack, as far as there are so many. */
static unsigned blocks_for(wagma_dtype dtype, size_t count) {
    const size_t elements = REDUCE_BLOCK_THREADS * REDUCE_PACK_BYTES / reduce_dtype_size(dtype);
    const size_t blocks = (count - 1) / elements + 1;
    return blocks < MOST_BLOCKS ? (unsigned)blocks : MOST_BLOCKS;
}

int reduce_cuda_sum(wagma_dtype dtype, void *out, const void *const *in, const double *weights,
                    int n, double divisor, size_t count, void *scratch, reduce_cuda_launch *launch,
                    void *context) {
    reduce_pass pass = {.count = count};
    int k = 0, status = 0;
    set_divisor(&pass, dtype, divisor);
    while (count > 0 && !pass.last && status == 0) {
        pass.n = 0;
        for (; k < n && (weights[k] == 0.0 || pass.n < REDUCE_PASS_INPUTS); k++) {
            if (weights[k] == 0.0)
                continue;
            pass.in[pass.n] = in[k];
            pass.weights[pass.n++] = to_number(dtype, weights[k]);
        }
        if (pass.n == 0) /* no input at all: 0, whatever the divisor */
            set_divisor(&pass, dtype, 1);
        pass.last = k == n;
        pass.out = pass.last ? out : scratch;
        status = launch(context, dtype, &pass, blocks_for(dtype, count));
        pass.before = scratch;
    }
    return status;
}
