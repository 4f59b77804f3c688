/* How a call over a segment waits: one loop for all executors of one node. An executor says how to
 * go on, and what to do about stalls. */
#ifndef WAGMA_SHM_CALL_WAIT_H
#define WAGMA_SHM_CALL_WAIT_H

#include "shm/handle.h"

/* How many pauses a wait may take. */
enum {
    WAIT_NO_PAUSE = 0,
    WAIT_START_PAUSES = 64, /* of start(): 2 to 4 us of spinning */
    WAIT_ANY_PAUSES = 1 << 30,
};

struct call_wait {
    /* Go on after a pause: set *over where nothing has to be waited for any more. WAGMA_OK, or an
     * error. */
    int (*go_on)(wagma_handle *h, void *context, int *over);
    /* Look for stalls, once per heartbeat and when call.until has passed; may set *over.
     * WAGMA_OK: go on waiting. */
    int (*look)(wagma_handle *h, void *context, int *over);
    /* 1: only publications that move the window are waited for. NULL: never. */
    int (*for_window)(const wagma_handle *h);
};

/* Wait until go_on() or look() finds that the wait is over (WAGMA_OK); for at most that many
 * pauses, or until call.until: then WAGMA_INPROGRESS; or an error. */
int call_wait(wagma_handle *h, enum trace_wait what, uint32_t most_pauses,
              const struct call_wait *wait, void *context);

/* One pause of a wait, until `wake` (ns; 0: no limit) at the latest, and look() when it is due. */
int call_pause(wagma_handle *h, uint64_t wake, const struct call_wait *wait, void *context,
               int *over);

#endif
