/* Tells whether each rank of a node can have a core to itself. Pure; used by ranks that share a
 * segment (cores.c) and by ranks that only know each other's masks (mpi/). */
#ifndef WAGMA_BASE_CORES_MASK_H
#define WAGMA_BASE_CORES_MASK_H

#include <stdint.h>
#include <string.h>

enum { CORES_MASK_WORDS = 16 }; /* 1024 cores, as cpu_set_t */

typedef struct cores_mask {
    uint64_t word[CORES_MASK_WORDS]; /* all 0: not known */
} cores_mask;

static inline int cores_mask_count(const cores_mask *mask) {
    int n = 0;
    for (int i = 0; i < CORES_MASK_WORDS; i++)
        n += __builtin_popcountll(mask->word[i]);
    return n;
}

static inline int cores_masks_overlap(const cores_mask *a, const cores_mask *b) {
    uint64_t common = 0;
    for (int i = 0; i < CORES_MASK_WORDS; i++)
        common |= a->word[i] & b->word[i];
    return common != 0;
}

/* Return 1 if each rank can have a core to itself. Ranks with equal masks share those cores; if
 * masks overlap but differ, the answer is 0. `of(context, r)` is the mask of rank r; `online` is
 * the number of cores of the node, used if a mask is not known. */
static inline int cores_masks_suffice(const cores_mask *(*of)(const void *, int),
                                      const void *context, int ranks, long online) {
    for (int r = 0; r < ranks; r++) {
        const cores_mask *mine = of(context, r);
        const int cores = cores_mask_count(mine);
        int sharers = 0;
        if (cores == 0)
            return online >= ranks;
        for (int q = 0; q < ranks; q++) {
            const cores_mask *other = of(context, q);
            if (memcmp(mine, other, sizeof *mine) == 0)
                sharers++;
            else if (cores_masks_overlap(mine, other))
                return 0;
        }
        if (sharers > cores)
            return 0;
    }
    return 1;
}

#endif
