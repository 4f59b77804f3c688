/* Every policy of starting, missing and being late, over messages: test_engine_policies.c. */
#include "support.h"

__attribute__((constructor)) static void over_messages(void) {
    messages_for_threads = 1;
}

#include "test_engine_policies.c"
