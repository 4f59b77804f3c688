/* Trials in the hands of one thread, with arrays on simulated devices that are staged in a segment:
 * test_engine_fuzz.c. */
/* short run: asan */
#include "place.h"

__attribute__((constructor)) static void staged(void) {
    arrays_on_devices = WAGMA_MEMORY_STAGED;
}

#include "test_engine_fuzz.c"
