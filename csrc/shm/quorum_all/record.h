/* A rank's record of a version of quorum "all". */
#ifndef WAGMA_SHM_QUORUM_ALL_RECORD_H
#define WAGMA_SHM_QUORUM_ALL_RECORD_H

#include "shm/segment.h"

enum {
    INPLACE_LINE = 64,   /* bytes that a transfer between caches takes */
    INPLACE_INLINE = 48, /* payload bytes in the record's line */
    INPLACE_NOWHERE = 0, /* as `where`: the array is private */
};

typedef struct inplace_record {
    segment_atomic stamp; /* INPLACE_STAMP */
    double weight;
    union {
        unsigned char payload[INPLACE_INLINE];
        struct {                        /* of a large payload */
            uint64_t where;             /* its offset in the owner's region, or INPLACE_NOWHERE: */
            uint64_t x;                 /* then its address in the owner's memory, */
            uint64_t cookie, cookie_at; /* what tells that memory from another process's, */
            uint32_t may_read;          /* the owner may read that of all other members, */
            uint32_t would_read;        /* and holds that to be faster than passing chunks */
        };
    };
} inplace_record;
_Static_assert(sizeof(inplace_record) == INPLACE_LINE, "a tiny contribution is one transfer");

static inline inplace_record *inplace_record_of(const wagma_segment *s, int rank, int parity) {
    return (inplace_record *)segment_flat(s, rank, parity);
}
/* Where the payload of a small contribution is. */
static inline unsigned char *inplace_payload(const wagma_segment *s, inplace_record *record) {
    return s->bytes_n <= INPLACE_INLINE ? record->payload : (unsigned char *)(record + 1);
}
/* 1: payloads lie in the records, and every rank reduces all of them. */
static inline int inplace_is_small(const wagma_segment *s) {
    return s->bytes_n <= SEGMENT_FLAT_MAX;
}
/* Of a record with the payload behind it. */
static inline size_t inplace_record_bytes(const wagma_segment *s) {
    const int behind = inplace_is_small(s) && s->bytes_n > INPLACE_INLINE;
    return sizeof(inplace_record) + (behind ? s->bytes_n : 0);
}

#endif
