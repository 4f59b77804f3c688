/* Arrays whose elements repeat: sanitizers check a whole copy, or comparison, at once, and elements
 * one by one. A period is an odd number of elements, so that what is moved by a chunk, a slice or a
 * line does not look the same. */
#ifndef WAGMA_TESTS_PERIODIC_H
#define WAGMA_TESTS_PERIODIC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PERIODIC_ELEMENTS = 1009 }; /* of most */

/* How many elements of `count` make the first period. */
static inline int64_t periodic_head(int64_t count) {
    return count < PERIODIC_ELEMENTS ? count : PERIODIC_ELEMENTS;
}

/* Fills all bytes of x with copies of the first `period`. */
static inline void periodic_repeat(void *x, size_t period, size_t bytes) {
    for (size_t done = period; done < bytes; done *= 2)
        memcpy((char *)x + done, x, done < bytes - done ? done : bytes - done);
}

/* Are all bytes of x copies of the first `period`? */
static inline int periodic_holds(const void *x, size_t period, size_t bytes) {
    return bytes <= period || memcmp((const char *)x + period, x, bytes - period) == 0;
}

/* How many elements of x it is enough to look at one by one: the first period where the others
 * repeat it, otherwise all. (Sums that are rounded in several orders do not repeat.) */
static inline int64_t periodic_enough(const void *x, size_t element, int64_t period,
                                      int64_t count) {
    const int repeats = periodic_holds(x, (size_t)period * element, (size_t)count * element);
    return repeats && period < count ? period : count;
}

#endif
