/* Whether the ranks can each have a core: only then it pays to spin. A rank that is bound to one
 * core sees nothing but that core, so each tells the others, in its line of the segment, where it
 * may run. */
#ifndef WAGMA_SHM_CORES_H
#define WAGMA_SHM_CORES_H

#include "shm/segment.h"

/* The affinity mask of the calling thread becomes rank's. Before its state says READY. */
void cores_publish(const wagma_segment *s, int rank);

/* After every rank's state says READY: 1 if each can have a core to itself. Ranks with equal masks
 * share those cores; where masks overlap but differ, the answer is 0. */
int cores_suffice(const wagma_segment *s);

#endif
