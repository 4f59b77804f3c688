/* Memory for arrays: aligned to cache lines, and large ones to huge pages, which the system is
 * asked for: every page has to be looked up, by the processor, and by the system where one process
 * copies from another. */
#ifndef WAGMA_PAGES_H
#define WAGMA_PAGES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#define PAGES_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PAGES_SANITIZED
#endif
#endif

enum {
    PAGES_LINE = 64,       /* bytes */
    PAGES_HUGE = 2 << 20,  /* of a huge page */
    PAGES_LARGE = 4 << 20, /* from here on they pay: numpy asks for them from here on, too */
    PAGES_PART = 64 << 10, /* and from here on where several parts share one */
};

/* `bytes`, to be freed by free(); NULL: there is no memory. */
void *pages_new(size_t bytes);

/* Memory that ends together. A part of PAGES_PART or more lies in huge pages; a smaller one, too,
 * if there is room left in them. One thread at a time. All bytes 0: an empty one. */
typedef struct pages_arena {
    struct pages_region *regions; /* what the system gave */
    unsigned char *rest;          /* of one of them: `left` bytes */
    size_t left;
    _Atomic uint64_t bytes; /* of all regions; any thread may read it */
} pages_arena;

/* `bytes`, aligned to a line; NULL: there is no memory. */
void *pages_part(pages_arena *a, size_t bytes);
/* Of all parts. */
void pages_free(pages_arena *a);

/* Makes one huge page of the PAGES_HUGE bytes at `at`, where a shared file in memory is mapped, at
 * an address and an offset that are multiples of that. At least one page of the usual size has to
 * be there; what is missing is filled with zeros. Linux 6.1 does it, whatever shmem_enabled says
 * but for "deny". 0; or -1, nothing has changed. */
int pages_join(void *at);
/* 1: pages_join() works on this system. */
int pages_can_join(void);

#endif
