/* All shares of a version are 1/(each+1), so that they are taken once from the sum instead of from
 * every weight: a mean of equal values is that value, and no share is rounded to the type. */
#include "engine/graph_sum.h"

void graph_peers_init(struct graph_peers *p, const wagma_options *o, int rank) {
    int32_t distances[GRAPH_DISTANCES_MAX];
    p->graph = (struct graph){o->size, o->graph, o->neighbors};
    p->n = graph_distances(&p->graph, distances);
    for (int k = 0; k < p->n; k++) {
        p->ahead[k] = graph_ahead(rank, o->size, distances[k]);
        p->behind[k] = graph_behind(rank, o->size, distances[k]);
    }
}

static void sort(struct graph_part *parts, int n) {
    for (int i = 1; i < n; i++) {
        const struct graph_part part = parts[i];
        int place = i;
        for (; place > 0 && parts[place - 1].rank > part.rank; place--)
            parts[place] = parts[place - 1];
        parts[place] = part;
    }
}

void graph_sum(wagma_handle *h, struct graph_part *parts, int n, int each) {
    const wagma_options *o = &h->options;
    wagma_outcome *outcome = &h->outcome;
    double weight = 0;
    int used = 0;
    sort(parts, n);
    for (int i = 0; i < n; i++) {
        if (parts[i].weight == 0)
            continue;
        weight += parts[i].weight;
        h->contributors[used] = parts[i].rank;
        h->versions[used] = h->call.version;
        h->inputs[used] = parts[i].data;
        h->weights[used++] = parts[i].weight;
    }
    outcome->weight = weight / (each + 1);
    outcome->contributors_count = used;
    outcome->merged = used > 0;
    const int is_alone = used == 1 && h->contributors[0] == h->rank;
    const double divisor = o->average ? weight : each + 1;
    if (used == 0 || (is_alone && divisor == h->call.weight)) /* x is the result, to the bit */
        return;
    const uint64_t began = trace_begin(h->trace);
    h->kernels->sum((wagma_dtype)o->dtype, h->call.x, h->inputs, h->weights, used, divisor,
                    (size_t)o->count);
    trace_end(h->trace, TRACE_REDUCE, began, h->call.version, -1, 0);
}
