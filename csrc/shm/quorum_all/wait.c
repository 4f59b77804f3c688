/* Waits of the executor of quorum "all": how long, and what becomes of those that last. */
#include "base/error.h"
#include "shm/quorum_all/executor.h"

static enum trace_wait awaited(const wagma_handle *h) {
    if (quorum_all_of(h)->chunking)
        return TRACE_FOR_SLICES;
    switch ((enum quorum_all_why)quorum_all_of(h)->local.why) {
    case QUORUM_ALL_WHY_WINDOW: return TRACE_FOR_WINDOW;
    case QUORUM_ALL_WHY_MEMBERS: return h->call.sync ? TRACE_FOR_SYNC : TRACE_FOR_QUORUM;
    case QUORUM_ALL_WHY_SLICES: return TRACE_FOR_SLICES;
    }
    __builtin_unreachable();
}

int quorum_all_error(wagma_handle *h, enum quorum_all_action action) {
    const struct quorum_all_local *l = &quorum_all_of(h)->local;
    static const char *const names[] = {"without sync", "with sync"};
    if (action == QUORUM_ALL_PEER)
        return handle_lost(h, handle_phase(awaited(h)), l->other);
    return error_set(
        WAGMA_EMISMATCH,
        "rank %d is at version %lld %s, but rank %d came to version %lld %s: all ranks "
        "have to call sync at the same version",
        h->rank, (long long)l->t, names[l->sync != 0], l->other,
        (long long)quorum_all_stamp_version(l->word), names[l->word & 1]);
}

/* Look for the ranks that this rank waits for; *context: the action that follows. */
static int look_for_stall(wagma_handle *h, void *context, int *over) {
    enum quorum_all_action *action = context;
    struct quorum_all_executor *e = h->state;
    const struct quorum_all_local *l = &e->local;
    if (e->chunking)
        return chunks_look_for_stall(h, handle_phase(awaited(h)));
    quorum_all_seek(&e->context, &e->local);
    *action = quorum_all_run(&e->context, &e->local);
    if (*action != QUORUM_ALL_SOUGHT) { /* found, or the wait is over */
        *over = *action != QUORUM_ALL_WAIT;
        return WAGMA_OK;
    }
    *action = QUORUM_ALL_WAIT;
    if (l->missing_n == 0) /* they have come meanwhile */
        return handle_interrupted(h, handle_phase(awaited(h)));
    return handle_delayed(h, handle_phase(awaited(h)), l->missing, l->missing_n, l->missing_n);
}

static int go_on(wagma_handle *h, void *context, int *over) {
    enum quorum_all_action *action = context;
    struct quorum_all_executor *e = h->state;
    if (e->chunking)
        *action = chunks_can_go_on(h) ? QUORUM_ALL_STEP : QUORUM_ALL_WAIT;
    else
        *action = quorum_all_run(&e->context, &e->local);
    *over = *action != QUORUM_ALL_WAIT;
    return WAGMA_OK;
}

/* Return 1 in the wait for the window, which publications that move the window end. */
static int for_window(const wagma_handle *h) {
    const struct quorum_all_executor *e = h->state;
    return !e->chunking && e->local.why == QUORUM_ALL_WHY_WINDOW;
}

int quorum_all_wait(wagma_handle *h, uint32_t most_pauses, enum quorum_all_action *action) {
    static const struct call_wait wait = {
        .go_on = go_on, .look = look_for_stall, .for_window = for_window};
    return call_wait(h, awaited(h), most_pauses, &wait, action);
}
