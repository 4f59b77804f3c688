/* Ranks that are processes, over CUDA (place.h): test_device_ends.c. */
/* short run: c asan */
/* needs a C++ compiler */
#include "place.h"

__attribute__((constructor)) static void on_cuda(void) {
    places_use_cuda();
}

#include "test_device_ends.c"
