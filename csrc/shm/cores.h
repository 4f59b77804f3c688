/* Tells whether each rank can have a core to itself: only then spinning pays. A rank that is bound
 * to one core sees only that core, so each rank publishes its affinity mask in its line of the
 * segment. */
#ifndef WAGMA_SHM_CORES_H
#define WAGMA_SHM_CORES_H

#include "shm/segment.h"

/* Publish the affinity mask of the calling thread as `rank`'s, before its state is READY. */
void cores_publish(const wagma_segment *s, int rank);

/* Return 1 if each rank can have a core to itself; call it when every rank's state is READY. Ranks
 * with equal masks share those cores; if masks overlap but differ, the answer is 0. */
int cores_suffice(const wagma_segment *s);

#endif
