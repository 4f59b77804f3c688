/* Committing memory piece by piece, and joining. */
#define _GNU_SOURCE /* fallocate */
#include "base/pages.h"
#include "shm/forked.h"
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.h"
#include "shm/wait.h"

enum {
    COMMIT_STEP = 4 << 20, /* bytes per fallocate: a signal that interrupts it repeats only this */
};

/* ---- committing ------------------------------------------------------------------------------ */

static uint64_t region_start(const wagma_segment *s, int rank) {
    return s->region_offset + (uint64_t)rank * s->region_bytes;
}

/* Gives the pages of [offset, offset + bytes) to the file, on the calling thread's NUMA node. */
static int commit(const wagma_segment *s, uint64_t offset, uint64_t bytes) {
    for (uint64_t at = 0; at < bytes;) {
        uint64_t step = bytes - at < COMMIT_STEP ? bytes - at : COMMIT_STEP;
        int error = posix_fallocate(segment_file(s), (off_t)(offset + at), (off_t)step);
        if (error == EINTR)
            continue;
        if (error)
            return error;
        at += step;
    }
    return 0;
}

/* Commit an array of `bytes`: in huge pages if the system makes them, otherwise in as many pages as
 * the array fills. Only one page is present before a huge page is made: the system would have to
 * copy further ones. */
static int commit_array(const wagma_segment *s, uint64_t offset, uint64_t bytes) {
    uint64_t huge = 0;
    if (s->item_bytes < SEGMENT_HUGE_MIN)
        return commit(s, offset, bytes);
    while (segment_array_memory(bytes) - huge >= PAGES_HUGE) {
        const int error = commit(s, offset + huge, 1);
        if (error)
            return error;
        if (pages_join(s->base + offset + huge) != 0)
            break;
        huge += PAGES_HUGE;
    }
    return bytes > huge ? commit(s, offset + huge, bytes - huge) : 0;
}

/* `count` contributions or results, from `offset` on. Small ones share pages. */
static int commit_items(const wagma_segment *s, uint64_t offset, int count) {
    int error = 0;
    if (s->item_bytes < SEGMENT_HUGE_MIN)
        return commit(s, offset, (uint64_t)count * s->item_step);
    for (int k = 0; k < count && !error; k++)
        error = commit_array(s, offset + (uint64_t)k * s->item_step, s->item_bytes);
    return error;
}

/* The opposite, for what was committed before the memory ran out. */
static void give_back(const wagma_segment *s, uint64_t offset, uint64_t bytes) {
    if (bytes)
        fallocate(segment_file(s), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                  (off_t)bytes);
}

static int no_space(const wagma_segment *s, const char *what, uint64_t needed, int error) {
    struct statvfs fs;
    uint64_t free_bytes =
        fstatvfs(segment_file(s), &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : 0;
    return error_set(
        WAGMA_ENOSPC,
        "%s needs %" PRIu64 " bytes of shared memory, %" PRIu64
        " are free in /dev/shm (%s): enlarge it (mount -o remount,size=... /dev/shm; in a "
        "container --shm-size), or use fewer elements or ranks",
        what, needed, free_bytes, strerror(error));
}

int segment_commit_header(const wagma_segment *s) {
    uint64_t lines = (uint64_t)SEGMENT_LINES * SEGMENT_LINE;
    uint64_t needed = sizeof(segment_header) + (uint64_t)s->size * segment_joined_shared(s);
    struct statvfs fs;
    /* Joining checks again; here one rank finds out what otherwise all would. */
    if (fstatvfs(segment_file(s), &fs) == 0 && fs.f_blocks &&
        (uint64_t)fs.f_bavail * fs.f_frsize < needed)
        return no_space(s, "the segment", needed, ENOSPC);
    int error = commit(s, 0, sizeof(segment_header));
    for (int r = 0; r < s->size && !error; r++)
        error = commit(s, region_start(s, r), lines);
    return error ? no_space(s, "the segment", needed, error) : WAGMA_OK;
}

/* 0; or -1 after an error: then nothing is kept of what is there. */
static int kept(const wagma_segment *s, int error, uint64_t offset, uint64_t bytes) {
    if (!error)
        return 0;
    give_back(s, offset, bytes); /* a page shared with a neighbour stays */
    return -1;
}

/* Contributions or results [from, to); 0 or -1. */
static int commit_more(const wagma_segment *s, uint64_t first, int from, int to) {
    const uint64_t offset = first + (uint64_t)from * s->item_step;
    return kept(s, commit_items(s, offset, to - from), offset,
                (uint64_t)(to - from) * s->item_step);
}

int segment_commit_contribution(wagma_segment *s, int rank, int b, int *committed) {
    if (b < *committed)
        return 0;
    if (b >= segment_most_contributions(s) ||
        commit_more(s, region_start(s, rank) + s->o_contribution, *committed, b + 1) != 0)
        return -1;
    *committed = b + 1;
    return 0;
}

int segment_commit_round(wagma_segment *s, int rank, int i, int *committed) {
    const int from = *committed;
    if (i < from)
        return 0;
    const uint64_t records = region_start(s, rank) + s->o_record + (uint64_t)from * s->record_step;
    const uint64_t bytes = (uint64_t)(i + 1 - from) * s->record_step;
    if (i >= segment_most_rounds(s) || kept(s, commit(s, records, bytes), records, bytes) != 0)
        return -1;
    if (commit_more(s, region_start(s, rank) + s->o_result, from, i + 1) != 0) {
        give_back(s, records, bytes);
        return -1;
    }
    *committed = i + 1;
    return 0;
}

static int commit_place(const wagma_segment *s, uint64_t offset, uint64_t bytes) {
    return kept(s, commit_array(s, offset, bytes), offset, bytes);
}

int segment_commit_stage(wagma_segment *s, int rank) {
    return commit_place(s, region_start(s, rank) + s->o_stage, s->bytes_n);
}

int segment_commit_chunks(wagma_segment *s, int rank) {
    return commit_place(s, region_start(s, rank) + s->o_chunks, s->chunks_bytes);
}

/* ---- joining --------------------------------------------------------------------------------- */

static int commit_region(const wagma_segment *s, int rank) {
    const uint64_t start = region_start(s, rank);
    const int rounds = segment_joined_rounds(s);
    int error = commit(s, start, s->words_bytes);
    if (!error)
        error = commit_array(s, start + s->o_array, s->array_bytes);
    if (!error)
        error = commit_items(s, start + s->o_contribution, segment_joined_contributions(s));
    if (!error)
        error = commit(s, start + s->o_record, (uint64_t)rounds * s->record_step);
    if (!error)
        error = commit_items(s, start + s->o_result, rounds);
    return error;
}

/* Pages are zeroed when first touched: do it here, not in the first versions. The rank lines are in
 * use already (others look at them). */
static void touch_region(const wagma_segment *s, int rank) {
    unsigned char *region = segment_region(s, rank);
    const uint64_t lines = (uint64_t)SEGMENT_LINES * SEGMENT_LINE;
    const int rounds = segment_joined_rounds(s);
    memset(region + lines, 0, s->words_bytes - lines);
    memset(region + s->o_array, 0, s->array_bytes);
    for (int b = 0; b < segment_joined_contributions(s); b++)
        memset(segment_contribution(s, rank, b), 0, s->item_bytes);
    memset(region + s->o_record, 0, (uint64_t)rounds * s->record_step);
    for (int i = 0; i < rounds; i++)
        memset(region + s->o_result + (uint64_t)i * s->item_step, 0, s->item_bytes);
}

int segment_join(wagma_segment *s, int rank) {
    const int status = segment_life_begin(s, rank);
    if (status != WAGMA_OK)
        return status;
    const int error = commit_region(s, rank);
    if (error) {
        uint64_t lines = (uint64_t)SEGMENT_LINES * SEGMENT_LINE;
        give_back(s, region_start(s, rank) + lines, s->region_bytes - lines);
        segment_leave(s, rank, SEGMENT_NOSPACE);
        char what[64];
        snprintf(what, sizeof what, "rank %d", rank);
        return no_space(s, what, segment_joined_shared(s), error);
    }
    touch_region(s, rank);
    /* seq_cst, as the event of a ring; also releases the region to ranks that see JOINED. */
    atomic_store(&segment_presence_of(s, rank)->state, SEGMENT_JOINED);
    return WAGMA_OK;
}

int wagma_segment_fail(wagma_segment *segment, int rank) {
    if (!segment)
        return error_set(WAGMA_EINVAL, "segment is NULL: pass a segment that is open");
    if (segment->is_copy)
        return forked_refuse("the segment");
    if (rank < 0 || rank >= segment->size)
        return error_set(WAGMA_EINVAL, "rank=%d: must be in 0..%d", rank, segment->size - 1);
    segment_leave(segment, rank, SEGMENT_FAILED);
    wait_ring(segment, NULL, 0, rank);
    return WAGMA_OK;
}
