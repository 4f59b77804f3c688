/* Trials of ranks that are threads, over CUDA (place.h): test_engine_fuzz_threads.c. */
/* needs a C++ compiler */
#include "place.h"

__attribute__((constructor)) static void on_cuda(void) {
    places_use_cuda();
}

#include "test_engine_fuzz_threads.c"
