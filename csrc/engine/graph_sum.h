/* Shared by the executors of graphs: the neighbours of a version, and its result. */
#ifndef WAGMA_ENGINE_GRAPH_SUM_H
#define WAGMA_ENGINE_GRAPH_SUM_H

#include "engine/handle.h"
#include "protocol/graph.h"

/* Peers of one rank, numbered by their distance: the rank sends to ahead[k] and receives from
 * behind[k]. */
struct graph_peers {
    struct graph graph;
    int n; /* distances that occur at any version */
    int32_t ahead[GRAPH_DISTANCES_MAX], behind[GRAPH_DISTANCES_MAX];
};

void graph_peers_init(struct graph_peers *p, const wagma_options *o, int rank);

/* A contribution to the sum of a version. */
struct graph_part {
    int rank;
    double weight;
    const void *data; /* not read where weight is 0 */
};

/* Compute x and the outcome of the call from the contributions `parts`, which this function sorts.
 * They include the rank's own and omit those of departed ranks. `each`: neighbours of the version,
 * departed or not. */
void graph_sum(wagma_handle *h, struct graph_part *parts, int n, int each);

#endif
