/* Trials of every policy by ranks that run by themselves, over messages:
 * test_engine_fuzz_threads.c, whose oracle knows what each call has to give. */
#include "support.h"

__attribute__((constructor)) static void over_messages(void) {
    messages_for_threads = 1;
}

#include "test_engine_fuzz_threads.c"
