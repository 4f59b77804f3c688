/* See call_wait.h. */
#include "shm/call_wait.h"

int call_pause(wagma_handle *h, uint64_t wake, const struct call_wait *wait, void *context,
               int *over) {
    const uint64_t until = h->call.until;
    const enum wait_event event = wait_pause(handle_wait(h), wake);
    const int status = handle_check_open(h);
    if (status != WAGMA_OK || (event != WAIT_HEARTBEAT && (until == 0 || clock_now() < until)))
        return status;
    const int found = wait->look(h, context, over);
    return found != WAGMA_OK ? found : handle_check_open(h);
}

enum { NAP_SHARE = 4 };

/* When the next pause ends at the latest; 0: no limit. A rank with a core of its own naps for a
 * share of the time that it has waited: so it finds soon that a short wait is over. Naps that
 * would be too short to sleep give the core away (wait.c), in the first quarter of a ms. */
static uint64_t wake_of(const wagma_handle *h, const struct call_wait *wait) {
    const wait_state *w = handle_wait(h);
    const uint64_t until = h->call.until;
    if (wait->nap == 0)
        return until;
    const uint64_t now = clock_now(), share = w->began ? (now - w->began) / NAP_SHARE : 0;
    const uint64_t nap = now + (w->spin > 0 && share < wait->nap ? share : wait->nap);
    return until == 0 || nap < until ? nap : until;
}

int call_wait(wagma_handle *h, enum trace_wait what, uint32_t most_pauses,
              const struct call_wait *wait, void *context) {
    wait_state *w = handle_wait(h);
    int status = WAGMA_OK, over = 0;
    if (most_pauses == WAIT_NO_PAUSE) {
        if (handle_look_due(h))
            status = wait->look(h, context, &over);
        return status == WAGMA_OK && !over ? WAGMA_INPROGRESS : status;
    }
    if (most_pauses != WAIT_ANY_PAUSES && w->spin <= 0)
        return WAGMA_INPROGRESS; /* the first pause would already give the core away */
    wait_begin(w, handle_segment(h), h->rank);
    trace_waits(h->trace, what);
    while (status == WAGMA_OK && !over) {
        w->window = wait->for_window && wait->for_window(h);
        status = w->pauses >= most_pauses ? WAGMA_INPROGRESS
                                          : call_pause(h, wake_of(h, wait), wait, context, &over);
        if (status == WAGMA_OK && !over)
            status = wait->go_on(h, context, &over);
    }
    const uint64_t waited = wait_end(w), began = w->began;
    trace_waited(h->trace, what, began, began + waited, h->call.version, -1);
    h->call.waited += waited;
    return status;
}
