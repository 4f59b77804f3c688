/* See inplace.h. */
#include "inplace.h"

static int has_departed(const wagma_segment *s, int rank) {
    /* seq_cst: condition of a sleeper. Acquires all that the rank has written; pairs with the store
     * in segment_leave(). */
    return atomic_load(&segment_presence_of(s, rank)->state) == SEGMENT_DEPARTED;
}

void inplace_publish(const wagma_segment *s, int rank, int64_t version, int sync) {
    /* seq_cst: the event of a ring for those whom the window holds; pairs with arrived_at(). */
    atomic_store(&segment_sync(s, rank)->arrive, (uint64_t)version + 1);
    /* seq_cst: the last one to publish sees all others' stamps, and rings (also the event of that
     * ring). Releases weight and payload; pairs with the load in inplace_look(). */
    atomic_store(&inplace_record_of(s, rank, version)->stamp, inplace_stamp(version, sync));
}

enum inplace_presence inplace_look(const wagma_segment *s, int rank, int64_t version, int sync) {
    inplace_record *record = inplace_record_of(s, rank, version);
    uint64_t want = inplace_stamp(version, sync);
    uint64_t stamp = atomic_load(&record->stamp);
    if (stamp == want)
        return INPLACE_HERE;
    if (stamp < inplace_stamp(version, 0)) {
        /* A departed rank writes no more: what its record says now, it said when it departed, so
         * that all who ask get the same answer. */
        if (!has_departed(s, rank))
            return INPLACE_AWAITED;
        stamp = atomic_load(&record->stamp);
        if (stamp == want)
            return INPLACE_HERE;
        if (stamp < inplace_stamp(version, 0))
            return INPLACE_DEPARTED;
    }
    /* Either this version with the other flag, or a later one: then it was not in our group, or it
     * would have waited for us to finish. */
    return INPLACE_MISMATCH;
}

int inplace_has_finished(const wagma_segment *s, int rank, int64_t version) {
    /* seq_cst: conditions of a sleeper. Acquires the end of that rank's reads; pairs with
     * inplace_finish_version() and segment_leave(). */
    return atomic_load(&segment_sync(s, rank)->finish) > (uint64_t)version || has_departed(s, rank);
}

void inplace_finish_version(const wagma_segment *s, int rank, int64_t version) {
    /* seq_cst: the event of a ring. Releases: after all reads of the others' records; pairs with
     * inplace_has_finished(). */
    atomic_store(&segment_sync(s, rank)->finish, (uint64_t)version + 1);
}

int inplace_has_sliced(const wagma_segment *s, int rank, int64_t version) {
    /* relaxed, here and below: tells only whom to name when slices are missing. */
    return atomic_load_explicit(&segment_sync(s, rank)->sliced, memory_order_relaxed) >
           (uint64_t)version;
}

void inplace_end_slicing(const wagma_segment *s, int rank, int64_t version) {
    atomic_store_explicit(&segment_sync(s, rank)->sliced, (uint64_t)version + 1,
                          memory_order_relaxed);
}

static int64_t arrived_at(const wagma_segment *s, int rank) {
    /* seq_cst: condition of a sleeper, pairs with inplace_publish(); no data depends on it. */
    return (int64_t)atomic_load(&segment_sync(s, rank)->arrive) - 1;
}

int inplace_is_behind(const wagma_segment *s, int rank, int64_t version) {
    return arrived_at(s, rank) < version && !has_departed(s, rank);
}

int64_t inplace_slowest(const wagma_segment *s) {
    int64_t slowest = INT64_MAX;
    for (int r = 0; r < s->size; r++) {
        const int64_t version = arrived_at(s, r);
        if (version < slowest && !has_departed(s, r))
            slowest = version;
    }
    return slowest;
}

/* Slices that a stamped word counts for `version`; a word of a later version counts more than any.
 */
static uint64_t counted(uint64_t word, int64_t version) {
    uint64_t base = ((uint64_t)version + 1) << INPLACE_SLICE_BITS;
    return word < base ? 0 : word - base;
}

/* Adds one to a stamped word that counts less than `limit`; the count before, or `limit`. */
static uint64_t count_up(segment_atomic *word, int64_t version, uint64_t limit,
                         memory_order order) {
    uint64_t base = ((uint64_t)version + 1) << INPLACE_SLICE_BITS;
    uint64_t now = atomic_load_explicit(word, memory_order_relaxed), count;
    do {
        count = counted(now, version);
        if (count >= limit)
            return limit;
    } while (!atomic_compare_exchange_weak_explicit(word, &now, base + count + 1, order,
                                                    memory_order_relaxed));
    return count;
}

int inplace_claim(const wagma_segment *s, int leader, int64_t version, int slices) {
    /* relaxed: who slices has seen every member's record, and slices do not overlap. */
    uint64_t slice = count_up(&segment_sync(s, leader)->claim[version & 1], version,
                              (uint64_t)slices, memory_order_relaxed);
    return slice == (uint64_t)slices ? -1 : (int)slice;
}

int inplace_complete(const wagma_segment *s, int leader, int64_t version, int slices) {
    /* seq_cst: the event of a ring; releases the slice to those who see all done, through the chain
     * of these updates. Pairs with inplace_all_done(). */
    return count_up(&segment_sync(s, leader)->done[version & 1], version, (uint64_t)slices,
                    memory_order_seq_cst) == (uint64_t)slices - 1;
}

int inplace_all_done(const wagma_segment *s, int leader, int64_t version, int slices) {
    /* seq_cst: condition of a sleeper; acquires all slices. */
    return counted(atomic_load(&segment_sync(s, leader)->done[version & 1]), version) >=
           (uint64_t)slices;
}
