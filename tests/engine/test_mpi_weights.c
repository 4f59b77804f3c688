/* Weights, divisors and 16-bit averages, over messages: test_engine_weights.c. */
#include "support.h"

__attribute__((constructor)) static void over_messages(void) {
    messages_for_threads = 1;
}

#include "test_engine_weights.c"
