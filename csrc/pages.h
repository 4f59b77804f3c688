/* Memory for arrays: aligned to cache lines, and large ones to huge pages, which the system is
 * asked for: where one process copies from another, it looks up every page. */
#ifndef WAGMA_PAGES_H
#define WAGMA_PAGES_H

#include <stddef.h>

enum {
    PAGES_LINE = 64,       /* bytes */
    PAGES_HUGE = 2 << 20,  /* of a huge page */
    PAGES_LARGE = 4 << 20, /* from here on they pay: numpy asks for them from here on, too */
};

/* `bytes`, to be freed by free(); NULL: there is no memory. */
void *pages_new(size_t bytes);

#endif
