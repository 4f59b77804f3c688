/* Arrays that show other memory by turns, as large ones of wait-avoiding handles do: here small
 * ones, of COUNT doubles, and only where this system can do it. */
#ifndef WAGMA_TESTS_REMAPPED_H
#define WAGMA_TESTS_REMAPPED_H

#include "shm/avoiding/executor.h"
#include "support.h"

#include <stdio.h>

enum { COUNT = 3 * 512 + 1 }; /* doubles: not a whole number of pages */

#include "uniform.h"

static inline wagma_options choose(int size, int quorum) {
    return options_of(size, size, quorum, COUNT);
}

/* Whether it can: Linux 5.13. Says so where it cannot. */
static inline int is_supported(void) {
    const wagma_options o = choose(2, 1);
    wagma_segment *s = NULL;
    struct remap *array = NULL;
    if (wagma_segment_create(&o, NULL, &s) == WAGMA_OK && segment_join(s, 0) == WAGMA_OK)
        array = remap_new(s, 0);
    const int supported = array != NULL;
    remap_free(array);
    wagma_segment_close(s);
    if (!supported)
        printf("skipped   this system cannot map an array to other memory\n");
    return supported;
}

#endif
