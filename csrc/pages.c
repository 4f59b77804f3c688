/* See pages.h. */
#define _GNU_SOURCE /* MADV_HUGEPAGE, memfd_create */
#include "pages.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef PAGES_SANITIZED
#include <sanitizer/asan_interface.h>
enum { GUARD = PAGES_LINE }; /* between two parts: who writes beyond the first is found */
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)0)
enum { GUARD = 0 };
#endif

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static void *from_system(size_t bytes, int huge) {
    void *memory;
    if (posix_memalign(&memory, huge ? PAGES_HUGE : PAGES_LINE, bytes ? bytes : 1) != 0)
        return NULL;
    if (huge) /* where there are none, those of the usual size do */
        (void)madvise(memory, bytes - bytes % PAGES_HUGE, MADV_HUGEPAGE);
    return memory;
}

void *pages_new(size_t bytes) {
    return from_system(bytes, bytes >= PAGES_LARGE);
}

/* ---- arenas ---------------------------------------------------------------------------------- */

struct pages_region {
    struct pages_region *next;
    void *memory;
};

static size_t whole(size_t bytes, size_t unit) {
    return bytes + -bytes % unit;
}

/* A region of its own; its end is kept for others where that is more than what is kept now. */
static void *add_region(pages_arena *a, size_t bytes) {
    const int huge = bytes >= PAGES_PART;
    const size_t room = huge ? whole(bytes, PAGES_HUGE) : bytes;
    struct pages_region *region = malloc(sizeof *region);
    unsigned char *memory = region ? from_system(room, huge) : NULL;
    if (!memory) {
        free(region);
        return NULL;
    }
    *region = (struct pages_region){a->regions, memory};
    a->regions = region;
    /* relaxed: a counter */
    atomic_fetch_add_explicit(&a->bytes, room, memory_order_relaxed);
    if (room - bytes > a->left) {
        a->rest = memory + bytes;
        a->left = room - bytes;
    }
    ASAN_POISON_MEMORY_REGION(memory + bytes, room - bytes);
    return memory;
}

void *pages_part(pages_arena *a, size_t bytes) {
    if (bytes > PTRDIFF_MAX - 2 * (size_t)PAGES_HUGE) /* of which no whole pages can be counted */
        return NULL;
    const size_t room = whole(bytes ? bytes : 1, PAGES_LINE) + GUARD;
    unsigned char *part = a->rest;
    if (room > a->left) {
        part = add_region(a, room);
    } else {
        a->rest += room;
        a->left -= room;
    }
    if (!part)
        return NULL;
    ASAN_UNPOISON_MEMORY_REGION(part, room - GUARD);
    ASAN_POISON_MEMORY_REGION(part + room - GUARD, GUARD);
    return part;
}

void pages_free(pages_arena *a) {
    for (struct pages_region *r = a->regions, *next; r; r = next) {
        next = r->next;
        free(r->memory);
        free(r);
    }
    *a = (pages_arena){0};
}

/* ---- shared memory --------------------------------------------------------------------------- */

int pages_join(void *at) {
    return madvise(at, PAGES_HUGE, MADV_COLLAPSE) == 0 ? 0 : -1;
}

int pages_can_join(void) {
    const int fd = memfd_create("wagma-pages", MFD_CLOEXEC);
    const size_t room = 2 * PAGES_HUGE;
    unsigned char *area =
        mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int joined = 0;
    if (fd >= 0 && area != MAP_FAILED && ftruncate(fd, PAGES_HUGE) == 0) {
        unsigned char *at = area + (-(uintptr_t)area & (PAGES_HUGE - 1));
        joined =
            mmap(at, PAGES_HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at &&
            posix_fallocate(fd, 0, 1) == 0 && pages_join(at) == 0;
    }
    if (area != MAP_FAILED)
        munmap(area, room);
    if (fd >= 0)
        close(fd);
    return joined;
}
