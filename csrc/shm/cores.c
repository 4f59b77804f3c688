/* Affinity masks of the ranks. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "shm/cores.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(cpu_set_t) <= sizeof(cores_mask), "a mask fits into its line");

void cores_publish(const wagma_segment *s, int rank) {
    cores_mask *mine = segment_cores_of(s, rank);
    cpu_set_t mask;
    memset(mine, 0, sizeof *mine);
    if (sched_getaffinity(0, sizeof mask, &mask) == 0) /* otherwise it has too many CPUs */
        memcpy(mine, &mask, sizeof mask);
}

static const cores_mask *mask_of(const void *segment, int rank) {
    return segment_cores_of(segment, rank);
}

int cores_suffice(const wagma_segment *s) {
    return cores_masks_suffice(mask_of, s, s->size, sysconf(_SC_NPROCESSORS_ONLN));
}
