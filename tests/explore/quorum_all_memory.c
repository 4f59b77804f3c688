/* The operations that protocol/quorum_all.c is compiled against: sequentially consistent. */
#include "quorum_all_explore_memory.h"

enum { COUNT_BITS = 8 };

/* 16 bits for a word: (version + 1) 7 | count 8 of a claim or a count, small numbers otherwise. */
static uint16_t encode(int word, uint64_t value) {
    if (word != QUORUM_ALL_CLAIM && word != QUORUM_ALL_DONE)
        return (uint16_t)value;
    const uint64_t count = value & ((UINT64_C(1) << QUORUM_ALL_SLICE_BITS) - 1);
    return (uint16_t)(value >> QUORUM_ALL_SLICE_BITS << COUNT_BITS | count);
}

uint64_t quorum_all_decode(int word, uint16_t cell) {
    if (word != QUORUM_ALL_CLAIM && word != QUORUM_ALL_DONE)
        return cell;
    return (uint64_t)(cell >> COUNT_BITS) << QUORUM_ALL_SLICE_BITS |
           (cell & ((1u << COUNT_BITS) - 1));
}

static uint16_t *record(struct quorum_all_memory *m, const char *name, enum quorum_all_word w,
                        int32_t r, int parity, memory_order order) {
    uint16_t *cell = quorum_all_cell(m, (int)w, r, parity);
    m->accesses++;
    m->access = (struct quorum_all_access){name, (int)w, r, parity, (int)order, 1, 0, 0};
    m->access.before = m->access.after = quorum_all_decode((int)w, *cell);
    return cell;
}

uint64_t quorum_all_load(struct quorum_all_memory *m, enum quorum_all_word w, int32_t r, int parity,
                         memory_order order) {
    (void)record(m, "load", w, r, parity, order);
    return m->access.before;
}

void quorum_all_store(struct quorum_all_memory *m, enum quorum_all_word w, int32_t r, int parity,
                      uint64_t value, memory_order order) {
    uint16_t *cell = record(m, "store", w, r, parity, order);
    m->access.after = value;
    *cell = encode((int)w, value);
}

int quorum_all_cas(struct quorum_all_memory *m, enum quorum_all_word w, int32_t r, int parity,
                   uint64_t expected, uint64_t desired, memory_order order) {
    uint16_t *cell = record(m, "cas", w, r, parity, order);
    m->access.done = m->access.before == expected;
    if (m->access.done) {
        m->access.after = desired;
        *cell = encode((int)w, desired);
    }
    return m->access.done;
}

double quorum_all_weight(struct quorum_all_memory *m, int32_t r, int parity) {
    const struct quorum_all_config *g = m->config;
    quorum_all_check_weight(m, r, parity);
    const int t = *quorum_all_cell(m, KIND_RECORD, r, parity) - 1;
    if (t < 0 || t >= QUORUM_ALL_PROGRAM)
        return 0; /* a violation */
    return g->program[r][t] == 'z' || g->program[r][t] == 'y' ? 0 : 1;
}

/* The environment's word: the lock of a rank's byte is free, or its state says so. */
enum quorum_all_fate quorum_all_fate_of(struct quorum_all_memory *m, int32_t r) {
    (void)record(m, "fate", QUORUM_ALL_STATE, r, 0, memory_order_acquire);
    if (quorum_all_is_lost(m, r))
        return QUORUM_ALL_LOST;
    return m->access.before == QUORUM_ALL_STATE_DEPARTED ? QUORUM_ALL_DEPARTED : QUORUM_ALL_LIVES;
}
