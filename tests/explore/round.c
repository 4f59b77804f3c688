/* The round protocol, compiled with the explorer's memory instead of csrc/shm/avoiding/memory.c. */
#include "model.h"

static inline uint64_t round_load(struct round_memory *m, enum round_word w, uint32_t i, uint32_t j,
                                  memory_order order) {
    return model_load(m, (int)w, i, j, (int)order);
}
static inline void round_store(struct round_memory *m, enum round_word w, uint32_t i, uint32_t j,
                               uint64_t value, memory_order order) {
    model_store(m, (int)w, i, j, value, (int)order);
}
static inline int round_cas(struct round_memory *m, enum round_word w, uint32_t i, uint32_t j,
                            uint64_t *expected, uint64_t desired, memory_order order) {
    return model_cas(m, (int)w, i, j, expected, desired, (int)order);
}
static inline uint64_t round_swap(struct round_memory *m, enum round_word w, uint32_t i, uint32_t j,
                                  uint64_t value, memory_order order) {
    return model_rmw(m, RMW_SWAP, (int)w, i, j, value, (int)order);
}
static inline uint64_t round_add(struct round_memory *m, enum round_word w, uint32_t i, uint32_t j,
                                 uint64_t value, memory_order order) {
    return model_rmw(m, RMW_ADD, (int)w, i, j, value, (int)order);
}
static inline uint64_t round_sub(struct round_memory *m, enum round_word w, uint32_t i, uint32_t j,
                                 uint64_t value, memory_order order) {
    return model_rmw(m, RMW_SUB, (int)w, i, j, value, (int)order);
}
static inline uint64_t round_or(struct round_memory *m, enum round_word w, uint32_t i, uint32_t j,
                                uint64_t value, memory_order order) {
    return model_rmw(m, RMW_OR, (int)w, i, j, value, (int)order);
}

#include "protocol/round.c"
