/* Public face of the grouping and of the graphs: checks the arguments, names the wrong one. */
#include "base/error.h"
#include "protocol/graph.h"
#include "protocol/topology.h"

static int check_sizes(int size, int group_size) {
    if (size < 1 || size > WAGMA_MAX_RANKS)
        return error_set(WAGMA_EINVAL, "size is %d; it must be in 1..%d", size, WAGMA_MAX_RANKS);
    if (group_size < 1 || group_size > size)
        return error_set(WAGMA_EINVAL, "group_size is %d; it must be in 1..size, that is 1..%d",
                         group_size, size);
    return WAGMA_OK;
}

static int check_place(int rank, int size, int64_t version) {
    if (rank < 0 || rank >= size)
        return error_set(WAGMA_EINVAL, "rank is %d; it must be in 0..size-1, that is 0..%d", rank,
                         size - 1);
    if (version < 0)
        return error_set(WAGMA_EINVAL, "version is %lld; it must not be negative",
                         (long long)version);
    return WAGMA_OK;
}

int wagma_group_count(int size, int group_size) {
    int status = check_sizes(size, group_size);
    return status == WAGMA_OK ? topology_group_count(size, group_size) : status;
}

int wagma_group_of(int rank, int size, int group_size, int grouping, uint64_t seed, int64_t version,
                   int32_t *members) {
    int status = check_sizes(size, group_size);
    if (status != WAGMA_OK)
        return status;
    if (grouping < 0 || grouping > WAGMA_GROUPING_PAIRS)
        return error_set(WAGMA_EINVAL,
                         "grouping is %d; it must be WAGMA_GROUPING_DYNAMIC (0), _FIXED (1) or "
                         "_PAIRS (2)",
                         grouping);
    if (grouping == WAGMA_GROUPING_PAIRS && group_size != (size < 2 ? size : 2))
        return error_set(WAGMA_EINVAL, "group_size is %d; pairs are groups of %d", group_size,
                         size < 2 ? size : 2);
    if ((status = check_place(rank, size, version)) != WAGMA_OK)
        return status;
    if (members == NULL)
        return error_set(WAGMA_EINVAL,
                         "members is NULL; it must have room for group_size (%d) ranks",
                         group_size);
    const struct topology topology = {size, group_size, grouping, seed};
    return topology_members(&topology, rank, version, members);
}

int wagma_neighbors_of(int rank, int size, int graph, int neighbors, int64_t version, int32_t *in) {
    wagma_options options;
    if (graph == WAGMA_GRAPH_NONE)
        return error_set(WAGMA_EINVAL,
                         "graph is WAGMA_GRAPH_NONE (0); it must be WAGMA_GRAPH_RING (1) or "
                         "_EXPONENTIAL (2)");
    wagma_options_init(&options);
    options.size = size;
    options.graph = graph;
    options.neighbors = neighbors;
    int status = wagma_options_check(&options);
    if (status != WAGMA_OK)
        return status;
    if ((status = check_place(rank, size, version)) != WAGMA_OK)
        return status;
    if (in == NULL)
        return error_set(WAGMA_EINVAL, "in is NULL; it must have room for %d ranks",
                         WAGMA_MAX_NEIGHBORS);
    const struct graph graph_of = {size, options.graph, options.neighbors};
    return graph_in(&graph_of, rank, version, in);
}
