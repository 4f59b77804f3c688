/* The entry points of one level. Included at the end of its file, which defines
 *
 *     static void range(const reduce_job *job, size_t count)       elements 0..count-1
 *     static void copy(void *out, const void *x, size_t bytes, int streamed)   out != x
 *     LEVEL_NAME, LEVEL_TABLE                                      "avx2", reduce_avx2 */

static void sum_to_all(wagma_dtype dtype, void *const *outs, int n_outs, const void *const *in,
                       const double *weights, int n, double divisor, size_t count) {
    reduce_job job = {dtype, outs, n_outs, in, weights, n, 0, 0, 0};
    reduce_set_divisor(&job, divisor);
    range(&job, count);
}

static void sum(wagma_dtype dtype, void *out, const void *const *in, const double *weights, int n,
                double divisor, size_t count) {
    sum_to_all(dtype, &out, 1, in, weights, n, divisor, count);
}

static void streamed_sum(wagma_dtype dtype, void *out, const void *const *in, const double *weights,
                         int n, double divisor, size_t count) {
    reduce_job job = {dtype, &out, 1, in, weights, n, 0, 0, 1};
    reduce_set_divisor(&job, divisor);
    range(&job, count);
}

static void divided_copy(wagma_dtype dtype, void *out, const void *x, double divisor,
                         size_t count) {
    const double weight = 1.0;
    const size_t bytes = count * reduce_dtype_size(dtype);
    if (divisor != 1.0 && !reduce_dtype_is_integer(dtype))
        sum_to_all(dtype, &out, 1, &x, &weight, 1, divisor, count);
    else if (out != x && count > 0)
        copy(out, x, bytes, bytes >= REDUCE_STREAM_BYTES);
}

static void streamed_copy(wagma_dtype dtype, void *out, const void *x, double divisor,
                          size_t count) {
    const double weight = 1.0;
    if (divisor != 1.0 && !reduce_dtype_is_integer(dtype))
        streamed_sum(dtype, out, &x, &weight, 1, divisor, count);
    else if (count > 0)
        copy(out, x, count * reduce_dtype_size(dtype), 1);
}

const reduce_kernels LEVEL_TABLE = {LEVEL_NAME, sum,          streamed_sum,
                                    sum_to_all, divided_copy, streamed_copy};
