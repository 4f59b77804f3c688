/* What the files of the fake CUDA share. */
#ifndef WAGMA_TESTS_CUDA_FAKE_STATE_H
#define WAGMA_TESTS_CUDA_FAKE_STATE_H

#include "cuda_fake/fake.h"
#include "device/cuda/driver.h"

#define FAKE_DECLARE(name, parameters) WAGMA_API CUresult name parameters;
DRIVER_CALLS(FAKE_DECLARE)
#undef FAKE_DECLARE

/* The context of GPU n is n + 1. */
enum { CONTEXTS_MAX = 8 };

/* What machine code begins with, before the number of its architecture. */
#define FAKE_CODE "fake code for sm_"

/* Return 1 if the call is to fail. */
WAGMA_API int fake_fails(const char *call);
/* Return the current GPU; -1: the thread has no context. */
int fake_current(void);
extern struct cuda_fake fake;

/* Begin a call of the driver, which may need a context. */
#define FAKE_CALL(needs_context)                                                                   \
    do {                                                                                           \
        if (fake_fails(__func__))                                                                  \
            return CUDA_ERROR_UNKNOWN;                                                             \
        if ((needs_context) && fake_current() < 0)                                                 \
            return CUDA_ERROR_INVALID_CONTEXT;                                                     \
    } while (0)

#endif
