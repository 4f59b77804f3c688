/* What the files of the fake CUDA share. */
#ifndef WAGMA_TESTS_CUDA_FAKE_STATE_H
#define WAGMA_TESTS_CUDA_FAKE_STATE_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "cuda_fake/fake.h"

/* The context of GPU n is n + 1. */
enum { CONTEXTS_MAX = 8 };

/* Return 1 if the call is to fail. */
int fake_fails(const char *call);
/* Return an error of the runtime, and keep it for cudaGetLastError(). */
cudaError_t fake_error(cudaError_t error);
/* Return the current GPU; -1: the thread has no context. */
int fake_current(void);
extern struct cuda_fake fake;

/* Begin a call of the runtime which needs a context. */
#define FAKE_RUNTIME()                                                                             \
    do {                                                                                           \
        if (fake_fails(__func__))                                                                  \
            return fake_error(cudaErrorUnknown);                                                   \
        if (fake_current() < 0)                                                                    \
            return fake_error(cudaErrorDeviceUninitialized);                                       \
    } while (0)

void *fake_driver_function(const char *name);

#endif
