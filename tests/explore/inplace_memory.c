/* The operations that protocol/quorum_all.c is compiled against: sequentially consistent. */
#include "inplace_explore_memory.h"

enum { COUNT_BITS = 8 };

/* 16 bits for a word: (version + 1) 7 | count 8 of a claim or a count, small numbers otherwise. */
static uint16_t encode(int word, uint64_t value) {
    if (word != INPLACE_CLAIM && word != INPLACE_DONE)
        return (uint16_t)value;
    const uint64_t count = value & ((UINT64_C(1) << INPLACE_SLICE_BITS) - 1);
    return (uint16_t)(value >> INPLACE_SLICE_BITS << COUNT_BITS | count);
}

uint64_t inplace_decode(int word, uint16_t cell) {
    if (word != INPLACE_CLAIM && word != INPLACE_DONE)
        return cell;
    return (uint64_t)(cell >> COUNT_BITS) << INPLACE_SLICE_BITS | (cell & ((1u << COUNT_BITS) - 1));
}

static uint16_t *record(struct inplace_memory *m, const char *name, enum inplace_word w, int32_t r,
                        int parity, memory_order order) {
    uint16_t *cell = inplace_cell(m, (int)w, r, parity);
    m->accesses++;
    m->access = (struct inplace_access){name, (int)w, r, parity, (int)order, 1, 0, 0};
    m->access.before = m->access.after = inplace_decode((int)w, *cell);
    return cell;
}

uint64_t inplace_load(struct inplace_memory *m, enum inplace_word w, int32_t r, int parity,
                      memory_order order) {
    (void)record(m, "load", w, r, parity, order);
    return m->access.before;
}

void inplace_store(struct inplace_memory *m, enum inplace_word w, int32_t r, int parity,
                   uint64_t value, memory_order order) {
    uint16_t *cell = record(m, "store", w, r, parity, order);
    m->access.after = value;
    *cell = encode((int)w, value);
}

int inplace_cas(struct inplace_memory *m, enum inplace_word w, int32_t r, int parity,
                uint64_t expected, uint64_t desired, memory_order order) {
    uint16_t *cell = record(m, "cas", w, r, parity, order);
    m->access.done = m->access.before == expected;
    if (m->access.done) {
        m->access.after = desired;
        *cell = encode((int)w, desired);
    }
    return m->access.done;
}

double inplace_weight(struct inplace_memory *m, int32_t r, int parity) {
    const struct inplace_config *g = m->config;
    inplace_check_weight(m, r, parity);
    const int t = *inplace_cell(m, KIND_RECORD, r, parity) - 1;
    if (t < 0 || t >= INPLACE_PROGRAM)
        return 0; /* a violation */
    return g->program[r][t] == 'z' || g->program[r][t] == 'y' ? 0 : 1;
}

/* The environment's word: the lock of a rank's byte is free, or its state says so. */
enum inplace_fate inplace_fate_of(struct inplace_memory *m, int32_t r) {
    (void)record(m, "fate", INPLACE_STATE, r, 0, memory_order_acquire);
    if (inplace_is_lost(m, r))
        return INPLACE_LOST;
    return m->access.before == INPLACE_STATE_DEPARTED ? INPLACE_DEPARTED : INPLACE_LIVES;
}
