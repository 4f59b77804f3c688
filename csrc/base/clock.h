/* The clock of all times in the engine. */
#ifndef WAGMA_BASE_CLOCK_H
#define WAGMA_BASE_CLOCK_H

#include <stdint.h>

/* Return CLOCK_MONOTONIC in ns. */
uint64_t clock_now(void);

#endif
