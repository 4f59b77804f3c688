/* Elements of arrays of any type, as doubles. */
#ifndef WAGMA_TESTS_ELEMENT_H
#define WAGMA_TESTS_ELEMENT_H

#include <stddef.h>

#include "include/wagma.h"

/* Element i of an array; exact where the type has the number. */
void element_put(wagma_dtype dtype, void *array, size_t i, double value);
double element_get(wagma_dtype dtype, const void *array, size_t i);

#endif
