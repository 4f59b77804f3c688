/* See handle.h. */
#include "shm/handle.h"

#include <sched.h>
#include <stdlib.h>

#include "base/error.h"
#include "shm/call_wait.h"
#include "shm/cores.h"
#include "shm/forked.h"

_Static_assert(sizeof(rank_record) <= SEGMENT_LINE, "a record has a line of its own");

/* ---- creation -------------------------------------------------------------------------------- */

const char *handle_segment_fits(const struct executor_request *request) {
    return !request->segment ? "it needs a segment"
           : request->options->memory != WAGMA_MEMORY_DEVICE
               ? NULL
               : "it needs arrays in host memory, or staged there";
}

static _Atomic uint32_t *state_of(const wagma_segment *s, int r) {
    return &segment_presence_of(s, r)->state;
}

/* List the ranks that have yet to join in h->members, and their number in *context. An error if one
 * of them could not. */
static int find_absent(wagma_handle *h, void *context, int *over) {
    const wagma_segment *s = handle_segment(h);
    int n = 0;
    for (int r = 0; r < s->size; r++) {
        /* acquire: the first contribution and the words of r; pairs with join() */
        const uint32_t state = atomic_load_explicit(state_of(s, r), memory_order_acquire);
        if (state == SEGMENT_NOSPACE)
            return error_set(WAGMA_ENOSPC,
                             "rank %d could not commit its %llu bytes of shared memory: make "
                             "/dev/shm larger or the array smaller",
                             r, (unsigned long long)segment_joined_shared(s));
        if (state == SEGMENT_FAILED)
            return error_set(WAGMA_EPEER, "rank %d failed while the handle was made", r);
        if (state < SEGMENT_READY)
            h->members[n++] = r;
    }
    *(int *)context = n;
    *over = n == 0;
    return WAGMA_OK;
}

static int look_for_absent(wagma_handle *h, void *context, int *over) {
    const int n = *(const int *)context;
    (void)over;
    return handle_heartbeat(h, "creation", h->members, n, n);
}

/* Wait until every rank has joined, or one of them could not. */
static int wait_for_all(wagma_handle *h) {
    static const struct call_wait wait = {.go_on = find_absent, .look = look_for_absent};
    int absent, over = 0;
    h->call.began = h->call.counted = clock_now();
    const int status = find_absent(h, &absent, &over);
    if (status != WAGMA_OK || over)
        return status;
    return call_wait(h, TRACE_FOR_CREATION, WAIT_ANY_PAUSES, &wait, &absent);
}

/* The state READY publishes what `make` has written, the first contribution among it. */
static int join(wagma_handle *h, const struct executor_request *request,
                int (*make)(wagma_handle *h, const struct executor_request *request)) {
    wagma_segment *s = handle_segment(h);
    int status = segment_join(s, h->rank);
    if (status != WAGMA_OK)
        return status;
    status = executor_prepare(h, request);
    if (status == WAGMA_OK)
        status = make(h, request);
    if (status != WAGMA_OK) {
        handle_segment_leave(h, SEGMENT_FAILED);
        return status;
    }
    cores_publish(s, h->rank);
    /* seq_cst: the event before the ring; release is included, pairs with wait_for_all() */
    atomic_store_explicit(state_of(s, h->rank), SEGMENT_READY, memory_order_seq_cst);
    wait_ring(s, NULL, 0, h->rank);
    status = wait_for_all(h);
    if (status != WAGMA_OK)
        handle_segment_leave(h, SEGMENT_FAILED);
    handle_wait(h)->spin = status == WAGMA_OK && cores_suffice(s) ? 1 : -1;
    return status;
}

int handle_segment_create(wagma_handle *h, const struct executor_request *request,
                          size_t state_bytes,
                          int (*make)(wagma_handle *h, const struct executor_request *request)) {
    wagma_segment *s = request->segment;
    h->state = calloc(1, state_bytes);
    if (!h->state)
        return error_set(WAGMA_ENOMEM, "no memory for the executor");
    ((struct handle_shared *)h->state)->segment = s;
    segment_retain(s);
    handle_wait(h)->spin = -1; /* the first rank created would spin too long */
    int status = handle_check_weight(h, request->weight);
    if (status == WAGMA_OK)
        status = handle_trace(
            h, (struct trace_origin){.transport = "shm", .device = s->device, .inode = s->inode});
    if (status == WAGMA_OK)
        status = join(h, request, make);
    if (status == WAGMA_OK)
        forked_inhabit(s);
    return status;
}

void handle_segment_free(wagma_handle *h) {
    wagma_segment *s = handle_segment(h);
    free(h->state);
    h->state = NULL;
    segment_release(s);
}

/* ---- calls ----------------------------------------------------------------------------------- */

void handle_segment_enter(wagma_handle *h) {
    wait_step_back(handle_wait(h), 1);
}

void handle_segment_leave_call(wagma_handle *h) {
    (void)wait_step_aside(handle_wait(h));
}

int handle_segment_step_aside(wagma_handle *h) {
    return wait_step_aside(handle_wait(h));
}

void handle_segment_step_back(wagma_handle *h, int busy) {
    wait_step_back(handle_wait(h), busy);
}

void handle_segment_leave(wagma_handle *h, enum segment_state state) {
    segment_leave(handle_segment(h), h->rank, state);
    wait_ring(handle_segment(h), NULL, 0, h->rank);
}

void *handle_segment_array(wagma_handle *h) {
    return segment_array(handle_segment(h), h->rank);
}

rank_record *handle_segment_record(wagma_handle *h, int rank, uint64_t syncs) {
    const wagma_segment *s = handle_segment(h);
    return (rank_record *)(segment_region(s, rank) + s->o_stats + (syncs & 1) * SEGMENT_LINE);
}

enum handle_loss handle_segment_lost(wagma_handle *h, int rank) {
    /* acquire: pairs with segment_leave() */
    const uint32_t state = atomic_load_explicit(
        &segment_presence_of(handle_segment(h), rank)->state, memory_order_acquire);
    if (state == SEGMENT_FAILED)
        return HANDLE_FAILED;
    return segment_is_dead(handle_segment(h), rank) ? HANDLE_DEAD : HANDLE_PRESENT;
}

/* The kernel tells by a lock that lives as long as its process. */
enum handle_presence handle_segment_presence(wagma_handle *h, int rank, int *has_called) {
    const uint32_t state = atomic_load_explicit(
        &segment_presence_of(handle_segment(h), rank)->state, memory_order_acquire);
    *has_called = 0;
    return state == SEGMENT_JOINED || state == SEGMENT_READY ? HANDLE_LIVES : HANDLE_UNKNOWN;
}

/* ---- the end --------------------------------------------------------------------------------- */

int handle_segment_depart(wagma_handle *h, int (*depart)(wagma_handle *h)) {
    int status = WAGMA_OK;
    handle_segment_enter(h);
    if (handle_check_open(h) == WAGMA_OK) {
        status = depart ? depart(h) : WAGMA_OK;
        handle_segment_leave(h, status == WAGMA_OK ? SEGMENT_DEPARTED : SEGMENT_FAILED);
    }
    handle_segment_leave_call(h);
    return status;
}

int handle_segment_close(wagma_handle *h) {
    return handle_segment_depart(h, NULL);
}

/* The owner may be in a call on another thread. It writes no more: it asks whether the handle is
 * open after it has said that it is busy, and here it is the other way round. Or it has just
 * departed. */
void handle_segment_fail(wagma_handle *h) {
    while (atomic_load(
        &handle_wait(h)->busy)) /* seq_cst: after `closed`; pairs with wait_step_back() */
        sched_yield();
    /* relaxed: written before the owner was not busy any more */
    if (atomic_load_explicit(&segment_presence_of(handle_segment(h), h->rank)->state,
                             memory_order_relaxed) != SEGMENT_DEPARTED)
        handle_segment_leave(h, SEGMENT_FAILED);
}
