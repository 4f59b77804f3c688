/* Neighbours in the graphs of D-PSGD and SGP. Pure.
 *
 * At every version rank r sends to r + d modulo P and receives from r - d, for the same few
 * distances d on all ranks. With n distances every rank gives the share 1/(n+1) of its array to
 * each rank that it sends to, and keeps the same share. In the mixing matrix A, A[r][j] is the
 * share of j's array that goes to r; its columns and its rows sum to 1.
 *
 *   ring          1 and -1, at every version; one distance if P = 2, none if P = 1
 *   exponential   2^((t n + i) mod L) for i = 0..n-1 at version t, where L = ceil(log2 P);
 *                 directed. n > L: at every version all L and the smallest n - L others
 *
 * In L successive versions of an exponential graph, each version has n powers of two, and each
 * power occurs in n versions. So one power can be chosen from each version, all different: after L
 * versions every rank's array contains a part of every other rank's. */
#ifndef WAGMA_PROTOCOL_GRAPH_H
#define WAGMA_PROTOCOL_GRAPH_H

#include <stdint.h>

#include "include/wagma.h"

/* Most distances that a graph can have: 2^GRAPH_DISTANCES_MAX exceeds the number of ranks. */
enum { GRAPH_DISTANCES_MAX = WAGMA_MAX_NEIGHBORS };
_Static_assert(WAGMA_MAX_RANKS <= 1 << GRAPH_DISTANCES_MAX,
               "every power of two below P is a distance");

struct graph {
    int size;
    int graph; /* wagma_graph, not NONE */
    int each;  /* EXPONENTIAL: n */
};

/* Return the largest `each` of an exponential graph; 1 if there is only one rank. */
int graph_neighbors_most(int size);

/* Write all distances of the graph, each in 1..size-1, into distances[GRAPH_DISTANCES_MAX]; return
 * their number. */
int graph_distances(const struct graph *n, int32_t *distances);

/* Write the distances of `version` >= 0, as ascending indices into the array of graph_distances();
 * return their number. */
int graph_distances_at(const struct graph *n, int64_t version, int32_t *indices);

/* Return the rank that is `distance` ahead, to which `rank` sends, or behind, from which it
 * receives. */
static inline int graph_ahead(int rank, int size, int distance) {
    return (int)(((int64_t)rank + distance) % size);
}
static inline int graph_behind(int rank, int size, int distance) {
    return (int)(((int64_t)rank + size - distance) % size);
}

/* Write the ranks from which `rank` receives at `version`, ascending, into in[GRAPH_DISTANCES_MAX];
 * return their number. */
int graph_in(const struct graph *n, int rank, int64_t version, int32_t *in);

#endif
