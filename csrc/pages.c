/* See pages.h. */
#define _GNU_SOURCE /* MADV_HUGEPAGE */
#include "pages.h"

#include <stdlib.h>
#include <sys/mman.h>

void *pages_new(size_t bytes) {
    const int large = bytes >= PAGES_LARGE;
    void *memory;
    if (posix_memalign(&memory, large ? PAGES_HUGE : PAGES_LINE, bytes ? bytes : 1) != 0)
        return NULL;
    if (large) /* where there are none, those of the usual size do */
        (void)madvise(memory, bytes - bytes % PAGES_HUGE, MADV_HUGEPAGE);
    return memory;
}
