/* Memory for arrays. Arrays are aligned to cache lines. Large ones are aligned to huge pages, and
 * the system is asked to use these: the processor looks up every page, and so does the system when
 * one process copies from another. */
#ifndef WAGMA_BASE_PAGES_H
#define WAGMA_BASE_PAGES_H

#include <stddef.h>

enum {
    PAGES_LINE = 64,       /* bytes */
    PAGES_HUGE = 2 << 20,  /* bytes of a huge page */
    PAGES_LARGE = 4 << 20, /* bytes from which huge pages pay; numpy uses the same limit */
};

/* Allocate `bytes`, to be freed by free(); NULL: there is no memory. */
void *pages_new(size_t bytes);

/* Return `bytes` rounded up to whole pages of the usual size, one at least. */
size_t pages_whole(size_t bytes);
/* As pages_new(), of pages_whole(bytes) bytes: nothing else lies in these pages. */
void *pages_alone(size_t bytes);

/* Turn the PAGES_HUGE bytes at `at` into one huge page. A shared file in memory is mapped there, at
 * an address and an offset that are multiples of PAGES_HUGE. At least one page of the usual size
 * has to be present; missing pages are filled with zeros. Linux 6.1 does this for any value of
 * shmem_enabled but "deny". Return 0; or -1, and nothing has changed. */
int pages_join(void *at);
/* Return 1 if pages_join() works on this system. */
int pages_can_join(void);

#endif
