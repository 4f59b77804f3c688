/* What handles whose ranks share a segment have in common. */
#include <sched.h>

#include "engine/handle.h"

_Static_assert(sizeof(rank_record) <= SEGMENT_LINE, "a record has a line of its own");

void handle_leave(wagma_handle *h, enum segment_state state) {
    segment_leave(h->segment, h->rank, state);
    wait_ring(h->segment, NULL, 0, h->rank);
}

void *handle_segment_array(wagma_handle *h) {
    return segment_array(h->segment, h->rank);
}

rank_record *handle_segment_record(wagma_handle *h, int rank, uint64_t syncs) {
    const wagma_segment *s = h->segment;
    return (rank_record *)(segment_region(s, rank) + s->o_stats + (syncs & 1) * SEGMENT_LINE);
}

enum handle_loss handle_segment_lost(wagma_handle *h, int rank) {
    /* acquire: pairs with segment_leave() */
    const uint32_t state =
        atomic_load_explicit(&segment_presence_of(h->segment, rank)->state, memory_order_acquire);
    if (state == SEGMENT_FAILED)
        return HANDLE_FAILED;
    return segment_is_dead(h->segment, rank) ? HANDLE_DEAD : HANDLE_PRESENT;
}

/* The kernel tells by a lock that lives as long as its process. */
enum handle_presence handle_segment_presence(wagma_handle *h, int rank, int *has_called) {
    const uint32_t state =
        atomic_load_explicit(&segment_presence_of(h->segment, rank)->state, memory_order_acquire);
    *has_called = 0;
    return state == SEGMENT_JOINED || state == SEGMENT_READY ? HANDLE_LIVES : HANDLE_UNKNOWN;
}

int handle_segment_depart(wagma_handle *h) {
    handle_leave(h, SEGMENT_DEPARTED);
    return WAGMA_OK;
}

/* The owner may be in a call on another thread. It writes no more: it asks whether the handle is
 * open after it has said that it is busy, and here it is the other way round. Or it has just
 * departed. */
void handle_segment_fail(wagma_handle *h) {
    while (atomic_load(&h->wait.busy)) /* seq_cst: after `closed`; pairs with wait_step_back() */
        sched_yield();
    /* relaxed: written before the owner was not busy any more */
    if (atomic_load_explicit(&segment_presence_of(h->segment, h->rank)->state,
                             memory_order_relaxed) != SEGMENT_DEPARTED)
        handle_leave(h, SEGMENT_FAILED);
}
