/* Waits over a transport: pauses, missing ranks, stalls and timeouts. A rank that waits drives the
 * engine itself. */
#include "base/error.h"
#include "messages/executor.h"

enum {
    START_NS = 3000,      /* what start() may wait before it hands over to finish() */
    SPIN_NS = 1000000,    /* of a wait in which nothing moves, where every rank has a core */
    REST_NS_MAX = 1000000 /* one pause of a wait that lasts long */
};

/* ---- missing ranks --------------------------------------------------------------------------- */

static enum trace_wait what_for(const wagma_handle *h, const struct activation_call *answer) {
    if (answer->state == ACTIVATION_WAITS_WINDOW)
        return TRACE_FOR_WINDOW;
    if (h->call.sync)
        return TRACE_FOR_SYNC;
    return answer->state == ACTIVATION_WAITS_QUORUM || h->policy.in_place ? TRACE_FOR_QUORUM
                                                                          : TRACE_FOR_DATA;
}

/* 1: a rank that the wait needs is lost, and what it had sent before that has had the time to come:
 * it may be all that the wait needs. */
static int is_lost_for_good(struct messages_executor *e, int rank, uint64_t now) {
    if (rank < 0)
        e->lost_since = 0;
    else if (e->lost_since == 0)
        e->lost_since = now;
    return rank >= 0 && now - e->lost_since >= WAIT_HEARTBEAT_NS;
}

/* Ranks fail one after the other; the error of each names the first cause. */
static int lose_after(wagma_handle *h, const char *phase, int rank) {
    const messages_loss *l = &messages_of(h)->failure;
    const int awaited = l->cause == ACTIVATION_BY_AWAITED;
    return error_set(WAGMA_EPEER,
                     "rank %d %s, so rank %d failed, and version %lld (phase %s) needs that one: "
                     "make a new handle%s without rank %d",
                     l->first,
                     awaited                          ? "did not come in time"
                     : l->cause == ACTIVATION_BY_DEAD ? "is dead"
                                                      : "failed or left without close()",
                     rank, (long long)h->call.version, phase,
                     awaited ? ", with a longer timeout or" : "", l->first);
}

static int lose(wagma_handle *h, const char *phase, int rank) {
    struct messages_executor *e = h->state;
    if (e->disputer < 0) {
        const messages_loss *l = &e->losses[rank];
        e->failure = *l;
        if (l->cause >= ACTIVATION_BY_FAILED && l->first != rank)
            return lose_after(h, phase, rank);
        e->failure.cause = l->how == HANDLE_DEAD ? ACTIVATION_BY_DEAD : ACTIVATION_BY_FAILED;
        e->failure.first = rank;
        return handle_lost(h, phase, rank);
    }
    return error_set(
        WAGMA_EMISMATCH,
        "rank %d found that not all ranks called sync(x) at version %lld; rank %d, at "
        "version %lld (phase %s), needs it: every rank has to call sync(x) at the same "
        "version",
        e->disputer, (long long)e->mismatch, h->rank, (long long)h->call.version, phase);
}

/* No rank is lost. */
static int be_delayed(wagma_handle *h, const char *phase, int n, int needed) {
    struct messages_executor *e = h->state;
    const int status = handle_delayed(h, phase, e->ranks, n, needed);
    if (status == WAGMA_ESTALL && n == 1)
        e->failure = (messages_loss){HANDLE_FAILED, ACTIVATION_BY_AWAITED, e->ranks[0]};
    return status;
}

/* Look for a stall of a call. A rank that has not arrived needs no other while its x is coming. */
static int look_for_stall(wagma_handle *h, const void *context, uint64_t now) {
    const struct activation_call *answer = context;
    struct messages_executor *e = h->state;
    const char *phase = handle_phase(what_for(h, answer));
    const int whole = parts_whole(h->call.parts);
    int failed, needed, status = messages_look_for_dead(h);
    const int lost = whole || e->arrived ? activation_lost(e->activation, &failed) : -1;
    if (status == WAGMA_OK && is_lost_for_good(e, lost, now))
        return lose(h, phase, lost);
    if (status == WAGMA_OK && !whole)
        return handle_look_at_device(h);
    if (status == WAGMA_OK)
        status = messages_inquire(h, now);
    if (status != WAGMA_OK)
        return status;
    const int n = messages_missing_in_groups(h, answer, e->ranks, &needed);
    return be_delayed(h, phase, n, needed);
}

int messages_look_at(wagma_handle *h, enum trace_wait what, int n, uint64_t now) {
    struct messages_executor *e = h->state;
    int lost = -1;
    for (int i = 0; i < n; i++)
        lost = lost < 0 && e->losses[e->ranks[i]].how ? e->ranks[i] : lost;
    if (is_lost_for_good(e, lost, now))
        return lose(h, handle_phase(what), lost);
    const int status = messages_inquire(h, now);
    n = messages_follow(h, e->ranks, n);
    return status != WAGMA_OK ? status : be_delayed(h, handle_phase(what), n, n);
}

/* Look for a stall of a wait of all ranks together; *context: the trace_wait. */
static int look_at_all(wagma_handle *h, const void *context, uint64_t now) {
    const enum trace_wait what = *(const enum trace_wait *)context;
    struct messages_executor *e = h->state;
    const char *phase = handle_phase(what);
    const int status = messages_look_for_dead(h);
    if (status != WAGMA_OK)
        return status;
    int lost = -1, n;
    for (int r = 0; r < h->size; r++)
        lost = lost < 0 && e->losses[r].how ? r : lost;
    if (is_lost_for_good(e, lost, now))
        return lose(h, phase, lost);
    const int asked = messages_missing_together(h, what, e->ranks, now, &n);
    return asked != WAGMA_OK ? asked : be_delayed(h, phase, n, n);
}

/* ---- how long -------------------------------------------------------------------------------- */

static void begin_wait(wagma_handle *h, enum trace_wait what, uint64_t now) {
    struct messages_executor *e = h->state;
    if (e->waiting && e->waits_for == (int)what)
        return;
    if (e->waiting)
        messages_end_wait(h);
    trace_waits(h->trace, what);
    e->waits_for = (int)what;
    e->waiting = e->looked = now;
    if (e->moved == 0)
        e->moved = now;
    if (e->heartbeat == 0)
        e->heartbeat = now + WAIT_HEARTBEAT_NS;
}

void messages_end_wait(wagma_handle *h) {
    struct messages_executor *e = h->state;
    if (!e->waiting)
        return;
    trace_waited(h->trace, (enum trace_wait)e->waits_for, e->waiting, e->looked, h->call.version,
                 -1);
    e->waiting = 0;
}

/* Count the time in which nothing moved as waiting; the rest is work. */
static void count(wagma_handle *h, int moved, uint64_t now) {
    struct messages_executor *e = h->state;
    if (moved)
        e->moved = now;
    else if (e->waiting)
        h->call.waited += now - e->looked;
    e->looked = now;
}

/* A core that nobody else needs is not given away for a wait that may end at once: on a machine
 * that does something else, too, getting it back takes 100 us. */
static void rest(wagma_handle *h, uint64_t now) {
    struct messages_executor *e = h->state;
    if (e->options->progress == WAGMA_PROGRESS_SPIN || (!e->crowded && now - e->moved < SPIN_NS))
        return;
    uint64_t until = now + progress_pause(PROGRESS_STILL, now - e->moved, REST_NS_MAX);
    const uint64_t ends[] = {e->core->deadline ? e->core->deadline(e) : 0, e->heartbeat,
                             h->call.until};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends[i] != 0 && ends[i] < until)
            until = ends[i];
    if (until > now)
        progress_rest(until - now);
    else
        progress_take_turns(&e->turns, now);
}

/* 1: once per heartbeat, and when the caller wants to be back. */
static int is_due(wagma_handle *h, uint64_t now) {
    struct messages_executor *e = h->state;
    if (now < e->heartbeat && (h->call.until == 0 || now < h->call.until))
        return 0;
    e->heartbeat = now + WAIT_HEARTBEAT_NS;
    return 1;
}

static int pause_once(wagma_handle *h, enum call_mode mode, enum trace_wait what,
                      messages_look *look, const void *context, int moved, uint64_t now) {
    count(h, moved, now);
    begin_wait(h, what, now);
    if (mode == CALL_START && now - h->call.began > START_NS)
        return WAGMA_INPROGRESS;
    const int status = is_due(h, now) ? look(h, context, now) : WAGMA_OK;
    if (status == WAGMA_OK && !moved)
        rest(h, now);
    return status;
}

int messages_pause_for(wagma_handle *h, enum call_mode mode, enum trace_wait what,
                       messages_look *look, const void *context, int moved) {
    struct messages_executor *e = h->state;
    if (mode == CALL_POST)
        return WAGMA_INPROGRESS;
    if (moved && !e->waiting)
        return WAGMA_OK;
    const uint64_t now = clock_now();
    if (mode == CALL_POLL) {
        const int status = handle_look_due(h) ? look(h, context, now) : WAGMA_OK;
        return status != WAGMA_OK ? status : moved ? WAGMA_OK : WAGMA_INPROGRESS;
    }
    return pause_once(h, mode, what, look, context, moved, now);
}

int messages_pause(wagma_handle *h, enum call_mode mode, const struct activation_call *answer,
                   int moved) {
    const enum trace_wait what =
        parts_whole(h->call.parts) ? what_for(h, answer) : TRACE_FOR_DEVICE;
    return messages_pause_for(h, mode, what, look_for_stall, answer, moved);
}

int messages_pause_together(wagma_handle *h, enum trace_wait what, int moved) {
    const int status = pause_once(h, CALL_FINISH, what, look_at_all, &what, moved, clock_now());
    return status != WAGMA_OK ? status : messages_check(h->state);
}
