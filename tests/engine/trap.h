/* Stops or kills a process at a chosen point inside a call: its array is write-protected, or made
 * unreadable, and the first access does it. Reading x happens before a contribution is published,
 * writing it when the first slice is delivered, with that slice claimed and not marked as done. */
#ifndef WAGMA_TESTS_TRAP_H
#define WAGMA_TESTS_TRAP_H

#include <stddef.h>

enum trap {
    TRAP_BEFORE_PUBLISHING, /* when x is read */
    TRAP_IN_SLICE,          /* when x is written */
};

/* Page-aligned memory that can be trapped; never freed. */
void *trap_memory(size_t bytes);

/* At the next such access to memory[0, bytes) the process sends itself `signum` (SIGSTOP: the
 * access goes on when the process does). One trap per process at a time, on one thread. */
void trap_arm(void *memory, size_t bytes, enum trap trap, int signum);

#endif
