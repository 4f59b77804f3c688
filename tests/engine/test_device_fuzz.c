/* Trials in the hands of one thread, with arrays on simulated devices: test_engine_fuzz.c. */
/* short run: asan */
#include "place.h"

__attribute__((constructor)) static void on_devices(void) {
    arrays_on_devices = 1;
}

#include "test_engine_fuzz.c"
