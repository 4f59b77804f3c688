/* Memory that ends together, in huge pages: parts of one handle share them. They are worth it
 * from far smaller sizes on than a page of 2 MiB for each would be, see docs/performance.md. */
#ifndef WAGMA_BASE_ARENA_H
#define WAGMA_BASE_ARENA_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a part for which huge pages are asked for. A smaller one lies in them, too, if there is
 * room left. */
enum { ARENA_HUGE_MIN = 64 << 10 };

/* One thread at a time. All bytes 0: an empty one. */
typedef struct arena {
    struct arena_region *regions; /* what the system gave */
    unsigned char *rest;          /* of one of them: `left` bytes */
    size_t left;
    _Atomic uint64_t bytes; /* of all regions; any thread may read it */
} arena;

/* `bytes`, aligned to a cache line; NULL: there is no memory. */
void *arena_part(arena *a, size_t bytes);
/* Free all parts of the arena. */
void arena_free(arena *a);

#endif
