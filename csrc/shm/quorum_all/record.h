/* A rank's record of a version of quorum "all". */
#ifndef WAGMA_SHM_QUORUM_ALL_RECORD_H
#define WAGMA_SHM_QUORUM_ALL_RECORD_H

#include "shm/segment.h"

enum {
    QUORUM_ALL_LINE = 64,   /* bytes that a transfer between caches takes */
    QUORUM_ALL_INLINE = 48, /* payload bytes in the record's line */
    QUORUM_ALL_NOWHERE = 0, /* as `where`: the array is private */
};

typedef struct quorum_all_record {
    segment_atomic stamp; /* QUORUM_ALL_STAMP */
    double weight;
    union {
        unsigned char payload[QUORUM_ALL_INLINE];
        struct {            /* of a large payload */
            uint64_t where; /* its offset in the owner's region, or QUORUM_ALL_NOWHERE: */
            uint64_t x;     /* then its address in the owner's memory */
            uint64_t cookie, cookie_at; /* number that identifies the owner's process */
            uint32_t may_read;          /* 1: the owner may read all other members' memory */
            uint32_t would_read;        /* 1: and expects that to be faster than chunks */
        };
    };
} quorum_all_record;
_Static_assert(sizeof(quorum_all_record) == QUORUM_ALL_LINE, "a tiny contribution is one transfer");

static inline quorum_all_record *quorum_all_record_of(const wagma_segment *s, int rank,
                                                      int parity) {
    return (quorum_all_record *)segment_flat(s, rank, parity);
}
/* Return the payload of a small contribution. */
static inline unsigned char *quorum_all_payload(const wagma_segment *s, quorum_all_record *record) {
    return s->bytes_n <= QUORUM_ALL_INLINE ? record->payload : (unsigned char *)(record + 1);
}
/* Return 1 if payloads lie in the records, and every rank reduces all of them. */
static inline int quorum_all_is_small(const wagma_segment *s) {
    return s->bytes_n <= SEGMENT_FLAT_MAX;
}
/* Return the bytes of a record with the payload behind it. */
static inline size_t quorum_all_record_bytes(const wagma_segment *s) {
    const int behind = quorum_all_is_small(s) && s->bytes_n > QUORUM_ALL_INLINE;
    return sizeof(quorum_all_record) + (behind ? s->bytes_n : 0);
}

#endif
