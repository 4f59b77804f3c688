/* Wait loop of a call over a segment, shared by all executors of one node. An executor supplies the
 * function that continues the call and the one that handles stalls. */
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
    /* Continue after a pause; set *over when the wait is over. WAGMA_OK, or an error. */
    int (*go_on)(wagma_handle *h, void *context, int *over);
    /* Look for stalls, once per heartbeat and when call.until has passed; may set *over.
     * WAGMA_OK: go on waiting. */
    int (*look)(wagma_handle *h, void *context, int *over);
    /* Return 1 if only publications that move the window can end the wait. NULL: never. */
    int (*for_window)(const wagma_handle *h);
    /* ns of a sleep, at most, where no rank rings when the wait is over. 0: no limit of its own. */
    uint64_t nap;
};

/* Wait until go_on() or look() sets *over: WAGMA_OK. After `most_pauses` pauses, or at call.until:
 * WAGMA_INPROGRESS. Otherwise an error. */
int call_wait(wagma_handle *h, enum trace_wait what, uint32_t most_pauses,
              const struct call_wait *wait, void *context);

/* Pause once, until `wake` (ns; 0: no limit) at the latest, and call look() when it is due. */
int call_pause(wagma_handle *h, uint64_t wake, const struct call_wait *wait, void *context,
               int *over);

#endif
