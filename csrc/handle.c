/* The public calls: they check arguments, pick the executor, and fill outcomes. */
#include "handle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "topology.h"

static _Atomic uint32_t *state_of(const wagma_segment *s, int r) {
    return &segment_presence_of(s, r)->state;
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Waits until every rank has joined, or one of them could not. */
static int wait_for_all(wagma_handle *h) {
    wagma_segment *s = h->segment;
    int32_t *missing = h->members;
    h->call.began = wait_now();
    wait_begin(&h->wait, s, h->rank);
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
    wait_end(&h->wait);
    return status;
}

static int create_arrays(wagma_handle *h) {
    const size_t n = (size_t)h->segment->size;
    h->members = calloc(n, sizeof *h->members);
    h->contributors = calloc(n, sizeof *h->contributors);
    h->versions = calloc(n, sizeof *h->versions);
    h->inputs = calloc(n, sizeof *h->inputs);
    h->outputs = calloc(n, sizeof *h->outputs);
    h->weights = calloc(n, sizeof *h->weights);
    if (!h->members || !h->contributors || !h->versions || !h->inputs || !h->outputs ||
        !h->weights || rank_stats_create(h) != 0)
        return error_set(WAGMA_ENOMEM, "no memory for a handle of %zu ranks", n);
    return WAGMA_OK;
}

static int check_weight(const wagma_handle *h, double weight) {
    const wagma_dtype dtype = (wagma_dtype)h->segment->options.dtype;
    if (!isfinite(weight) || weight < 0)
        return error_set(WAGMA_EINVAL, "weight=%g: must be finite and not negative", weight);
    if (reduce_dtype_is_integer(dtype) && weight != floor(weight))
        return error_set(WAGMA_ETYPE,
                         "weight=%g: integer arrays take whole weights only; use a floating dtype",
                         weight);
    /* all but f64 are accumulated in f32, where smaller weights vanish and sums of larger ones are
     * infinite */
    if (!reduce_dtype_is_integer(dtype) && dtype != WAGMA_F64 && weight != 0 &&
        (weight < 1e-30 || weight > 1e30))
        return error_set(WAGMA_EINVAL,
                         "weight=%g: %s arrays take 0 and weights from 1e-30 to 1e30; scale all "
                         "weights alike, or use float64",
                         weight, reduce_dtype_name(dtype));
    return WAGMA_OK;
}

static void leave(wagma_handle *h, enum segment_state state) {
    segment_leave(h->segment, h->rank, state);
    wait_ring(h->segment, NULL, 0, h->rank);
}

/* Joins, publishes the first contribution, and waits for the others. */
static int join(wagma_handle *h, const void *initial, double weight) {
    wagma_segment *s = h->segment;
    int status = segment_join(s, h->rank);
    if (status != WAGMA_OK)
        return status;
    status = s->buffers ? shm_create(h, initial, weight) : inplace_create(h);
    if (status != WAGMA_OK) {
        leave(h, SEGMENT_FAILED);
        return status;
    }
    /* seq_cst: the event before the ring; release is included, pairs with wait_for_all() */
    atomic_store_explicit(state_of(s, h->rank), SEGMENT_READY, memory_order_seq_cst);
    wait_ring(s, NULL, 0, h->rank);
    status = wait_for_all(h);
    if (status != WAGMA_OK)
        leave(h, SEGMENT_FAILED);
    return status;
}

int wagma_create(wagma_segment *segment, int rank, const void *initial, double weight,
                 const wagma_hooks *hooks, wagma_handle **handle) {
    *handle = NULL;
    if (!segment)
        return error_set(WAGMA_EINVAL, "segment is NULL: make or open one first");
    if (rank < 0 || rank >= segment->size)
        return error_set(WAGMA_EINVAL, "rank=%d: must be in 0..%d", rank, segment->size - 1);
    wagma_handle *h = calloc(1, sizeof *h);
    if (!h)
        return error_set(WAGMA_ENOMEM, "no memory for a handle");
    h->segment = segment;
    h->rank = rank;
    h->kernels = reduce_best();
    h->wait.spin = wait_may_spin(segment->size) ? 1 : -1;
    if (hooks)
        h->hooks = *hooks;
    int status = create_arrays(h);
    if (status == WAGMA_OK)
        status = check_weight(h, weight);
    if (status == WAGMA_OK)
        status = join(h, initial, weight);
    if (status == WAGMA_OK) {
        *handle = h;
        return WAGMA_OK;
    }
    h->closed = 2;
    wagma_free(h);
    return status;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int is_sync_version(const wagma_handle *h, int64_t version) {
    const int64_t period = h->segment->options.sync_period;
    return period > 0 && (version + 1) % period == 0;
}

static void find_group(wagma_handle *h) {
    const wagma_segment *s = h->segment;
    if (!h->call.sync && s->options.activation != WAGMA_ACTIVATION_WORLD) {
        h->call.n = topology_members(&s->topology, h->rank, h->call.version, h->members);
    } else {
        h->call.n = s->size;
        for (int r = 0; r < s->size; r++)
            h->members[r] = r;
    }
    h->call.members = h->members;
}

static int check_usable(const wagma_handle *h) {
    if (h->closed == 1)
        return error_set(WAGMA_ECLOSED, "the handle is closed: make a new one");
    if (h->closed)
        return error_set(WAGMA_ECLOSED,
                         "the handle is broken by an earlier error: close it and make a new one");
    return WAGMA_OK;
}

/* After an executor's word: the outcome, or the end of the handle. */
static int conclude(wagma_handle *h, int status, wagma_outcome *outcome) {
    if (status == WAGMA_INPROGRESS)
        return status;
    h->call.active = 0;
    if (status != WAGMA_OK) {
        wagma_fail(h);
        return status;
    }
    h->outcome.version = h->call.version;
    h->outcome.waited = (double)h->call.waited * 1e-9;
    h->outcome.contributors = h->contributors;
    h->outcome.versions = h->versions;
    h->version = h->call.next;
    h->stats.calls++;
    h->stats.waited += h->outcome.waited;
    rank_stats_return(h);
    if (outcome)
        *outcome = h->outcome;
    return WAGMA_OK;
}

int wagma_start(wagma_handle *h, void *x, double weight, int sync, wagma_outcome *outcome) {
    if (!h)
        return error_set(WAGMA_EINVAL, "handle is NULL");
    int status = check_usable(h);
    if (status != WAGMA_OK)
        return status;
    if (h->call.active)
        return error_set(WAGMA_EINVAL, "a call of this handle is in progress: finish it first");
    if (!x && h->segment->options.count > 0)
        return error_set(WAGMA_EINVAL, "x is NULL: %lld elements are needed",
                         (long long)h->segment->options.count);
    status = check_weight(h, weight);
    if (status != WAGMA_OK)
        return status;
    h->call = (call){
        .active = 1,
        .sync = sync || is_sync_version(h, h->version),
        .explicit_sync = sync,
        .version = h->version,
        .next = h->version + 1,
        .x = x,
        .weight = weight,
        .began = wait_now(),
    };
    find_group(h);
    rank_stats_call(h);
    h->outcome = (wagma_outcome){0};
    return conclude(h, h->shm ? shm_start(h) : inplace_start(h), outcome);
}

int wagma_finish(wagma_handle *h, void *x, wagma_outcome *outcome) {
    if (!h)
        return error_set(WAGMA_EINVAL, "handle is NULL");
    const int status = check_usable(h);
    if (status != WAGMA_OK)
        return status;
    if (!h->call.active)
        return error_set(WAGMA_EINVAL, "no call of this handle is in progress: start one first");
    if (x != h->call.x)
        return error_set(WAGMA_EINVAL, "x=%p: the call was started with %p", x, h->call.x);
    return conclude(h, h->shm ? shm_finish(h) : inplace_finish(h), outcome);
}

static int call_blocking(wagma_handle *h, void *x, double weight, int sync,
                         wagma_outcome *outcome) {
    const int status = wagma_start(h, x, weight, sync, outcome);
    return status == WAGMA_INPROGRESS ? wagma_finish(h, x, outcome) : status;
}

int wagma_allreduce(wagma_handle *h, void *x, double weight, wagma_outcome *outcome) {
    return call_blocking(h, x, weight, 0, outcome);
}

int wagma_sync(wagma_handle *h, void *x, double weight, wagma_outcome *outcome) {
    return call_blocking(h, x, weight, 1, outcome);
}

/* ---- the rest -------------------------------------------------------------------------------- */

int64_t wagma_version(const wagma_handle *h) {
    return h->version;
}

void *wagma_shared_array(wagma_handle *h) {
    return segment_array(h->segment, h->rank);
}

void wagma_get_stats(const wagma_handle *h, wagma_stats *stats) {
    *stats = h->stats;
    stats->segment_bytes = h->shm ? shm_bytes(h) : inplace_bytes(h);
    stats->grace = h->shm ? shm_grace(h) : 0;
}

int wagma_close(wagma_handle *h) {
    if (!h)
        return error_set(WAGMA_EINVAL, "handle is NULL");
    if (h->closed)
        return WAGMA_OK;
    if (h->call.active)
        return error_set(WAGMA_EINVAL, "a call of this handle is in progress: finish it first");
    rank_stats_depart(h);
    if (h->shm)
        shm_close(h);
    h->closed = 1;
    leave(h, SEGMENT_DEPARTED);
    return WAGMA_OK;
}

void wagma_fail(wagma_handle *h) {
    if (!h || h->closed)
        return;
    h->closed = 2;
    leave(h, SEGMENT_FAILED);
}

void wagma_free(wagma_handle *h) {
    if (!h)
        return;
    wagma_fail(h);
    shm_free(h);
    inplace_free(h);
    free(h->members);
    free(h->contributors);
    free(h->versions);
    free(h->inputs);
    free(h->outputs);
    free(h->weights);
    rank_stats_free(h);
    free(h);
}
