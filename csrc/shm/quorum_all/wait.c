/* Waits of the executor of quorum "all": how long, and what becomes of those that last. */
#include "shm/quorum_all/executor.h"
#include "base/error.h"

static enum trace_wait awaited(const wagma_handle *h) {
    if (inplace_of(h)->chunking)
        return TRACE_FOR_SLICES;
    switch ((enum inplace_why)inplace_of(h)->local.why) {
    case INPLACE_WHY_WINDOW:
        return TRACE_FOR_WINDOW;
    case INPLACE_WHY_MEMBERS:
        return h->call.sync ? TRACE_FOR_SYNC : TRACE_FOR_QUORUM;
    case INPLACE_WHY_SLICES:
        return TRACE_FOR_SLICES;
    }
    __builtin_unreachable();
}

int inplace_trouble(wagma_handle *h, enum inplace_action action) {
    const struct inplace_local *l = &inplace_of(h)->local;
    static const char *const names[] = {"without sync", "with sync"};
    if (action == INPLACE_PEER)
        return handle_lost(h, handle_phase(awaited(h)), l->other);
    return error_set(
        WAGMA_EMISMATCH,
        "rank %d is at version %lld %s, but rank %d came to version %lld %s: all ranks "
        "have to call sync at the same version",
        h->rank, (long long)l->t, names[l->sync != 0], l->other,
        (long long)inplace_stamp_version(l->word), names[l->word & 1]);
}

/* Whom this rank waits for; `*action` is what it asks for after that. */
static int look_for_trouble(wagma_handle *h, enum inplace_action *action) {
    struct inplace_executor *e = h->state;
    const struct inplace_local *l = &e->local;
    if (e->chunking)
        return chunks_look_for_trouble(h, handle_phase(awaited(h)));
    inplace_seek(&e->context, &e->local);
    *action = inplace_run(&e->context, &e->local);
    if (*action != INPLACE_SOUGHT)
        return WAGMA_OK; /* found, or the wait is over */
    *action = INPLACE_WAIT;
    if (l->missing_n == 0) /* they have come meanwhile */
        return handle_interrupted(h, handle_phase(awaited(h)));
    return handle_delayed(h, handle_phase(awaited(h)), l->missing, l->missing_n, l->missing_n);
}

static enum inplace_action go_on(wagma_handle *h) {
    struct inplace_executor *e = h->state;
    if (e->chunking)
        return chunks_can_go_on(h) ? INPLACE_STEP : INPLACE_WAIT;
    return inplace_run(&e->context, &e->local);
}

int inplace_wait(wagma_handle *h, uint32_t most_pauses, enum inplace_action *action) {
    struct inplace_executor *e = h->state;
    const uint64_t until = h->call.until;
    int status = WAGMA_OK;
    if (most_pauses == INPLACE_NO_PAUSE) {
        if (handle_look_due(h))
            status = look_for_trouble(h, action);
        return status == WAGMA_OK && *action == INPLACE_WAIT ? WAGMA_INPROGRESS : status;
    }
    if (most_pauses != INPLACE_ANY_PAUSES && handle_wait(h)->spin <= 0)
        return WAGMA_INPROGRESS; /* the first pause would already give the core away */
    wait_begin(handle_wait(h), handle_segment(h), h->rank);
    const enum trace_wait what = awaited(h);
    trace_waits(h->trace, what);
    do {
        /* Of the waits before publishing only that for the window needs it; rings for members wake
         * both. */
        handle_wait(h)->window = !e->chunking && e->local.why == INPLACE_WHY_WINDOW;
        if (handle_wait(h)->pauses >= most_pauses)
            status = WAGMA_INPROGRESS;
        else if (wait_pause(handle_wait(h), until) == WAIT_HEARTBEAT ||
                 (until && clock_now() >= until))
            status = look_for_trouble(h, action);
        if (status == WAGMA_OK)
            status = handle_check_open(h);
        if (status == WAGMA_OK && *action == INPLACE_WAIT)
            *action = go_on(h);
    } while (status == WAGMA_OK && *action == INPLACE_WAIT);
    const uint64_t waited = wait_end(handle_wait(h)), began = handle_wait(h)->began;
    trace_waited(h->trace, what, began, began + waited, h->call.version, -1);
    h->call.waited += waited;
    return status;
}
