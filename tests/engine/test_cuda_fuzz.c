/* Trials in the hands of one thread, over CUDA (place.h): test_engine_fuzz.c. */
/* short run: asan */
/* needs a C++ compiler */
#include "place.h"

__attribute__((constructor)) static void on_cuda(void) {
    places_use_cuda();
}

#include "test_engine_fuzz.c"
