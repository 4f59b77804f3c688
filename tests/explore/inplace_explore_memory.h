/* Stands in for csrc/shm/quorum_all/memory.c when protocol/quorum_all.c is compiled for the
 * explorer. */
#ifndef EXPLORE_INPLACE_MEMORY_H
#define EXPLORE_INPLACE_MEMORY_H

#include "inplace_model.h"

/* -- inplace_memory.c ---------------------------------------------------------------------------
 */
uint64_t inplace_load(struct inplace_memory *m, enum inplace_word w, int32_t r, int parity,
                      memory_order order);
void inplace_store(struct inplace_memory *m, enum inplace_word w, int32_t r, int parity,
                   uint64_t value, memory_order order);
int inplace_cas(struct inplace_memory *m, enum inplace_word w, int32_t r, int parity,
                uint64_t expected, uint64_t desired, memory_order order);
double inplace_weight(struct inplace_memory *m, int32_t r, int parity);
enum inplace_fate inplace_fate_of(struct inplace_memory *m, int32_t r);

#endif
