/* Arrays whose elements repeat: sanitizers check a whole copy, or comparison, at once, and elements
 * one by one. A period is an odd number of elements, so that what is moved by a chunk, a slice or a
 * line does not look the same. */
#ifndef WAGMA_TESTS_PERIODIC_H
#define WAGMA_TESTS_PERIODIC_H

#include <stddef.h>
#include <string.h>

enum { PERIODIC_ELEMENTS = 1009 };

/* Fills all bytes of x with copies of the first `period`. */
static inline void periodic_repeat(void *x, size_t period, size_t bytes) {
    for (size_t done = period; done < bytes; done *= 2)
        memcpy((char *)x + done, x, done < bytes - done ? done : bytes - done);
}

/* Are all bytes of x copies of the first `period`? */
static inline int periodic_holds(const void *x, size_t period, size_t bytes) {
    return bytes <= period || memcmp((const char *)x + period, x, bytes - period) == 0;
}

#endif
