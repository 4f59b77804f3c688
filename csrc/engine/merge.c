#include "engine/merge.h"

struct merge merge_version(const struct policy *p, double total, int late, double own,
                           int out_of_place) {
    const int adds = late && !p->ordered;
    const double weight = adds ? total + own : total;
    const double stored = merge_stored(p->stores_average, total);
    const double divisor = out_of_place && !p->ordered ? 1 : merge_divisor(p, weight);
    return (struct merge){
        .weight = weight,
        .stored = stored,
        .divisor = divisor,
        .copied = p->stores_average ? 1 : divisor,
        .adds = adds,
        .factor = total != 0 ? stored : 0, /* of no contribution nothing is stored */
        .own = own,
    };
}

void merge_add_carried(const reduce_kernels *kernels, wagma_dtype dtype, void *out, const void *x,
                       double weight, const void *carried, double carried_weight, size_t count) {
    const struct merge_sum sum = merge_carried(x, weight, carried, carried_weight);
    kernels->sum(dtype, out, sum.in, sum.weights, sum.n, sum.divisor, count);
}

void merge_nothing(wagma_handle *h) {
    h->outcome.weight = h->call.weight;
    h->stats.unmerged++;
}

void merge_outcome_alone(wagma_handle *h) {
    h->outcome.contributors_count = h->outcome.merged = 0;
    merge_list(h, h->rank, h->call.version, h->call.weight);
    merge_outcome(h, h->call.weight);
}

void merge_advance(wagma_handle *h, int64_t taken) {
    const struct policy *p = &h->policy;
    if (p->ordered || (p->forward && h->outcome.late))
        h->call.next = taken + 1;
    if (p->forward && h->outcome.late)
        h->outcome.skipped = taken - h->call.version;
}
