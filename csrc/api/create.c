/* Creation of a handle: a rank joins its segment and waits for the others. */
#include <stdlib.h>

#include "base/error.h"
#include "shm/cores.h"
#include "shm/forked.h"
#include "engine/handle.h"
#include "base/process.h"

static _Atomic uint32_t *state_of(const wagma_segment *s, int r) {
    return &segment_presence_of(s, r)->state;
}

/* Waits until every rank has joined, or one of them could not. */
static int wait_for_all(wagma_handle *h) {
    wagma_segment *s = h->segment;
    int32_t *missing = h->members;
    h->call.began = h->call.counted = wait_now();
    wait_begin(&h->wait, s, h->rank);
    trace_waits(h->trace, TRACE_FOR_CREATION);
    int status = WAGMA_OK;
    while (status == WAGMA_OK) {
        int n = 0;
        for (int r = 0; r < s->size && status == WAGMA_OK; r++) {
            /* acquire: the first contribution and the words of r; pairs with join() */
            const uint32_t state = atomic_load_explicit(state_of(s, r), memory_order_acquire);
            if (state == SEGMENT_NOSPACE)
                status = error_set(WAGMA_ENOSPC,
                                   "rank %d could not commit its %llu bytes of shared memory: make "
                                   "/dev/shm larger or the array smaller",
                                   r, (unsigned long long)segment_joined_bytes(s));
            else if (state == SEGMENT_FAILED)
                status = error_set(WAGMA_EPEER, "rank %d failed while the handle was made", r);
            else if (state < SEGMENT_READY)
                missing[n++] = r;
        }
        if (status != WAGMA_OK || n == 0)
            break;
        if (wait_pause(&h->wait, 0) == WAIT_HEARTBEAT)
            status = handle_heartbeat(h, "creation", missing, n, n);
    }
    const uint64_t waited = wait_end(&h->wait);
    trace_waited(h->trace, TRACE_FOR_CREATION, h->wait.began, h->wait.began + waited, h->version,
                 -1);
    return status;
}

static int create_arrays(wagma_handle *h) {
    const size_t n = (size_t)h->size;
    h->members = calloc(n, sizeof *h->members);
    h->contributors = calloc(n, sizeof *h->contributors);
    h->versions = calloc(n, sizeof *h->versions);
    h->inputs = calloc(n, sizeof *h->inputs);
    h->outputs = calloc(n, sizeof *h->outputs);
    h->weights = calloc(n, sizeof *h->weights);
    return h->members && h->contributors && h->versions && h->inputs && h->outputs && h->weights &&
           rank_stats_create(h) == 0;
}

wagma_handle *handle_new(int rank, const wagma_options *options, const struct topology *topology,
                         const wagma_hooks *hooks) {
    wagma_handle *h = calloc(1, sizeof *h);
    if (h) {
        h->process = process_serial();
        h->rank = rank;
        h->size = options->size;
        h->options = options;
        h->policy = policy_of(options);
        h->quorum = options->quorum;
        h->topology = topology;
        h->kernels = reduce_best();
        if (hooks)
            h->hooks = *hooks;
        if (create_arrays(h))
            return h;
        h->closed = 2;
        wagma_free(h);
    }
    (void)error_set(WAGMA_ENOMEM, "no memory for a handle of %d ranks", options->size);
    return NULL;
}

/* Joins, publishes the first contribution, and waits for the others. */
static int join(wagma_handle *h, const void *initial, double weight) {
    wagma_segment *s = h->segment;
    int status = segment_join(s, h->rank);
    if (status != WAGMA_OK)
        return status;
    status = h->policy.graph      ? neighbor_create(h)
             : h->policy.in_place ? inplace_create(h)
                                  : shm_create(h, initial, weight);
    if (status != WAGMA_OK) {
        handle_leave(h, SEGMENT_FAILED);
        return status;
    }
    cores_publish(s, h->rank);
    /* seq_cst: the event before the ring; release is included, pairs with wait_for_all() */
    atomic_store_explicit(state_of(s, h->rank), SEGMENT_READY, memory_order_seq_cst);
    wait_ring(s, NULL, 0, h->rank);
    status = wait_for_all(h);
    if (status != WAGMA_OK)
        handle_leave(h, SEGMENT_FAILED);
    h->wait.spin = status == WAGMA_OK && cores_suffice(s) ? 1 : -1;
    return status;
}

int wagma_create(wagma_segment *segment, int rank, const void *initial, double weight,
                 const wagma_hooks *hooks, wagma_handle **handle) {
    *handle = NULL;
    if (!segment)
        return error_set(WAGMA_EINVAL, "segment is NULL: make or open one first");
    if (segment->is_copy)
        return forked_refuse("the segment");
    if (rank < 0 || rank >= segment->size)
        return error_set(WAGMA_EINVAL, "rank=%d: must be in 0..%d", rank, segment->size - 1);
    wagma_handle *h = handle_new(rank, &segment->options, &segment->topology, hooks);
    if (!h)
        return WAGMA_ENOMEM;
    h->segment = segment;
    segment_retain(segment);
    h->wait.spin = -1; /* who is made first would spin for long */
    int status = handle_check_weight(h, weight);
    if (status == WAGMA_OK)
        status = handle_trace(h, "shm");
    if (status == WAGMA_OK)
        status = join(h, initial, weight);
    if (status == WAGMA_OK) {
        forked_inhabit(segment);
        *handle = h;
        return WAGMA_OK;
    }
    h->closed = 2;
    wagma_free(h);
    return status;
}
