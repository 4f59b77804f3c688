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

/* Look whom this rank waits for; *context: what it asks for after that. */
static int look_for_trouble(wagma_handle *h, void *context, int *over) {
    enum inplace_action *action = context;
    struct inplace_executor *e = h->state;
    const struct inplace_local *l = &e->local;
    if (e->chunking)
        return chunks_look_for_trouble(h, handle_phase(awaited(h)));
    inplace_seek(&e->context, &e->local);
    *action = inplace_run(&e->context, &e->local);
    if (*action != INPLACE_SOUGHT) { /* found, or the wait is over */
        *over = *action != INPLACE_WAIT;
        return WAGMA_OK;
    }
    *action = INPLACE_WAIT;
    if (l->missing_n == 0) /* they have come meanwhile */
        return handle_interrupted(h, handle_phase(awaited(h)));
    return handle_delayed(h, handle_phase(awaited(h)), l->missing, l->missing_n, l->missing_n);
}

static int go_on(wagma_handle *h, void *context, int *over) {
    enum inplace_action *action = context;
    struct inplace_executor *e = h->state;
    if (e->chunking)
        *action = chunks_can_go_on(h) ? INPLACE_STEP : INPLACE_WAIT;
    else
        *action = inplace_run(&e->context, &e->local);
    *over = *action != INPLACE_WAIT;
    return WAGMA_OK;
}

/* Of the waits before publishing only that for the window needs it; rings for members wake both. */
static int for_window(const wagma_handle *h) {
    const struct inplace_executor *e = h->state;
    return !e->chunking && e->local.why == INPLACE_WHY_WINDOW;
}

int inplace_wait(wagma_handle *h, uint32_t most_pauses, enum inplace_action *action) {
    static const struct call_wait wait = {go_on, look_for_trouble, for_window};
    return call_wait(h, awaited(h), most_pauses, &wait, action);
}
