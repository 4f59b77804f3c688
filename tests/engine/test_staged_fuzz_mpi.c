/* Trials of every policy by ranks that run by themselves, with arrays on simulated devices that are
 * staged for messages: test_engine_fuzz_threads.c. */
/* short run: tsan */
#include "place.h"
#include "support.h"

__attribute__((constructor)) static void staged_for_messages(void) {
    arrays_on_devices = WAGMA_MEMORY_STAGED;
    messages_for_threads = 1;
}

#include "test_engine_fuzz_threads.c"
