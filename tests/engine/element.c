/* See element.h. */
#include "element.h"

#include <stdint.h>

#include "half_reference.h"

void element_put(wagma_dtype dtype, void *array, size_t i, double value) {
    switch (dtype) {
    case WAGMA_F32: ((float *)array)[i] = (float)value; break;
    case WAGMA_F64: ((double *)array)[i] = value; break;
    case WAGMA_I32: ((int32_t *)array)[i] = (int32_t)value; break;
    case WAGMA_I64: ((int64_t *)array)[i] = (int64_t)value; break;
    default:
        ((uint16_t *)array)[i] = half_encode(dtype == WAGMA_F16 ? format_f16 : format_bf16, value);
        break;
    }
}

double element_get(wagma_dtype dtype, const void *array, size_t i) {
    switch (dtype) {
    case WAGMA_F32: return (double)((const float *)array)[i];
    case WAGMA_F64: return ((const double *)array)[i];
    case WAGMA_I32: return ((const int32_t *)array)[i];
    case WAGMA_I64: return (double)((const int64_t *)array)[i];
    default:
        return half_decode(dtype == WAGMA_F16 ? format_f16 : format_bf16,
                           ((const uint16_t *)array)[i]);
    }
}
