/* Trials in the hands of one thread, with arrays over CUDA (place.h) that are staged in a segment:
 * test_engine_fuzz.c. */
/* needs a C++ compiler */
#include "place.h"

__attribute__((constructor)) static void staged_on_cuda(void) {
    arrays_on_devices = WAGMA_MEMORY_STAGED;
    places_use_cuda();
}

#include "test_engine_fuzz.c"
