/* Waits of the wait-avoiding executor: the reason of each, the missing ranks, and its end. */
#include <stdio.h>

#include "base/error.h"
#include "protocol/starter.h"
#include "shm/avoiding/executor.h"

static uint64_t publication(const wagma_segment *s, int r) {
    /* acquire: pairs with PC_PUBLISH of round.c */
    return atomic_load_explicit(segment_pub(s, r), memory_order_acquire);
}

/* More memory instead of a wait, up to the protocol's bound or the limit. 1: there is more. */
static int commit_more(wagma_handle *h, enum round_why why) {
    struct avoiding_executor *e = h->state;
    const struct avoiding_plane *plane = e->plane;
    wagma_segment *s = handle_segment(h);
    if (why == ROUND_WHY_BUFFER) {
        if (e->committed_contributions >= segment_most_contributions(s) ||
            (plane && plane->add_contribution(h, e->committed_contributions) != 0) ||
            segment_commit_contribution(s, h->rank, e->committed_contributions,
                                        &e->committed_contributions) != 0)
            return 0;
        e->context.buffers_usable = (uint32_t)e->committed_contributions;
        return 1;
    }
    const int i = e->committed_rounds;
    if (i >= segment_most_rounds(s) || (plane && plane->add_result(h, i) != 0) ||
        segment_commit_round(s, h->rank, i, &e->committed_rounds) != 0)
        return 0;
    /* release: pairs with PC_FREE of round.c, which is this rank's own */
    atomic_store_explicit(&segment_round_of(s, (uint32_t)(h->rank * s->rounds + i))->free, 1,
                          memory_order_release);
    e->context.rounds_usable = (uint32_t)e->committed_rounds;
    return 1;
}

static enum trace_wait awaited(const wagma_handle *h, enum round_why why) {
    switch (why) {
    case ROUND_WHY_WINDOW: return TRACE_FOR_WINDOW;
    case ROUND_WHY_BUFFER: return TRACE_FOR_BUFFER;
    case ROUND_WHY_ROUND: return TRACE_FOR_ROUND;
    case ROUND_WHY_SLICES: return TRACE_FOR_SLICES;
    case ROUND_WHY_GRACE: return TRACE_FOR_GRACE;
    case ROUND_WHY_QUORUM: break;
    }
    return h->call.sync ? TRACE_FOR_SYNC : TRACE_FOR_QUORUM;
}

static const char *phase(const wagma_handle *h, enum round_why why) {
    return handle_phase(awaited(h, why));
}

/* Return the version that rank r has reached: by its newest contribution, or by a jump of its
 * counter. */
static uint64_t progress(const wagma_segment *s, int r) {
    const uint64_t version = round_version(publication(s, r));
    /* acquire: as publication() */
    const uint64_t at = atomic_load_explicit(segment_at(s, r), memory_order_acquire);
    return at > version ? at : version;
}

/* The member that starts the version, of those that have not departed or gone past it. */
static int starter_left(const wagma_handle *h) {
    const struct avoiding_executor *e = h->state;
    const struct round_local *l = &e->local;
    int found = -1;
    for (int i = 0; i < h->call.n; i++) {
        const int r = h->call.members[i];
        if (progress(handle_segment(h), r) <= l->t)
            found = starter(e->context.topology.seed, l->t, l->leader, found, r);
    }
    return found;
}

/* Ranks that the wait is for, and how many of them have to come. */
static int stall(wagma_handle *h, enum round_why why) {
    struct avoiding_executor *e = h->state;
    const wagma_segment *s = handle_segment(h);
    const uint64_t t = e->local.t;
    const int in_group = why == ROUND_WHY_QUORUM;
    /* a slice that does not come, and no memory to do without it: one of the members has it */
    const int of_group = in_group || (why == ROUND_WHY_BUFFER && e->local.to_all);
    const int n = of_group ? h->call.n : s->size;
    int missing = 0, present = 0, gone = 0;
    for (int i = 0; i < n; i++) {
        const int r = of_group ? h->call.members[i] : i;
        const uint64_t word = publication(s, r), version = progress(s, r);
        if (word == ROUND_DEPARTED || (in_group && round_version(word) != t && version >= t)) {
            gone++;
            continue;
        }
        if (in_group && version >= t)
            present++;
        if (in_group                  ? version < t
            : why == ROUND_WHY_WINDOW ? version + (uint64_t)s->options.window < t
                                      : r != h->rank)
            e->missing[missing++] = r;
    }
    int needed = missing;
    if (in_group && !h->call.sync && h->quorum == WAGMA_QUORUM_MAJORITY) {
        const int drawn = starter_left(h);
        if (drawn < 0 || progress(s, drawn) >= t) /* it came meanwhile */
            return handle_interrupted(h, phase(h, why));
        e->missing[0] = drawn;
        missing = needed = 1;
    } else if (in_group && !h->call.sync) {
        const int quorum = h->quorum < n - gone ? h->quorum : n - gone;
        needed = quorum - present;
    }
    return handle_heartbeat(h, phase(h, why), e->missing, missing, needed);
}

/* No rank has to arrive during the grace: it ends when all awaited ranks are dead or failed. */
static int stall_in_grace(wagma_handle *h) {
    struct avoiding_executor *e = h->state;
    const wagma_segment *s = handle_segment(h);
    int alive = 0;
    for (int i = 0; i < h->call.n && !alive; i++)
        alive = progress(s, h->call.members[i]) + 1 == e->local.t &&
                !segment_is_dead(s, h->call.members[i]);
    e->input.grace_over |= !alive;
    return handle_interrupted(h, "grace");
}

/* When the wait for `why` ends by itself; 0: never. */
static uint64_t deadline(wagma_handle *h, enum round_why why) {
    struct avoiding_executor *e = h->state;
    if (why == ROUND_WHY_GRACE)
        return grace_deadline(&e->grace, h);
    if (why != ROUND_WHY_SLICES)
        return 0;
    const uint64_t redo = (uint64_t)(handle_segment(h)->options.redo_after * 1e9);
    return clock_now() + (redo > 2 * e->slice_ns ? redo : 2 * e->slice_ns);
}

static int look(wagma_handle *h, void *context, int *over) {
    const enum round_why why = *(const enum round_why *)context;
    (void)over;
    if (why == ROUND_WHY_SLICES) /* no rank has to act: the slice is recomputed */
        return handle_interrupted(h, phase(h, why));
    const int status = why == ROUND_WHY_GRACE ? stall_in_grace(h) : stall(h, why);
    if (status != WAGMA_EPEER || !avoiding_of(h)->context.varies)
        return status;
    /* acquire: pairs with PC_DISPUTE_SET of round.c. The rank may have failed because it found one
     */
    const uint64_t dispute =
        atomic_load_explicit(segment_dispute(handle_segment(h)), memory_order_acquire);
    return dispute != 0 ? avoiding_disputed(h, dispute) : status;
}

/* Sleeps, or looks for stalls. */
static int sleep_once(wagma_handle *h, enum round_why why) {
    static const struct call_wait wait = {.look = look};
    const struct avoiding_executor *e = h->state;
    const uint64_t until = h->call.until;
    uint64_t wake = e->until;
    int over;
    if (until != 0 && (wake == 0 || until < wake))
        wake = until;
    const int status = call_pause(h, wake, &wait, &why, &over);
    if (status != WAGMA_OK)
        avoiding_leave(h);
    return status;
}

/* A wait goes on for something else. */
static void trace_turn(wagma_handle *h, enum round_why why) {
    struct avoiding_executor *e = h->state;
    trace_waits(h->trace, awaited(h, why));
    if (!trace_is_on(h->trace) || handle_wait(h)->began == 0)
        return;
    const uint64_t now = clock_now();
    trace_span(h->trace, TRACE_WAIT, e->since ? e->since : handle_wait(h)->began, now,
               h->call.version, -1, (int)awaited(h, e->why));
    e->since = now;
}

int avoiding_pause(wagma_handle *h, enum call_mode mode) {
    struct avoiding_executor *e = h->state;
    enum round_why why = (enum round_why)e->local.why;

    if (why == ROUND_WHY_BUFFER || why == ROUND_WHY_ROUND) {
        if (commit_more(h, why))
            return WAGMA_OK;
        h->stats.buffer_waits += !e->counted;
        e->counted = 1;
    }
    if (!e->timed || e->why != why) {
        if (e->waiting)
            trace_turn(h, why);
        e->timed = 1;
        e->why = why;
        e->until = deadline(h, why);
    }
    if (e->until != 0 && clock_now() >= e->until) {
        e->input.grace_over |= why == ROUND_WHY_GRACE;
        e->input.redo |= why == ROUND_WHY_SLICES;
        return WAGMA_OK;
    }
    if (mode == CALL_POST)
        return WAGMA_INPROGRESS;
    if (mode == CALL_POLL) {
        int over;
        const int status = handle_look_due(h) ? look(h, &why, &over) : WAGMA_OK;
        return status == WAGMA_OK ? WAGMA_INPROGRESS : status;
    }
    if (!e->waiting) {
        wait_begin(handle_wait(h), handle_segment(h), h->rank);
        trace_waits(h->trace, awaited(h, why));
        e->waiting = 1;
        e->since = 0;
    }
    handle_wait(h)->window = why == ROUND_WHY_WINDOW;
    if (mode == CALL_START &&
        (handle_wait(h)->spin < 0 || clock_now() - h->call.began > AVOIDING_START_NS))
        return WAGMA_INPROGRESS;
    return sleep_once(h, why);
}

void avoiding_leave(wagma_handle *h) {
    struct avoiding_executor *e = h->state;
    if (!e->waiting)
        return;
    const uint64_t waited = wait_end(handle_wait(h)), began = handle_wait(h)->began;
    trace_waited(h->trace, awaited(h, e->why), e->since ? e->since : began, began + waited,
                 h->call.version, -1);
    h->call.waited += waited;
    e->waiting = 0;
}

void avoiding_resume(wagma_handle *h) {
    avoiding_leave(h);
    avoiding_of(h)->timed = 0;
}

/* The rank that called this rank's version the other way, or went past it; -1: it has left. */
static int disputer(const wagma_handle *h) {
    const int named =
        (int)avoiding_of(h)->local.other; /* or the leader of the group, which may be this one */
    for (int i = -1; i < handle_segment(h)->size; i++) {
        const int r = i < 0 ? named : i;
        const uint64_t word = publication(handle_segment(h), r);
        if (r != h->rank && word != ROUND_DEPARTED &&
            (long long)round_version(word) > (long long)h->call.version)
            return r;
    }
    return -1;
}

int avoiding_mismatch(wagma_handle *h) {
    const int other = disputer(h);
    char whom[64] = "another rank, which has left";
    if (other >= 0)
        snprintf(whom, sizeof whom, "rank %d, now at version %lld", other,
                 (long long)round_version(publication(handle_segment(h), other)) - 1);
    return error_set(WAGMA_EMISMATCH,
                     "rank %d called %s at version %lld, where %s, called %s: every rank has to "
                     "call sync(x) at the same version",
                     h->rank, h->call.explicit_sync ? "sync(x)" : "allreduce(x)",
                     (long long)h->call.version, whom,
                     h->call.explicit_sync ? "allreduce(x)" : "sync(x)");
}

/* The quorum that rank r, which has set DISPUTE, calls versions with. */
static int quorum_of(const wagma_handle *h, int r) {
    /* relaxed: ordered by the acquire load of DISPUTE. 0: r has never set its quorum */
    const uint64_t quorum =
        atomic_load_explicit(segment_quorum(handle_segment(h), r), memory_order_relaxed);
    return quorum != 0 ? (int)quorum : handle_segment(h)->options.quorum;
}

int avoiding_disputed(const wagma_handle *h, uint64_t dispute) {
    const struct round_context *x = &avoiding_of(h)->context;
    const wagma_segment *s = handle_segment(h);
    const uint64_t t = round_version(dispute);
    const int finder = (int)round_low(dispute) - 1;
    /* acquire: HEAD; pairs with PC_PIN_SET. No rank reuses the round or its slot while the finder
     * is at version t, and the finder never leaves it */
    const uint64_t slot =
        atomic_load_explicit(segment_slot(s, 0, (int)(t % x->slots)), memory_order_acquire);
    const uint64_t head =
        atomic_load_explicit(&segment_round_of(s, round_low(slot))->head, memory_order_relaxed);
    return error_set(WAGMA_EQUORUM,
                     "rank %d called version %lld with quorum %d, and rank %d with quorum %d: "
                     "every rank has to call a version with the same quorum",
                     finder, (long long)t - 1, quorum_of(h, finder),
                     (int)(round_low(slot) / x->rounds), (int)(round_low(head) >> 1));
}
