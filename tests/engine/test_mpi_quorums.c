/* Quorums that change, over messages: test_quorums.c. */
#include "support.h"

__attribute__((constructor)) static void over_messages(void) {
    messages_for_threads = 1;
}

#include "test_quorums.c"
