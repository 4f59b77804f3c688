/* See remap.h. Every buffer has a place of its own at which it is mapped, and the array a place in
 * addition. To show a buffer, the page tables of its place are moved to the array's (and before,
 * those of the array to the place of what it shows). MREMAP_DONTUNMAP leaves a mapping of the same
 * buffer without pages where they were, so that no place is free for another thread's mmap().
 *
 * A move can fail: for want of memory, or, before Linux 6.17, where somebody has divided the array
 * (advice, protection or a lock for a part: libraries that register memory with a network card do
 * that). The place to move to may be empty by then. From then on buffers are mapped anew. */
#define _GNU_SOURCE /* mremap */
#include "base/pages.h"
#include "base/round_up.h"
#include "shm/remap.h"

#include <stdlib.h>
#include <sys/mman.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

struct remap {
    unsigned char *area; /* all places: the array's, then the buffers' */
    size_t bytes;        /* of a buffer's mapping, whole huge pages where it lies in such */
    size_t used;         /* of a buffer: what has pages in any case */
    size_t step;         /* from one to the next in the file */
    size_t stride;       /* from one place to the next: page tables are moved by 2 MiB at once */
    size_t area_bytes;
    off_t offset; /* of buffer 0 in the file */
    const wagma_segment *segment;
    int shown;
    int refused;             /* page tables are not moved any more */
    unsigned char *doubtful; /* a place that somebody else may have by now, or NULL */
    unsigned char *mapped;   /* [buffers]: its place maps it */
};

static unsigned char *aligned_start(const struct remap *m) {
    return m->area + (-(uintptr_t)m->area & (PAGES_HUGE - 1));
}

static unsigned char *place_of(const struct remap *m, int b) {
    return aligned_start(m) + (size_t)(b + 1) * m->stride;
}

void *remap_array(const struct remap *m) {
    return aligned_start(m);
}

static off_t offset_of(const struct remap *m, int b) {
    return m->offset + (off_t)((size_t)b * m->step);
}

void *remap_shows(const struct remap *m, size_t *bytes, off_t *offset) {
    *bytes = m->bytes;
    *offset = offset_of(m, m->shown);
    return m->doubtful == aligned_start(m) ? NULL : aligned_start(m);
}

int remap_shown(const struct remap *m) {
    return m->shown;
}

/* Maps buffer b at `place`, with its pages: they are there, see segment_commit_contribution(). */
static int map_at(const struct remap *m, unsigned char *place, int b) {
    if (mmap(place, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             segment_file(m->segment), offset_of(m, b)) == MAP_FAILED)
        return -1;
    (void)madvise(place, m->used, MADV_POPULATE_WRITE); /* or, before Linux 5.14, when touched */
    return 0;
}

int remap_prepare(struct remap *m, int b) {
    if (!m->mapped[b])
        m->mapped[b] = !map_at(m, place_of(m, b), b);
    return m->mapped[b] ? 0 : -1;
}

/* Moves page tables; a place that was emptied in vain is taken again. */
static int move(struct remap *m, unsigned char *from, unsigned char *to) {
    if (mremap(from, m->bytes, m->bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) !=
        MAP_FAILED)
        return 0;
    m->refused = 1;
    if (mmap(to, m->bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) != to)
        m->doubtful = to; /* or it was not emptied */
    return -1;
}

int remap_show(struct remap *m, int b) {
    unsigned char *const array = aligned_start(m);
    if (b == m->shown)
        return 0;
    if (!m->refused && remap_prepare(m, b) == 0 && remap_prepare(m, m->shown) == 0 &&
        move(m, array, place_of(m, m->shown)) == 0 && move(m, place_of(m, b), array) == 0) {
        m->shown = b;
        return 0;
    }
    if (map_at(m, array, b)) /* whatever was there is replaced */
        return -1;
    if (m->doubtful == array)
        m->doubtful = NULL;
    m->shown = b;
    return 0;
}

struct remap *remap_new(const wagma_segment *s, int rank) {
    struct remap *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->bytes = s->item_memory;
    m->used = s->bytes_n;
    m->step = s->item_step;
    m->stride = round_up(m->bytes, PAGES_HUGE);
    m->area_bytes = PAGES_HUGE + ((size_t)s->buffers + 1) * m->stride;
    m->offset = segment_contribution(s, rank, 0) - s->base;
    m->segment = s;
    m->shown = 1;
    m->mapped = calloc((size_t)s->buffers, 1);
    m->area =
        mmap(NULL, m->area_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m->area == MAP_FAILED)
        m->area = NULL;
    /* once there and back: whether it can be done at all */
    int ready = m->mapped && m->area && !map_at(m, aligned_start(m), 1);
    for (int b = 0; ready && b < segment_joined_contributions(s); b++)
        ready = remap_prepare(m, b) == 0;
    if (ready && remap_show(m, 0) == 0 && remap_show(m, 1) == 0 && !m->refused)
        return m;
    remap_free(m);
    return NULL;
}

void remap_free(struct remap *m) {
    if (!m)
        return;
    unsigned char *const end = m->area + m->area_bytes;
    if (m->area && m->doubtful) { /* all but that */
        munmap(m->area, (size_t)(m->doubtful - m->area));
        munmap(m->doubtful + m->stride, (size_t)(end - m->doubtful - m->stride));
    } else if (m->area) {
        munmap(m->area, m->area_bytes);
    }
    free(m->mapped);
    free(m);
}
