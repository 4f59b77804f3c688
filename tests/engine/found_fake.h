/* The fake CUDA of a test, where it has one (place.h). */
#ifndef WAGMA_TESTS_FOUND_FAKE_H
#define WAGMA_TESTS_FOUND_FAKE_H

#include "cuda_fake/fake.h"

extern struct cuda_fake *fake; /* NULL: true GPUs */

/* Finds it, after places_use_cuda(). */
void find_fake(void);
/* Expects that all objects of the fake are freed, and no context is on this thread's stack. */
void expect_nothing_left(void);

#endif
