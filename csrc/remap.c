/* See remap.h. Every buffer has a place of its own at which it is mapped, and the array a place in
 * addition. To show a buffer, the page tables of its place are moved to the array's (and before,
 * those of the array to the place of what it shows). MREMAP_DONTUNMAP leaves a mapping of the same
 * buffer without pages where they were: at no time is a place free for another thread's mmap(), and
 * if the second move fails, the array still shows what it showed, page by page. */
#define _GNU_SOURCE /* mremap */
#include "remap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

enum { ALIGNED = 2 << 20 }; /* page tables are moved by so much at once */

struct remap {
    unsigned char *area; /* all places: the array's, then the buffers' */
    size_t bytes;        /* of a buffer */
    size_t stride;       /* from one place to the next */
    size_t area_bytes;
    off_t offset; /* of buffer 0 in the file */
    int fd;
    int shown;
    unsigned char *mapped; /* [buffers]: its place maps it */
};

static unsigned char *aligned_start(const struct remap *m) {
    return m->area + (-(uintptr_t)m->area & (ALIGNED - 1));
}

static unsigned char *place_of(const struct remap *m, int b) {
    return aligned_start(m) + (size_t)(b + 1) * m->stride;
}

void *remap_array(const struct remap *m) {
    return aligned_start(m);
}

int remap_shown(const struct remap *m) {
    return m->shown;
}

/* Maps buffer b at `place`, with its pages: they are there, see segment_commit_contribution(). */
static int map_at(const struct remap *m, unsigned char *place, int b) {
    return mmap(place, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                m->fd, m->offset + (off_t)((size_t)b * m->bytes)) == MAP_FAILED;
}

static int move(const struct remap *m, unsigned char *from, unsigned char *to) {
    return mremap(from, m->bytes, m->bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) ==
           MAP_FAILED;
}

int remap_show(struct remap *m, int b) {
    unsigned char *const array = aligned_start(m);
    if (b == m->shown)
        return WAGMA_OK;
    int failed = !m->mapped[b] && map_at(m, place_of(m, b), b);
    if (!failed) {
        m->mapped[b] = 1;
        failed = move(m, array, place_of(m, m->shown));
    }
    if (!failed) {
        m->mapped[m->shown] = 1;
        failed = move(m, place_of(m, b), array);
    }
    if (failed)
        return error_set(WAGMA_ENOMEM,
                         "cannot map the rank's array of %zu bytes to other memory (%s): raise the "
                         "limit of mappings (sysctl vm.max_map_count) or ulimit -v",
                         m->bytes, strerror(errno));
    m->shown = b;
    return WAGMA_OK;
}

struct remap *remap_new(const wagma_segment *s, int rank) {
    struct remap *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->bytes = s->contribution_bytes;
    m->stride = (m->bytes + ALIGNED - 1) & ~(size_t)(ALIGNED - 1);
    m->area_bytes = ALIGNED + ((size_t)s->buffers + 1) * m->stride;
    m->offset = segment_contribution(s, rank, 0) - s->base;
    m->fd = s->fd;
    m->shown = 1;
    m->mapped = calloc((size_t)s->buffers, 1);
    m->area =
        mmap(NULL, m->area_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m->area == MAP_FAILED)
        m->area = NULL;
    /* once there and back: whether it can be done at all */
    if (m->mapped && m->area && !map_at(m, aligned_start(m), 1) && remap_show(m, 0) == WAGMA_OK &&
        remap_show(m, 1) == WAGMA_OK)
        return m;
    remap_free(m);
    return NULL;
}

void remap_free(struct remap *m) {
    if (!m)
        return;
    if (m->area)
        munmap(m->area, m->area_bytes);
    free(m->mapped);
    free(m);
}
