/* Weighted sums of contributions and of partial sums.
 *
 * Partial sums of 16-bit floats are kept and sent as f32, so that an element is rounded to 16 bits
 * once, whatever the number of phases; those of other types have the type of the data. */
#ifndef WAGMA_MESSAGES_EXCHANGE_SUM_H
#define WAGMA_MESSAGES_EXCHANGE_SUM_H

#include "kernels/reduce.h"

/* Form of the elements of the inputs or of the output. */
typedef enum sum_form {
    SUM_DATA,    /* contributions, or the final result */
    SUM_PARTIAL, /* partial sums */
} sum_form;

/* Bytes of an element. */
size_t sum_size(wagma_dtype dtype, sum_form form);

/* out[i] = (sum_k weights[k] * in[k][i]) / divisor, k = 0..n-1 in this order; as in reduce.h. `out`
 * may equal inputs of the same form. A weight is not 0. */
void sum_range(const reduce_kernels *kernels, wagma_dtype dtype, sum_form from, sum_form to,
               void *out, const void *const *in, const double *weights, int n, double divisor,
               size_t count);

#endif
