#ifndef WAGMA_BASE_ROUND_UP_H
#define WAGMA_BASE_ROUND_UP_H

#include <stdint.h>

/* Return n rounded up to a multiple of `unit`. */
static inline uint64_t round_up(uint64_t n, uint64_t unit) {
    return (n + unit - 1) / unit * unit;
}

#endif
