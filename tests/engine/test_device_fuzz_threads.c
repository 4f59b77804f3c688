/* Trials of every policy by ranks that run by themselves (team_start()), with arrays on simulated
 * devices: test_engine_fuzz_threads.c, whose oracle knows what each call has to give. */
/* short run: tsan */
#include "place.h"

__attribute__((constructor)) static void on_devices(void) {
    arrays_on_devices = 1;
}

#include "test_engine_fuzz_threads.c"
