/* The protocol of quorum "all" over the segment: how it reaches its words there, and its code,
 * which follows. The explorer compiles the same code with its own definitions
 * (tests/explore/inplace.c). */
#include <stdatomic.h>

#include "protocol/quorum_all.h"
#include "shm/quorum_all/record.h"
#include "shm/segment.h"

_Static_assert((int)INPLACE_STATE_DEPARTED == (int)SEGMENT_DEPARTED &&
                   (int)INPLACE_STATE_FAILED == (int)SEGMENT_FAILED,
               "INPLACE_STATE is the state of a rank");

#define INPLACE_ACCESS static inline __attribute__((always_inline))

INPLACE_ACCESS segment_atomic *inplace_word_of(const struct inplace_memory *m,
                                               enum inplace_word word, int32_t r, int parity) {
    const wagma_segment *s = (const wagma_segment *)m;
    switch (word) {
    case INPLACE_STAMP:
        return &inplace_record_of(s, r, parity)->stamp;
    case INPLACE_ARRIVE:
        return &segment_sync(s, r)->arrive;
    case INPLACE_FINISH:
        return &segment_sync(s, r)->finish;
    case INPLACE_SLICED:
        return &segment_sync(s, r)->sliced;
    case INPLACE_CLAIM:
        return &segment_sync(s, r)->claim[parity];
    case INPLACE_DONE:
        return &segment_sync(s, r)->done[parity];
    case INPLACE_STATE: /* another type */
        break;
    }
    __builtin_unreachable();
}

INPLACE_ACCESS uint64_t inplace_load(struct inplace_memory *m, enum inplace_word w, int32_t r,
                                     int parity, memory_order order) {
    if (w == INPLACE_STATE)
        return atomic_load_explicit(&segment_presence_of((wagma_segment *)m, r)->state, order);
    return atomic_load_explicit(inplace_word_of(m, w, r, parity), order);
}
INPLACE_ACCESS void inplace_store(struct inplace_memory *m, enum inplace_word w, int32_t r,
                                  int parity, uint64_t value, memory_order order) {
    atomic_store_explicit(inplace_word_of(m, w, r, parity), value, order);
}
INPLACE_ACCESS int inplace_cas(struct inplace_memory *m, enum inplace_word w, int32_t r, int parity,
                               uint64_t expected, uint64_t desired, memory_order order) {
    return atomic_compare_exchange_strong_explicit(inplace_word_of(m, w, r, parity), &expected,
                                                   desired, order, memory_order_relaxed);
}

/* Weight in the record of a rank that was seen to be published: data, not a word. */
INPLACE_ACCESS double inplace_weight(struct inplace_memory *m, int32_t r, int parity) {
    return inplace_record_of((const wagma_segment *)m, r, parity)->weight;
}

/* What has become of a rank. A system call: for those who wait anyway. */
static inline enum inplace_fate inplace_fate_of(struct inplace_memory *m, int32_t r) {
    const wagma_segment *s = (const wagma_segment *)m;
    if (segment_is_dead(s, r))
        return INPLACE_LOST;
    /* acquire: pairs with segment_leave() */
    const uint32_t state =
        atomic_load_explicit(&segment_presence_of(s, r)->state, memory_order_acquire);
    return state == SEGMENT_DEPARTED ? INPLACE_DEPARTED : INPLACE_LIVES;
}

#include "protocol/quorum_all.c"
