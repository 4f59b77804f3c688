#include "engine/policy.h"

#include <stddef.h>

#include "kernels/reduce.h"

static const struct policy_late rules[] = {
    [WAGMA_LATE_STALE] = {.name = "WAGMA_LATE_STALE"},
    [WAGMA_LATE_SKIP] = {.name = "WAGMA_LATE_SKIP", .ordered = 1},
    [WAGMA_LATE_CARRY] = {.name = "WAGMA_LATE_CARRY", .ordered = 1, .carries = 1},
};

const struct policy_late *policy_late(int32_t late) {
    return late >= 0 && (size_t)late < sizeof rules / sizeof *rules ? &rules[late] : NULL;
}

const char *policy_fixed_quorum(const wagma_options *o) {
    if (o->graph != WAGMA_GRAPH_NONE)
        return "the handle has a graph, where every neighbour is waited for";
    if (o->quorum == WAGMA_QUORUM_MAJORITY)
        return "it was made with WAGMA_QUORUM_MAJORITY (\"majority\")";
    if (!policy_late(o->late)->ordered)
        return "late is WAGMA_LATE_STALE (\"stale\"): set it to " POLICY_LATE_ORDERED;
    if (o->group_size != o->size)
        return "group_size is less than size: make the group the world";
    if (o->quorum == o->size && o->memory != WAGMA_MEMORY_DEVICE)
        return "a handle that was made with all ranks reduces in place and keeps no results for "
               "late ranks: make it with fewer ranks, and set all before the first version";
    return NULL;
}

/* Where results are stored undivided, late ranks merge them with their own contributions. No rank
 * merges where all are waited for, or where every rank gets every result. 16-bit floats would
 * overflow (30000 + 30000 is infinite in f16) and be rounded twice. */
static int stores_average(const wagma_options *o, const struct policy *p) {
    return p->average &&
           (p->in_place || p->ordered || reduce_dtype_size((wagma_dtype)o->dtype) == 2);
}

struct policy policy_of(const wagma_options *o) {
    const struct policy_late *late = policy_late(o->late);
    struct policy p = {
        .device = o->memory == WAGMA_MEMORY_DEVICE,
        .staged = o->memory == WAGMA_MEMORY_STAGED,
        .graph = o->graph != WAGMA_GRAPH_NONE,
        .world = o->activation == WAGMA_ACTIVATION_WORLD,
        .forward = o->missed == WAGMA_MISSED_FAST_FORWARD,
        .ordered = late->ordered,
        .carries = late->carries,
        .varies = policy_fixed_quorum(o) == NULL,
        .average = o->average,
    };
    p.in_place = !p.graph && !p.world && !p.device && o->quorum == o->group_size;
    p.avoiding = !p.graph && !p.in_place;
    p.stores_average = stores_average(o, &p);
    return p;
}
