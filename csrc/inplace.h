/* The shared words of quorum "all": who has arrived at a version, and who computes which slice.
 * No waiting, no data; executor_inplace.c does both, with executor_inplace_wait.c.
 *
 * A rank's record of version t lies in its flat[t mod 2] (one line with up to 48 bytes of payload,
 * so that a tiny message is one transfer between caches). The rank may write the record of t + 2
 * there once everybody in its group of t has finished t.
 *
 *            publish                      arrived everywhere             all slices done
 *   idle ----------------> published ----------------------> slicing -----------------> idle,
 * finish = t
 *
 * Slices are claimed in words of the version's leader, the first member that has not departed.
 * They are stamped with the version and only grow, so nobody has to reset them:
 *
 *   claim, done:   (version + 1) << 24 | slices claimed / done       older stamp: none yet */
#ifndef WAGMA_INPLACE_H
#define WAGMA_INPLACE_H

#include "segment.h"

enum {
    INPLACE_SLICE_BITS = 24,
    INPLACE_SLICES_MAX = 1 << 16,
    INPLACE_INLINE = 48, /* payload bytes in the record's line */
};

typedef struct inplace_record {
    segment_atomic stamp; /* (version + 1) << 1 | sync */
    double weight;
    union {
        unsigned char payload[INPLACE_INLINE];
        uint64_t where; /* offset of a large payload in the owner's region */
    };
} inplace_record;

enum inplace_presence {
    INPLACE_AWAITED,
    INPLACE_HERE,
    INPLACE_DEPARTED, /* before this version */
    INPLACE_MISMATCH, /* it took this version with another scope (sync or not) */
};

static inline uint64_t inplace_stamp(int64_t version, int sync) {
    return ((uint64_t)version + 1) << 1 | (sync != 0);
}
static inline int64_t inplace_stamp_version(uint64_t stamp) {
    return (int64_t)(stamp >> 1) - 1;
}

static inline inplace_record *inplace_record_of(const wagma_segment *s, int rank, int64_t version) {
    return (inplace_record *)segment_flat(s, rank, (int)(version & 1));
}
/* Where the payload of a small contribution is. */
static inline unsigned char *inplace_payload(const wagma_segment *s, inplace_record *record) {
    return s->bytes_n <= INPLACE_INLINE ? record->payload : (unsigned char *)(record + 1);
}

/* Makes the record, whose weight and payload have been written, visible. */
void inplace_publish(const wagma_segment *s, int rank, int64_t version, int sync);
enum inplace_presence inplace_look(const wagma_segment *s, int rank, int64_t version, int sync);

/* 1: `rank` reads nothing of `version` any more, or has departed. */
int inplace_has_finished(const wagma_segment *s, int rank, int64_t version);
void inplace_finish_version(const wagma_segment *s, int rank, int64_t version);

/* The rank has no unfinished slice of `version` and claims no more. */
int inplace_has_sliced(const wagma_segment *s, int rank, int64_t version);
void inplace_end_slicing(const wagma_segment *s, int rank, int64_t version);

/* The oldest of the newest versions at which the ranks have arrived; departed ones do not count.
 * INT64_MAX if all have departed. */
int64_t inplace_slowest(const wagma_segment *s);
/* 1: `rank` has not arrived at `version`, and has not departed. */
int inplace_is_behind(const wagma_segment *s, int rank, int64_t version);

/* A slice that nobody else has, or -1. */
int inplace_claim(const wagma_segment *s, int leader, int64_t version, int slices);
/* A claimed slice is done; 1: it was the last. */
int inplace_complete(const wagma_segment *s, int leader, int64_t version, int slices);
int inplace_all_done(const wagma_segment *s, int leader, int64_t version, int slices);

#endif
