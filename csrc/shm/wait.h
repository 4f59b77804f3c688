/* Wait of a rank: spin a little if every rank can have a core, then sched_yield, then sleep on the
 * rank's bell (a futex in the segment). The caller re-evaluates its condition after every
 * wait_pause(), so a lost ring costs at most one sleep (WAIT_SLEEP_MAX_NS), never a hang. A waiter
 * therefore proceeds even if its waker was stopped between its event and its ring.
 *
 *   wait_begin(&w, seg, rank)
 *   while (!condition()) { if (wait_pause(&w, not_after) == WAIT_HEARTBEAT) look for stalls }
 *   wait_end(&w)
 *
 * One pause arms the sleep (sets `asleep`, reads the bell), and the next one sleeps; the caller
 * evaluates the condition in between. seq_cst on both sides ensures that waiter and waker cannot
 * miss each other: `asleep`, fence, condition (which may be acquire loads) here; event, `asleep` in
 * wait_ring. */
#ifndef WAGMA_SHM_WAIT_H
#define WAGMA_SHM_WAIT_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "engine/heartbeat.h"
#include "shm/segment.h"

enum wait_event { WAIT_AGAIN, WAIT_HEARTBEAT };

enum { WAIT_SLEEP_MAX_NS = 2000000 }; /* one sleep: bounds the cost of a lost ring */

typedef struct wait_state {
    wagma_segment *segment;
    int rank;
    int armed;     /* asleep is set */
    int window;    /* 1: sleeps because it ran ahead; the caller sets it after wait_begin */
    uint32_t bell; /* value read when armed */
    int spinning;  /* in the first phase */
    uint32_t pauses;
    uint64_t began;     /* ns; 0: not waiting */
    uint64_t heartbeat; /* ns of the next one */
    uint64_t sleep;     /* ns of the next sleep, grows to WAIT_SLEEP_MAX_NS */
    int spin;           /* 1: may spin; set once by the owner of the state, see cores.h */
    atomic_int busy;    /* 1: the owner may write into the segment */
} wait_state;

void wait_begin(wait_state *w, wagma_segment *s, int rank);
/* Pauses once, until `not_after` (ns; 0: no limit) at the latest. */
enum wait_event wait_pause(wait_state *w, uint64_t not_after);
/* Between these two calls the owner is not busy, as in a pause that yields or sleeps. After
 * wait_step_back() the owner checks whether its handle was ended meanwhile. wait_step_aside()
 * returns the argument of wait_step_back(). */
int wait_step_aside(wait_state *w);
void wait_step_back(wait_state *w, int busy);
/* Clears `asleep`; returns the ns since wait_begin (0 if the wait never paused). */
uint64_t wait_end(wait_state *w);

/* Wakes the ranks of members[0..n) that sleep, except `self`. members NULL: all ranks. Call this
 * after the event, which must be a seq_cst access. */
void wait_ring(wagma_segment *s, const int32_t *members, int n, int self);

/* Wakes the ranks that sleep at the window; called after a publication. */
void wait_ring_window(wagma_segment *s, int self);

#endif
