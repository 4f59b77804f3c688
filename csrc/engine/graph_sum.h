/* What the executors of graphs have in common: whom a version concerns, and what it gives. */
#ifndef WAGMA_ENGINE_GRAPH_SUM_H
#define WAGMA_ENGINE_GRAPH_SUM_H

#include "engine/handle.h"
#include "protocol/graph.h"

/* Peers of one rank, which are numbered by their distance: peer k is ahead[k] where the rank sends,
 * behind[k] where it receives. */
struct graph_peers {
    struct graph graph;
    int n; /* all that ever occur */
    int32_t ahead[GRAPH_DISTANCES_MAX], behind[GRAPH_DISTANCES_MAX];
};

void graph_peers_init(struct graph_peers *p, const wagma_options *o, int rank);

/* A contribution to the sum of a version. */
struct graph_part {
    int rank;
    double weight;
    const void *data; /* not read where weight is 0 */
};

/* x and the outcome of the call, from the contributions of `parts` (sorted here), the rank's own
 * among them; those of departed ranks are missing. `each`: neighbours of the version, departed or
 * not. */
void graph_sum(wagma_handle *h, struct graph_part *parts, int n, int each);

#endif
