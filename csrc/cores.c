/* Affinity masks of the ranks. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "cores.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(cpu_set_t) <= sizeof(segment_cores), "a mask fits into its line");

void cores_publish(const wagma_segment *s, int rank) {
    segment_cores *mine = segment_cores_of(s, rank);
    cpu_set_t mask;
    memset(mine, 0, sizeof *mine);
    if (sched_getaffinity(0, sizeof mask, &mask) == 0) /* otherwise it has too many CPUs */
        memcpy(mine, &mask, sizeof mask);
}

static int count(const segment_cores *cores) {
    int n = 0;
    for (int i = 0; i < SEGMENT_MASK_WORDS; i++)
        n += __builtin_popcountll(cores->mask[i]);
    return n;
}

static int overlap(const segment_cores *a, const segment_cores *b) {
    uint64_t common = 0;
    for (int i = 0; i < SEGMENT_MASK_WORDS; i++)
        common |= a->mask[i] & b->mask[i];
    return common != 0;
}

int cores_suffice(const wagma_segment *s) {
    for (int r = 0; r < s->size; r++) {
        const segment_cores *mine = segment_cores_of(s, r);
        const int cores = count(mine);
        int sharers = 0;
        if (cores == 0) /* not known */
            return sysconf(_SC_NPROCESSORS_ONLN) >= s->size;
        for (int q = 0; q < s->size; q++) {
            const segment_cores *other = segment_cores_of(s, q);
            if (memcmp(mine, other, sizeof *mine) == 0)
                sharers++;
            else if (overlap(mine, other))
                return 0;
        }
        if (sharers > cores)
            return 0;
    }
    return 1;
}
