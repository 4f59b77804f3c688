/* Functions shared by the executors of one node, whose ranks share a segment. */
#ifndef WAGMA_SHM_HANDLE_H
#define WAGMA_SHM_HANDLE_H

#include "engine/handle.h"
#include "shm/segment.h"
#include "shm/wait.h"

/* First member of the state of each executor. */
struct handle_shared {
    wagma_segment *segment;
    wait_state wait;
};

static inline wagma_segment *handle_segment(const wagma_handle *h) {
    return ((const struct handle_shared *)h->state)->segment;
}
static inline wait_state *handle_wait(const wagma_handle *h) {
    return &((struct handle_shared *)h->state)->wait;
}

/* For executor.fits: NULL where there is a segment, or why it cannot be. */
const char *handle_segment_fits(const struct executor_request *request);
/* For executor.create: make a state of `state_bytes`, join the segment, have `make` do the rest,
 * and wait for the others. */
int handle_segment_create(wagma_handle *h, const struct executor_request *request,
                          size_t state_bytes,
                          int (*make)(wagma_handle *h, const struct executor_request *request));
/* Tell the others to wait for this rank no more: SEGMENT_DEPARTED or SEGMENT_FAILED. */
void handle_segment_leave(wagma_handle *h, enum segment_state state);

/* Members of struct executor_calls. */
void handle_segment_enter(wagma_handle *h);
void handle_segment_leave_call(wagma_handle *h);
int handle_segment_step_aside(wagma_handle *h);
void handle_segment_step_back(wagma_handle *h, int busy);
void *handle_segment_array(wagma_handle *h);
rank_record *handle_segment_record(wagma_handle *h, int rank, uint64_t syncs);
enum handle_loss handle_segment_lost(wagma_handle *h, int rank);
enum handle_presence handle_segment_presence(wagma_handle *h, int rank, int *has_called);
int handle_segment_close(wagma_handle *h);
void handle_segment_fail(wagma_handle *h);
#define HANDLE_SEGMENT_CALLS                                                                       \
    .enter = handle_segment_enter, .leave = handle_segment_leave_call,                             \
    .step_aside = handle_segment_step_aside, .step_back = handle_segment_step_back,                \
    .record = handle_segment_record, .lost = handle_segment_lost,                                  \
    .presence = handle_segment_presence, .fail = handle_segment_fail

/* Depart, as close() does: call `depart` of the executor (NULL: nothing to do) before the other
 * ranks see this one leave. WAGMA_OK, or the error of `depart`, with which the rank has failed. */
int handle_segment_depart(wagma_handle *h, int (*depart)(wagma_handle *h));
/* End free(): release the state itself, and the segment. */
void handle_segment_free(wagma_handle *h);

#endif
