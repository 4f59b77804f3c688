/* Quorum "majority": of the members that have not departed, the one with the lowest draw starts the
 * version. Draws differ from version to version, and are the same on all ranks. */
#ifndef WAGMA_PROTOCOL_STARTER_H
#define WAGMA_PROTOCOL_STARTER_H

#include "base/mix.h"

/* Return the one of two members that starts version t (counted from 1); `found` < 0: none yet.
 * `lowest` is the lowest rank of all members, departed ones included. */
static inline int starter(uint64_t seed, uint64_t t, uint32_t lowest, int found, int rank) {
    return found < 0 || mix_draw(seed, t, lowest, (uint32_t)rank) <
                            mix_draw(seed, t, lowest, (uint32_t)found)
               ? rank
               : found;
}

#endif
