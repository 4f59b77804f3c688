/* Who averages with whom in the graphs of D-PSGD and SGP. Pure.
 *
 * At every version rank r sends to r + d modulo P and receives from r - d, for the same few
 * distances d on all ranks. With n of them everybody gives 1/(n+1) of what it has to each of those
 * that it sends to, and keeps as much: the matrix A, A[r][j] the share of j's that goes to r, has
 * columns that sum to 1, and rows as well.
 *
 *   ring          1 and -1, at every version; one distance if P = 2, none if P = 1
 *   exponential   2^((t n + i) mod L) for i = 0..n-1 at version t, where L = ceil(log2 P);
 * directed. n > L: at every version all L and the smallest n - L others
 *
 * Of L successive versions of the latter each has n powers of two, and each power is in n of them:
 * one can be chosen from each, all different, so that everybody then has something of everybody. */
#ifndef WAGMA_PROTOCOL_GRAPH_H
#define WAGMA_PROTOCOL_GRAPH_H

#include <stdint.h>

#include "include/wagma.h"

/* All that ever occur: 2^GRAPH_DISTANCES_MAX exceeds the number of ranks. */
enum { GRAPH_DISTANCES_MAX = WAGMA_MAX_NEIGHBORS };
_Static_assert(WAGMA_MAX_RANKS <= 1 << GRAPH_DISTANCES_MAX,
               "every power of two below P is a distance");

struct graph {
    int size;
    int graph; /* wagma_graph, not NONE */
    int each;  /* EXPONENTIAL: n */
};

/* The largest `each` of an exponential graph: 1 where there is nobody else. */
int graph_neighbors_most(int size);

/* All distances of the graph, each in 1..size-1, into distances[GRAPH_DISTANCES_MAX]; their number.
 */
int graph_distances(const struct graph *n, int32_t *distances);

/* Those of `version` >= 0, as ascending indices of the former; their number. */
int graph_distances_at(const struct graph *n, int64_t version, int32_t *indices);

/* Who is `distance` ahead of a rank, to which it sends; and behind it, from which it receives. */
static inline int graph_ahead(int rank, int size, int distance) {
    return (int)(((int64_t)rank + distance) % size);
}
static inline int graph_behind(int rank, int size, int distance) {
    return (int)(((int64_t)rank + size - distance) % size);
}

/* The ranks from which `rank` receives at `version`, ascending, into in[GRAPH_DISTANCES_MAX]; their
 * number. */
int graph_in(const struct graph *n, int rank, int64_t version, int32_t *in);

#endif
