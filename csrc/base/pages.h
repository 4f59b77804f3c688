/* Memory for arrays: aligned to cache lines, and large ones to huge pages, which the system is
 * asked for: every page has to be looked up, by the processor, and by the system where one process
 * copies from another. */
#ifndef WAGMA_BASE_PAGES_H
#define WAGMA_BASE_PAGES_H

#include <stddef.h>

enum {
    PAGES_LINE = 64,       /* bytes */
    PAGES_HUGE = 2 << 20,  /* of a huge page */
    PAGES_LARGE = 4 << 20, /* from here on they pay: numpy asks for them from here on, too */
};

/* `bytes`, to be freed by free(); NULL: there is no memory. */
void *pages_new(size_t bytes);

/* Makes one huge page of the PAGES_HUGE bytes at `at`, where a shared file in memory is mapped, at
 * an address and an offset that are multiples of that. At least one page of the usual size has to
 * be there; what is missing is filled with zeros. Linux 6.1 does it, whatever shmem_enabled says
 * but for "deny". 0; or -1, nothing has changed. */
int pages_join(void *at);
/* 1: pages_join() works on this system. */
int pages_can_join(void);

#endif
