/* A handle without its executor's state: its arrays, its trace, and wagma_fail() in a pause. */
#include "engine/handle.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/process.h"

static int create_arrays(wagma_handle *h) {
    const size_t n = (size_t)h->size;
    h->members = calloc(n, sizeof *h->members);
    h->contributors = calloc(n, sizeof *h->contributors);
    h->versions = calloc(n, sizeof *h->versions);
    h->inputs = calloc(n, sizeof *h->inputs);
    h->outputs = calloc(n, sizeof *h->outputs);
    h->weights = calloc(n + 1, sizeof *h->weights);
    return h->members && h->contributors && h->versions && h->inputs && h->outputs && h->weights &&
           rank_stats_create(h) == 0;
}

wagma_handle *handle_new(const struct executor *executor, const struct executor_request *request,
                         const wagma_hooks *hooks) {
    const wagma_options *o = request->options;
    wagma_handle *h = calloc(1, sizeof *h);
    if (h) {
        h->process = process_serial();
        h->executor = executor;
        h->calls = &executor->calls;
        h->rank = request->rank;
        h->size = o->size;
        h->options = *o;
        h->policy = policy_of(o);
        h->topology = (struct topology){o->size, o->group_size, o->grouping, o->seed};
        h->quorum = o->quorum;
        h->kernels = reduce_best();
        if (hooks)
            h->hooks = *hooks;
        if (create_arrays(h))
            return h;
        handle_free(h);
    }
    (void)error_set(WAGMA_ENOMEM, "no memory for a handle of %d ranks", o->size);
    return NULL;
}

void handle_free(wagma_handle *h) {
    free(h->first_error);
    free(h->members);
    free(h->contributors);
    free(h->versions);
    free(h->inputs);
    free(h->outputs);
    free(h->weights);
    rank_stats_free(h);
    trace_free(h->trace);
    free(h);
}

static int group_of(const void *topology, int rank, int64_t version, int32_t *members) {
    return topology_members(topology, rank, version, members);
}

int handle_trace(wagma_handle *h, struct trace_origin origin) {
    origin.rank = h->rank;
    origin.options = &h->options;
    origin.group = group_of;
    origin.groups = &h->topology;
    return trace_create(&origin, &h->trace);
}

void handle_write_trace(wagma_handle *h) {
    char said[1024];
    snprintf(said, sizeof said, "%s", wagma_last_error());
    if (h->trace && trace_write(h->trace) != WAGMA_OK && h->hooks.warn)
        h->hooks.warn(h->hooks.context, wagma_last_error());
    (void)error_set(WAGMA_OK, "%s", said);
}

int handle_step_aside(wagma_handle *h) {
    return h->calls->step_aside ? h->calls->step_aside(h) : 0;
}

void handle_step_back(wagma_handle *h, int busy) {
    if (h->calls->step_back)
        h->calls->step_back(h, busy);
}
