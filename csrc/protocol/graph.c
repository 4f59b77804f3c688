#include "protocol/graph.h"

/* ceil(log2 size). */
static int powers(int size) {
    int n = 0;
    while (1 << n < size)
        n++;
    return n;
}

int graph_neighbors_most(int size) {
    const int others = size > 1 ? size - 1 : 1;
    return others < GRAPH_DISTANCES_MAX ? others : GRAPH_DISTANCES_MAX;
}

int graph_distances(const struct graph *n, int32_t *distances) {
    int count = 0;
    if (n->graph == WAGMA_GRAPH_EXPONENTIAL) {
        for (; count < powers(n->size); count++)
            distances[count] = 1 << count;
        for (int32_t d = 3; count < n->each && d < n->size; d++)
            if (d & (d - 1)) /* no power of two */
                distances[count++] = d;
        return count;
    }
    if (n->size > 1)
        distances[count++] = 1;
    if (n->size > 2)
        distances[count++] = n->size - 1;
    return count;
}

int graph_distances_at(const struct graph *n, int64_t version, int32_t *indices) {
    int32_t distances[GRAPH_DISTANCES_MAX];
    const int all = graph_distances(n, distances);
    const int each = n->graph == WAGMA_GRAPH_RING || n->each > all ? all : n->each;
    const int first = all ? (int)(version % all * each % all) : 0;
    const int wrapped = first + each > all ? first + each - all : 0; /* these come first */
    for (int i = 0; i < each; i++)
        indices[i] = i < wrapped ? i : first + i - wrapped;
    return each;
}

int graph_in(const struct graph *n, int rank, int64_t version, int32_t *in) {
    int32_t distances[GRAPH_DISTANCES_MAX], indices[GRAPH_DISTANCES_MAX];
    const int each = graph_distances_at(n, version, indices);
    graph_distances(n, distances);
    for (int i = 0; i < each; i++) {
        const int32_t r = graph_behind(rank, n->size, distances[indices[i]]);
        int place = i;
        for (; place > 0 && in[place - 1] > r; place--)
            in[place] = in[place - 1];
        in[place] = r;
    }
    return each;
}
