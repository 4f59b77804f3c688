/* The round protocol over the segment: how it reaches its words there, and its code, which follows.
 * The explorer compiles the same code with its own definitions (tests/explore/round.c). */
#include "protocol/round.h"
#include "shm/segment.h"

static inline segment_atomic *round_word_of(const struct round_memory *memory, enum round_word word,
                                            uint32_t i, uint32_t j) {
    const wagma_segment *s = (const wagma_segment *)memory;
    switch (word) {
    case ROUND_PUB: return segment_pub(s, (int)i);
    case ROUND_AT: return segment_at(s, (int)i);
    case ROUND_HOLD: return segment_hold(s, (int)i);
    case ROUND_SLOT: return segment_slot(s, (int)i, (int)j);
    case ROUND_CREF: return segment_cref(s, (int)i, (int)j);
    case ROUND_DISPUTE: return segment_dispute(s);
    case ROUND_HEAD: return &segment_round_of(s, i)->head;
    case ROUND_IN: return segment_round_in(s, i, (int)j);
    case ROUND_REFS: return &segment_round_of(s, i)->refs;
    case ROUND_USERS: return &segment_round_of(s, i)->users;
    case ROUND_NEXT: return &segment_round_of(s, i)->next;
    case ROUND_DONE: return &segment_round_of(s, i)->done;
    case ROUND_FREE: return &segment_round_of(s, i)->free;
    }
    __builtin_unreachable();
}

#define ROUND_ACCESS static inline __attribute__((always_inline))

ROUND_ACCESS uint64_t round_load(struct round_memory *m, enum round_word w, uint32_t i, uint32_t j,
                                 memory_order order) {
    return atomic_load_explicit(round_word_of(m, w, i, j), order);
}
ROUND_ACCESS void round_store(struct round_memory *m, enum round_word w, uint32_t i, uint32_t j,
                              uint64_t value, memory_order order) {
    atomic_store_explicit(round_word_of(m, w, i, j), value, order);
}
ROUND_ACCESS int round_cas(struct round_memory *m, enum round_word w, uint32_t i, uint32_t j,
                           uint64_t *expected, uint64_t desired, memory_order order) {
    return atomic_compare_exchange_strong_explicit(round_word_of(m, w, i, j), expected, desired,
                                                   order, memory_order_acquire);
}
ROUND_ACCESS uint64_t round_swap(struct round_memory *m, enum round_word w, uint32_t i, uint32_t j,
                                 uint64_t value, memory_order order) {
    return atomic_exchange_explicit(round_word_of(m, w, i, j), value, order);
}
ROUND_ACCESS uint64_t round_add(struct round_memory *m, enum round_word w, uint32_t i, uint32_t j,
                                uint64_t value, memory_order order) {
    return atomic_fetch_add_explicit(round_word_of(m, w, i, j), value, order);
}
ROUND_ACCESS uint64_t round_sub(struct round_memory *m, enum round_word w, uint32_t i, uint32_t j,
                                uint64_t value, memory_order order) {
    return atomic_fetch_sub_explicit(round_word_of(m, w, i, j), value, order);
}
ROUND_ACCESS uint64_t round_or(struct round_memory *m, enum round_word w, uint32_t i, uint32_t j,
                               uint64_t value, memory_order order) {
    return atomic_fetch_or_explicit(round_word_of(m, w, i, j), value, order);
}

#include "protocol/round.c"
