/* A CUDA runtime and driver in host memory, which csrc/device/cuda/ is linked with for tests: see
 * fake.c. */
#ifndef WAGMA_TESTS_CUDA_FAKE_FAKE_H
#define WAGMA_TESTS_CUDA_FAKE_FAKE_H

#include "include/wagma.h"

/* Calls of the runtime and the driver are counted, in all threads; those that end something, look
 * at errors or ask for versions are not, as they cannot fail. */
struct cuda_fake {
    int gpus;                   /* 0: none is visible */
    int driver;                 /* its version, as 13000; 0: none */
    int descriptors;            /* 0: its memory has none */
    int peers;                  /* 0: no GPU reaches another one's memory */
    _Atomic int calls, fails;   /* which call fails from now on: 1 the next; 0: none */
    const char *_Atomic failed; /* its name */
    _Atomic int left;           /* objects that are not freed */
};

/* Return it, for a test that has the library open. */
WAGMA_API struct cuda_fake *cuda_fake(void);
/* Return this thread's last error, and how many contexts are on its stack. */
WAGMA_API int cuda_fake_last_error(void);
WAGMA_API int cuda_fake_contexts(void);

#endif
