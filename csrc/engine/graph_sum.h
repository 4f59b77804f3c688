/* What the executors of graphs have in common: whom a version concerns, and what it gives. */
#ifndef WAGMA_ENGINE_GRAPH_SUM_H
#define WAGMA_ENGINE_GRAPH_SUM_H

#include "engine/handle.h"
#include "protocol/graph.h"

/* Of one rank. Peers are numbered by their distance: peer k is ahead[k] where the rank sends,
 * behind[k] where it receives. */
struct neighbor_peers {
    struct neighbors graph;
    int n; /* all that ever occur */
    int32_t ahead[NEIGHBORS_MAX], behind[NEIGHBORS_MAX];
};

void neighbor_peers_init(struct neighbor_peers *p, const wagma_options *o, int rank);

/* A contribution to the sum of a version. */
struct neighbor_part {
    int rank;
    double weight;
    const void *data; /* not read where weight is 0 */
};

/* x and the outcome of the call, from the contributions of `parts` (sorted here), the rank's own
 * among them; those of departed ranks are missing. `each`: neighbours of the version, departed or
 * not. */
void neighbor_sum(wagma_handle *h, struct neighbor_part *parts, int n, int each);

#endif
