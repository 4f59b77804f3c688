/* Stands in for csrc/shm/quorum_all/memory.c when protocol/quorum_all.c is compiled for the
 * explorer. */
#ifndef EXPLORE_QUORUM_ALL_MEMORY_H
#define EXPLORE_QUORUM_ALL_MEMORY_H

#include "quorum_all_model.h"

/* ---- quorum_all_memory.c --------------------------------------------------------------------- */
uint64_t quorum_all_load(struct quorum_all_memory *m, enum quorum_all_word w, int32_t r, int parity,
                         memory_order order);
void quorum_all_store(struct quorum_all_memory *m, enum quorum_all_word w, int32_t r, int parity,
                      uint64_t value, memory_order order);
int quorum_all_cas(struct quorum_all_memory *m, enum quorum_all_word w, int32_t r, int parity,
                   uint64_t expected, uint64_t desired, memory_order order);
double quorum_all_weight(struct quorum_all_memory *m, int32_t r, int parity);
enum quorum_all_fate quorum_all_fate_of(struct quorum_all_memory *m, int32_t r);

#endif
