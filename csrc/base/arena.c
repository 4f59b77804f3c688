/* See arena.h. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MADV_HUGEPAGE */
#include "base/arena.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/pages.h"
#include "base/round_up.h"

#if defined(__has_feature) /* clang; gcc has a macro of its own */
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED
#endif
#ifdef SANITIZED
#include <sanitizer/asan_interface.h>
enum { GUARD = PAGES_LINE }; /* between two parts: detects writes beyond the first */
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)0)
enum { GUARD = 0 };
#endif

struct arena_region {
    struct arena_region *next;
    void *memory;
    size_t bytes;
    int mapped; /* otherwise it is malloc()'s */
};

/* Bytes to map for a part: whole huge pages, but for a rest of less than half of one. */
static size_t room_for(size_t bytes) {
    const size_t rest = bytes % PAGES_HUGE;
    if (bytes < PAGES_HUGE || rest >= PAGES_HUGE / 2)
        return round_up(bytes, PAGES_HUGE);
    return round_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
}

/* Fresh from the system: what malloc() gives may have pages of the usual size already, which advice
 * does not change. */
static void *map(size_t bytes) {
    unsigned char *area =
        mmap(NULL, bytes + PAGES_HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        return NULL;
    unsigned char *const memory = area + (-(uintptr_t)area & (PAGES_HUGE - 1));
    unsigned char *const end = memory + bytes;
    if (memory > area)
        munmap(area, (size_t)(memory - area));
    if (area + bytes + PAGES_HUGE > end)
        munmap(end, (size_t)(area + bytes + PAGES_HUGE - end));
    /* where there are none, those of the usual size do */
    (void)madvise(memory, bytes - bytes % PAGES_HUGE, MADV_HUGEPAGE);
    return memory;
}

/* Its end is kept for others where that is more than what is kept now. */
static void *add_region(arena *a, size_t bytes) {
    const int huge = bytes >= ARENA_HUGE_MIN;
    const size_t room = huge ? room_for(bytes) : a->alone ? pages_whole(bytes) : bytes;
    struct arena_region *region = malloc(sizeof *region);
    void *memory = NULL;
    if (region && huge)
        memory = map(room);
    else if (region && a->alone)
        memory = pages_alone(room);
    else if (region && posix_memalign(&memory, PAGES_LINE, room) != 0)
        memory = NULL;
    if (!memory) {
        free(region);
        return NULL;
    }
    *region = (struct arena_region){a->regions, memory, room, huge};
    a->regions = region;
    /* relaxed: a counter */
    atomic_fetch_add_explicit(&a->bytes, room, memory_order_relaxed);
    unsigned char *const end = (unsigned char *)memory + bytes;
    if (room - bytes > a->left) {
        a->rest = end;
        a->left = room - bytes;
    }
    ASAN_POISON_MEMORY_REGION(end, room - bytes);
    return memory;
}

void *arena_part(arena *a, size_t bytes) {
    if (bytes > PTRDIFF_MAX - 2 * (size_t)PAGES_HUGE) /* no whole pages of it can be counted */
        return NULL;
    const size_t room = round_up(bytes ? bytes : 1, PAGES_LINE) + GUARD;
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

int arena_pages_of(const arena *a, const void *memory, void **pages, size_t *bytes) {
    const struct arena_region *r = a->regions;
    while (r && (uintptr_t)memory - (uintptr_t)r->memory >= r->bytes)
        r = r->next;
    if (!r || !(r->mapped || a->alone))
        return 0;
    *pages = r->memory;
    *bytes = r->bytes;
    return 1;
}

void arena_free(arena *a) {
    for (struct arena_region *r = a->regions, *next; r; r = next) {
        next = r->next;
        if (r->mapped) {
            ASAN_UNPOISON_MEMORY_REGION(r->memory, r->bytes);
            munmap(r->memory, r->bytes);
        } else {
            free(r->memory);
        }
        free(r);
    }
    *a = (arena){0};
}
