/* The protocol of quorum "all" over the segment: how it reaches its words there, and its code,
 * which follows. The explorer compiles the same code with its own definitions
 * (tests/explore/quorum_all.c). */
#include <stdatomic.h>

#include "protocol/quorum_all.h"
#include "shm/quorum_all/record.h"
#include "shm/segment.h"

_Static_assert((int)QUORUM_ALL_STATE_DEPARTED == (int)SEGMENT_DEPARTED &&
                   (int)QUORUM_ALL_STATE_FAILED == (int)SEGMENT_FAILED,
               "QUORUM_ALL_STATE is the state of a rank");

#define QUORUM_ALL_ACCESS static inline __attribute__((always_inline))

QUORUM_ALL_ACCESS segment_atomic *quorum_all_word_of(const struct quorum_all_memory *m,
                                                     enum quorum_all_word word, int32_t r,
                                                     int parity) {
    const wagma_segment *s = (const wagma_segment *)m;
    switch (word) {
    case QUORUM_ALL_STAMP: return &quorum_all_record_of(s, r, parity)->stamp;
    case QUORUM_ALL_ARRIVE: return &segment_sync(s, r)->arrive;
    case QUORUM_ALL_FINISH: return &segment_sync(s, r)->finish;
    case QUORUM_ALL_SLICED: return &segment_sync(s, r)->sliced;
    case QUORUM_ALL_CLAIM: return &segment_sync(s, r)->claim[parity];
    case QUORUM_ALL_DONE: return &segment_sync(s, r)->done[parity];
    case QUORUM_ALL_STATE: /* another type */ break;
    }
    __builtin_unreachable();
}

QUORUM_ALL_ACCESS uint64_t quorum_all_load(struct quorum_all_memory *m, enum quorum_all_word w,
                                           int32_t r, int parity, memory_order order) {
    if (w == QUORUM_ALL_STATE)
        return atomic_load_explicit(&segment_presence_of((wagma_segment *)m, r)->state, order);
    return atomic_load_explicit(quorum_all_word_of(m, w, r, parity), order);
}
QUORUM_ALL_ACCESS void quorum_all_store(struct quorum_all_memory *m, enum quorum_all_word w,
                                        int32_t r, int parity, uint64_t value, memory_order order) {
    atomic_store_explicit(quorum_all_word_of(m, w, r, parity), value, order);
}
QUORUM_ALL_ACCESS int quorum_all_cas(struct quorum_all_memory *m, enum quorum_all_word w, int32_t r,
                                     int parity, uint64_t expected, uint64_t desired,
                                     memory_order order) {
    return atomic_compare_exchange_strong_explicit(quorum_all_word_of(m, w, r, parity), &expected,
                                                   desired, order, memory_order_relaxed);
}

/* Weight in the record of a rank that was seen to be published: data, not a word. */
QUORUM_ALL_ACCESS double quorum_all_weight(struct quorum_all_memory *m, int32_t r, int parity) {
    return quorum_all_record_of((const wagma_segment *)m, r, parity)->weight;
}

/* Return the fate of a rank. Costs a system call: for ranks that wait anyway. */
static inline enum quorum_all_fate quorum_all_fate_of(struct quorum_all_memory *m, int32_t r) {
    const wagma_segment *s = (const wagma_segment *)m;
    if (segment_is_dead(s, r))
        return QUORUM_ALL_LOST;
    /* acquire: pairs with segment_leave() */
    const uint32_t state =
        atomic_load_explicit(&segment_presence_of(s, r)->state, memory_order_acquire);
    return state == SEGMENT_DEPARTED ? QUORUM_ALL_DEPARTED : QUORUM_ALL_LIVES;
}

#include "protocol/quorum_all.c"
