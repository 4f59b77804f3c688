#include "protocol/graph.h"

/* ceil(log2 size). */
static int powers(int size) {
    int n = 0;
    while (1 << n < size)
        n++;
    return n;
}

int neighbors_most(int size) {
    const int others = size > 1 ? size - 1 : 1;
    return others < NEIGHBORS_MAX ? others : NEIGHBORS_MAX;
}

int neighbors_distances(const struct neighbors *n, int32_t *distances) {
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

int neighbors_at(const struct neighbors *n, int64_t version, int32_t *indices) {
    int32_t distances[NEIGHBORS_MAX];
    const int all = neighbors_distances(n, distances);
    const int each = n->graph == WAGMA_GRAPH_RING || n->each > all ? all : n->each;
    const int first = all ? (int)(version % all * each % all) : 0;
    const int wrapped = first + each > all ? first + each - all : 0; /* these come first */
    for (int i = 0; i < each; i++)
        indices[i] = i < wrapped ? i : first + i - wrapped;
    return each;
}

int neighbors_in(const struct neighbors *n, int rank, int64_t version, int32_t *in) {
    int32_t distances[NEIGHBORS_MAX], indices[NEIGHBORS_MAX];
    const int each = neighbors_at(n, version, indices);
    neighbors_distances(n, distances);
    for (int i = 0; i < each; i++) {
        const int32_t r = neighbors_behind(rank, n->size, distances[indices[i]]);
        int place = i;
        for (; place > 0 && in[place - 1] > r; place--)
            in[place] = in[place - 1];
        in[place] = r;
    }
    return each;
}
