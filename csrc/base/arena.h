/* Memory in huge pages that is freed together: the allocations of one handle share the pages.
 * Sharing makes huge pages pay for far smaller allocations than a page of 2 MiB for each, see
 * docs/performance.md. */
#ifndef WAGMA_BASE_ARENA_H
#define WAGMA_BASE_ARENA_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of an allocation from which huge pages are requested. A smaller one uses them if there is
 * room left. */
enum { ARENA_HUGE_MIN = 64 << 10 };

/* Used by one thread at a time. All bytes 0: an empty arena. */
typedef struct arena {
    struct arena_region *regions; /* memory from the system */
    unsigned char *rest;          /* free end of one region: `left` bytes */
    size_t left;
    int alone; /* set before the first allocation: nothing else lies in the pages of regions */
    _Atomic uint64_t bytes; /* of all regions; any thread may read it */
} arena;

/* Allocate `bytes`, aligned to a cache line; NULL: there is no memory. */
void *arena_part(arena *a, size_t bytes);
/* Find the whole pages of the region that holds `memory`. 0: it is not the arena's, or other memory
 * lies in these pages. */
int arena_pages_of(const arena *a, const void *memory, void **pages, size_t *bytes);
/* Free every allocation of the arena. */
void arena_free(arena *a);

#endif
