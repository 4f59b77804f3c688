/* See grace.h. */
#include "engine/grace.h"

#include <math.h>
#include <string.h>

enum { GRACE_FLOOR_NS = 50000, GRACE_START_NS = 200000, GRACE_START_SPREADS = 4 };

void grace_add(struct grace_samples *a, uint64_t value) {
    int n = a->count;
    if (n == GRACE_SAMPLES) { /* take the oldest out of the sorted ones */
        int i = 0;
        while (a->by_size[i] != a->by_age[a->next])
            i++;
        memmove(a->by_size + i, a->by_size + i + 1, (size_t)(--n - i) * sizeof *a->by_size);
    }
    a->by_age[a->next] = value;
    a->next = (a->next + 1) % GRACE_SAMPLES;
    int i = n;
    for (; i > 0 && a->by_size[i - 1] > value; i--)
        a->by_size[i] = a->by_size[i - 1];
    a->by_size[i] = value;
    a->count = n + 1;
}

uint64_t grace_quantile(const struct grace_samples *a, double share) {
    const int i = (int)ceil(share * a->count) - 1;
    return a->by_size[i < 0 ? 0 : i];
}

uint64_t grace_auto(const struct grace_samples *spreads, const struct grace_samples *computes) {
    if (spreads->count < GRACE_START_SPREADS)
        return GRACE_START_NS;
    uint64_t grace = grace_quantile(spreads, 0.8);
    if (computes->count > 0) {
        const uint64_t most = grace_quantile(computes, 0.5) / 10;
        if (grace > most)
            grace = most;
    }
    return grace > GRACE_FLOOR_NS ? grace : GRACE_FLOOR_NS;
}
