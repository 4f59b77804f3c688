/* Grouping: which ranks reduce together at which version. Pure.
 *
 * Dynamic: P and S powers of two: Algorithm 1 of Li et al. 2021, Sec. 3. Otherwise ceil(P/S) groups
 * whose sizes differ by at most one. See topology.c for the tables and the mixing bound. Fixed: the
 * same at version 0. Pairs: drawn from (seed, version). */
#ifndef WAGMA_PROTOCOL_TOPOLOGY_H
#define WAGMA_PROTOCOL_TOPOLOGY_H

#include <stdint.h>

#include "include/wagma.h"

int topology_group_count(int size, int group_size);

/* Return the index (0..group_count-1) of `rank`'s group at `version` >= 0. O(log size) or O(1). */
int topology_group_index(int rank, int size, int group_size, int64_t version);

/* Write the members of the group, ascending, into members[]; return their number. No allocation. */
int topology_group(int rank, int size, int group_size, int64_t version, int32_t *members);

/* Return the other rank of `rank`'s pair, or `rank` itself if size is odd and it stays alone. O(1).
 */
int topology_partner(int rank, int size, uint64_t seed, int64_t version);

/* Rule by which the groups of a handle follow from the version. */
struct topology {
    int size, group_size;
    int grouping; /* wagma_grouping; PAIRS: group_size 2, or 1 where size is 1 */
    uint64_t seed;
};

/* As topology_group, by any grouping. */
int topology_members(const struct topology *topology, int rank, int64_t version, int32_t *members);

/* Return the number of versions within which every rank's update reaches every other (1 < S < P); 1
 * for S == P; 0 (never) for S == 1 and P > 1. */
int topology_mixing_bound(int size, int group_size);

#endif
