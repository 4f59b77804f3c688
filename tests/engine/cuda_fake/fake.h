/* A CUDA driver and an NVRTC in host memory, which the engine loads in a program that has loaded
 * them before, because they have the names of the true ones. */
#ifndef WAGMA_TESTS_CUDA_FAKE_FAKE_H
#define WAGMA_TESTS_CUDA_FAKE_FAKE_H

#include "include/wagma.h"

/* Where they are, for this program: of which flavour. The last number of an NVRTC's name is the
 * major version that it says. */
#ifdef __SANITIZE_ADDRESS__
#define FAKE_CUDA "build/asan/fake/"
#elif defined(__SANITIZE_THREAD__)
#define FAKE_CUDA "build/tsan/fake/"
#else
#define FAKE_CUDA "build/c/fake/"
#endif

/* `fails` counts the calls of all threads, but for those that end something, have words for errors
 * or ask for versions, as they cannot fail. */
struct cuda_fake {
    int gpus;                   /* 0: none is visible */
    int driver;                 /* its version, as 13000 */
    int newest;                 /* architecture that NVRTC knows */
    int arch;                   /* of the GPUs */
    int descriptors;            /* 0: its memory has none */
    int peers;                  /* 0: no GPU reaches another one's memory */
    int reversed;               /* 1: this process counts the GPUs the other way round */
    int first;                  /* this process does not see so many GPUs of the machine */
    const char *breaks;         /* from this call on all fail, also those that end something */
    _Atomic int fails;          /* which call fails from now on: 1 the next; 0: none */
    const char *_Atomic failed; /* its name */
    _Atomic int is_broken;
    _Atomic int left;     /* objects that are not freed */
    _Atomic int compiled; /* programs */
};

/* Return it, for a test that has the library open. */
WAGMA_API struct cuda_fake *cuda_fake(void);
/* Return how many contexts are on this thread's stack. */
WAGMA_API int cuda_fake_contexts(void);

#endif
