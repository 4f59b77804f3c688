/* Draws that every rank makes alike: a 64-bit finaliser (Stafford's variant 13, as in splitmix64).
 */
#ifndef WAGMA_BASE_MIX_H
#define WAGMA_BASE_MIX_H

#include <stdint.h>

static inline uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Return the draw of a rank for version t of the members of which `lowest` is the lowest rank. */
static inline uint64_t mix_draw(uint64_t seed, uint64_t t, uint32_t lowest, uint32_t rank) {
    return mix(seed ^ mix(t ^ mix((uint64_t)lowest << 32 | rank)));
}

#endif
