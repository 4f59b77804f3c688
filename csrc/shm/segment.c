/* Making, mapping and removing the shared segment: a sparse file at first. */
#include "base/pages.h"
#include "base/process.h"
#include "base/round_up.h"
#include "shm/device/owned.h"
#include "shm/forked.h"
#include "shm/remap.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

static const char SEGMENT_MAGIC[8] = "wagma-s";

/* ---- mapping --------------------------------------------------------------------------------- */

static int map(wagma_segment *s) {
    int protection = PROT_READ | PROT_WRITE;
    int huge = s->item_bytes >= SEGMENT_HUGE_MIN;
    if (!huge) {
        s->base = mmap(NULL, s->bytes, protection, MAP_SHARED, s->fd, 0);
    } else {
        /* Addresses congruent to file offsets modulo 2 MiB, or huge pages cannot be used. */
        uint64_t room = s->bytes + PAGES_HUGE;
        unsigned char *area =
            mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        s->base = area;
        if (area != MAP_FAILED) {
            unsigned char *start = area + (-(uintptr_t)area & (PAGES_HUGE - 1));
            unsigned char *end = start + round_up(s->bytes, PAGES_HUGE);
            s->base = mmap(start, s->bytes, protection, MAP_SHARED | MAP_FIXED, s->fd, 0);
            if (s->base == MAP_FAILED)
                munmap(area, room);
            else if (start > area)
                munmap(area, (size_t)(start - area));
            if (s->base != MAP_FAILED && area + room > end)
                munmap(end, (size_t)(area + room - end));
        }
    }
    if (s->base == MAP_FAILED) {
        s->base = NULL;
        return error_set(WAGMA_ENOMEM,
                         "cannot map %" PRIu64 " bytes of address space (%s): raise ulimit -v, "
                         "or use fewer elements, ranks or a smaller window",
                         s->bytes, strerror(errno));
    }
    return WAGMA_OK;
}

static segment_header *header_of(const wagma_segment *s) {
    return (segment_header *)s->base;
}

/* ---- create and open ------------------------------------------------------------------------- */

static int new_segment(const wagma_options *options, wagma_segment **segment) {
    wagma_options checked;
    int status;
    if (!segment)
        return error_set(WAGMA_EINVAL, "segment is NULL: pass where to store it");
    *segment = NULL;
    if (!options)
        return error_set(WAGMA_EINVAL, "options is NULL: pass options set by wagma_options_init()");
    checked = *options;
    if ((status = wagma_options_check(&checked)))
        return status;
    wagma_segment *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(WAGMA_ENOMEM, "no memory for a segment of %zu bytes", sizeof *s);
    s->fd = -1;
    s->uses = 1;
    s->options = checked;
    if ((status = segment_layout(s))) {
        free(s);
        return status;
    }
    if (segment_lives_create(s) != 0 ||
        (s->array_is_contribution &&
         !(s->remap = calloc((size_t)s->size, sizeof(struct remap *)))) ||
        (s->policy.device &&
         !(s->owned = calloc((size_t)s->size, sizeof(struct device_owned *))))) {
        wagma_segment_close(s);
        return error_set(WAGMA_ENOMEM, "no memory for a segment of %d ranks", checked.size);
    }
    *segment = s;
    return WAGMA_OK;
}

int wagma_segment_memory(const wagma_options *options, uint64_t *first, uint64_t *most) {
    wagma_segment *s = NULL;
    if (!first || !most)
        return error_set(WAGMA_EINVAL, "%s is NULL: pass where to store it",
                         first ? "most" : "first");
    const int status = new_segment(options, &s);
    if (status)
        return status;
    segment_arrays(s, first, most);
    wagma_segment_close(s);
    return WAGMA_OK;
}

static int fill_new(wagma_segment *s) {
    int status;
    struct rlimit limit;
    /* Beyond the limit ftruncate() would send a signal that ends the process. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < s->bytes)
        return error_set(WAGMA_ESYS,
                         "the segment is a file of %" PRIu64 " bytes, and this process may make "
                         "files of up to %llu: raise ulimit -f (it is sparse, and takes less "
                         "memory)",
                         s->bytes, (unsigned long long)limit.rlim_cur);
    if (ftruncate(s->fd, (off_t)s->bytes) != 0)
        return error_set(WAGMA_ESYS, "cannot set the segment's size to %" PRIu64 " bytes: %s",
                         s->bytes, strerror(errno));
    if ((status = segment_commit_header(s)) || (status = map(s)))
        return status;
    segment_header *header = header_of(s);
    memcpy(header->magic, SEGMENT_MAGIC, sizeof header->magic);
    header->abi = WAGMA_ABI_VERSION;
    header->bytes = s->bytes;
    header->options = s->options;
    /* release: the header before `ready`; pairs with the acquire in check_header() */
    atomic_store_explicit(&header->ready, 1, memory_order_release);
    return WAGMA_OK;
}

int wagma_segment_create(const wagma_options *options, const char *name, wagma_segment **segment) {
    int status = new_segment(options, segment);
    if (status)
        return status;
    if ((status = segment_file_make(*segment, name)) || (status = fill_new(*segment)) ||
        (status = forked_add(*segment))) {
        wagma_segment_close(*segment);
        *segment = NULL;
    }
    return status;
}

#define INTEGER(field)                                                                             \
    if (mine->field != theirs->field)                                                              \
    return error_set(WAGMA_EMISMATCH,                                                              \
                     "option " #field " is %lld here, %lld where segment %s was made: all ranks "  \
                     "have to use the same",                                                       \
                     (long long)mine->field, (long long)theirs->field, name)
#define SECONDS(field)                                                                             \
    if (mine->field != theirs->field)                                                              \
    return error_set(WAGMA_EMISMATCH,                                                              \
                     "option " #field " is %g here, %g where segment %s was made: all ranks have " \
                     "to use the same",                                                            \
                     mine->field, theirs->field, name)

static int compare_options(const wagma_options *mine, const wagma_options *theirs,
                           const char *name) {
    INTEGER(size);
    INTEGER(group_size);
    INTEGER(quorum);
    INTEGER(late);
    INTEGER(missed);
    INTEGER(activation);
    INTEGER(grouping);
    INTEGER(graph);
    INTEGER(neighbors);
    INTEGER(dtype);
    INTEGER(memory);
    INTEGER(average);
    INTEGER(count);
    INTEGER(sync_period);
    INTEGER(window);
    INTEGER(shm_limit);
    INTEGER(seed);
    SECONDS(grace);
    SECONDS(timeout);
    SECONDS(stall_warning);
    SECONDS(redo_after);
    return WAGMA_OK;
}

static int check_header(const wagma_segment *s, const segment_header *header, const char *name) {
    /* acquire: pairs with the release in fill_new() */
    if (!atomic_load_explicit(&header->ready, memory_order_acquire))
        return error_set(WAGMA_ESYS,
                         "segment %s is still being made: open it when wagma_segment_create "
                         "has returned",
                         name);
    if (memcmp(header->magic, SEGMENT_MAGIC, sizeof header->magic) != 0)
        return error_set(WAGMA_EMISMATCH,
                         "%s is not a segment of this library: choose another name", name);
    if (header->abi != WAGMA_ABI_VERSION)
        return error_set(WAGMA_EMISMATCH,
                         "segment %s has ABI version %" PRIu32 ", this library %d: use the "
                         "same library on all ranks",
                         name, header->abi, WAGMA_ABI_VERSION);
    return compare_options(&s->options, &header->options, name);
}

static int open_existing(wagma_segment *s, const char *name) {
    struct stat file;
    int status = segment_file_find(s, name);
    if (status)
        return status;
    if (fstat(s->fd, &file) != 0)
        return error_set(WAGMA_ESYS, "cannot examine the segment %s: %s", name, strerror(errno));
    if ((size_t)file.st_size < sizeof(segment_header))
        return error_set(WAGMA_ESYS,
                         "segment %s is still being made: open it when wagma_segment_create "
                         "has returned",
                         name);
    segment_header *header = mmap(NULL, sizeof *header, PROT_READ, MAP_SHARED, s->fd, 0);
    if (header == MAP_FAILED)
        return error_set(WAGMA_ENOMEM, "cannot map the segment %s: %s", name, strerror(errno));
    status = check_header(s, header, name);
    munmap(header, sizeof *header);
    if (status)
        return status;
    if ((uint64_t)file.st_size != s->bytes)
        return error_set(WAGMA_EMISMATCH,
                         "segment %s has %lld bytes instead of %" PRIu64 ": use the same "
                         "library on all ranks",
                         name, (long long)file.st_size, s->bytes);
    return map(s);
}

int wagma_segment_open(const wagma_options *options, const char *name, wagma_segment **segment) {
    int status = new_segment(options, segment);
    if (status)
        return status;
    if ((status = open_existing(*segment, name)) || (status = forked_add(*segment))) {
        wagma_segment_close(*segment);
        *segment = NULL;
    }
    return status;
}

int wagma_segment_unlink(wagma_segment *segment) {
    if (!segment)
        return error_set(WAGMA_EINVAL, "segment is NULL: pass a segment that is open");
    if (segment->name[0] == 0)
        return WAGMA_OK;
    if (shm_unlink(segment->name) != 0 && errno != ENOENT)
        return error_set(WAGMA_ESYS, "cannot remove the segment's name %s: %s", segment->name,
                         strerror(errno));
    segment->name[0] = 0;
    return WAGMA_OK;
}

void segment_retain(wagma_segment *segment) {
    /* relaxed: the caller has a use already */
    atomic_fetch_add_explicit(&segment->uses, 1, memory_order_relaxed);
}

void segment_release(wagma_segment *segment) {
    /* acq_rel: the last one sees what the others, on other threads, did to the segment */
    if (atomic_fetch_sub_explicit(&segment->uses, 1, memory_order_acq_rel) != 1)
        return;
    forked_remove(segment);
    for (int r = 0; segment->remap && r < segment->size; r++)
        remap_free(segment->remap[r]);
    free(segment->remap);
    for (int r = 0; segment->owned && r < segment->size; r++)
        device_owned_free(segment->owned[r]);
    free(segment->owned);
    if (segment->base)
        munmap(segment->base, segment->bytes);
    segment_lives_free(segment);
    if (segment_file(segment) >= 0)
        close(segment->fd);
    free(segment);
}

void wagma_segment_close(wagma_segment *segment) {
    if (!segment)
        return;
    /* Nothing stays behind, not even after an error; but a forked child must not take the name
     * away from its parent. */
    if (segment->owner == process_serial())
        wagma_segment_unlink(segment);
    segment_release(segment);
}
