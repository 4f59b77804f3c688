/* Waits of the wait-avoiding executor: what each is for, who is missing, and when it ends. */
#include "executor_shm.h"

static uint64_t publication(const wagma_segment *s, int r) {
    /* acquire: pairs with PC_PUBLISH of round.c */
    return atomic_load_explicit(segment_pub(s, r), memory_order_acquire);
}

/* More memory instead of a wait, up to the protocol's bound or the limit. 1: there is more. */
static int commit_more(wagma_handle *h, enum round_why why) {
    struct shm_executor *e = h->shm;
    wagma_segment *s = h->segment;
    if (why == ROUND_WHY_BUFFER) {
        if (e->committed_contributions >= s->buffers ||
            segment_commit_contribution(s, h->rank, e->committed_contributions,
                                        &e->committed_contributions) != 0)
            return 0;
        e->context.buffers_usable = (uint32_t)e->committed_contributions;
        return 1;
    }
    const int i = e->committed_rounds;
    if (i >= s->rounds || segment_commit_round(s, h->rank, i, &e->committed_rounds) != 0)
        return 0;
    /* release: pairs with PC_FREE of round.c, which is this rank's own */
    atomic_store_explicit(&segment_round_of(s, (uint32_t)(h->rank * s->rounds + i))->free, 1,
                          memory_order_release);
    e->context.rounds_usable = (uint32_t)e->committed_rounds;
    return 1;
}

static const char *phase_of(const wagma_handle *h, enum round_why why) {
    switch (why) {
    case ROUND_WHY_WINDOW:
        return "window";
    case ROUND_WHY_BUFFER:
        return "buffer";
    case ROUND_WHY_ROUND:
        return "round";
    case ROUND_WHY_SLICES:
        return "slices";
    case ROUND_WHY_QUORUM:
    case ROUND_WHY_GRACE:
        break;
    }
    return h->call.sync ? "sync" : "quorum";
}

/* Ranks that the wait is for, and how many of them have to come. */
static int trouble(wagma_handle *h, enum round_why why) {
    struct shm_executor *e = h->shm;
    const wagma_segment *s = h->segment;
    const uint64_t t = e->local.t;
    const int in_group = why == ROUND_WHY_QUORUM;
    const int n = in_group ? h->call.n : s->size;
    int missing = 0, present = 0, gone = 0;
    for (int i = 0; i < n; i++) {
        const int r = in_group ? h->call.members[i] : i;
        const uint64_t word = publication(s, r);
        if (word == ROUND_DEPARTED) {
            gone++;
            continue;
        }
        const uint64_t version = round_version(word);
        if (in_group && version >= t)
            present++;
        if (in_group                  ? version < t
            : why == ROUND_WHY_WINDOW ? version + (uint64_t)s->options.window < t
                                      : r != h->rank)
            e->missing[missing++] = r;
    }
    int needed = missing;
    if (in_group && !h->call.sync) {
        const int quorum = s->options.quorum < n - gone ? s->options.quorum : n - gone;
        needed = quorum - present;
    }
    return handle_heartbeat(h, phase_of(h, why), e->missing, missing, needed);
}

/* In the grace nobody has to come: it is over when all that are awaited are dead or failed. */
static int trouble_in_grace(wagma_handle *h) {
    struct shm_executor *e = h->shm;
    const wagma_segment *s = h->segment;
    int alive = 0;
    for (int i = 0; i < h->call.n && !alive; i++)
        alive = round_version(publication(s, h->call.members[i])) + 1 == e->local.t &&
                !segment_is_dead(s, h->call.members[i]);
    e->input.grace_over |= !alive;
    return handle_interrupted(h, "grace");
}

int shm_pause(wagma_handle *h, uint64_t budget_ns) {
    struct shm_executor *e = h->shm;
    wagma_segment *s = h->segment;
    const enum round_why why = (enum round_why)e->local.why;

    if ((why == ROUND_WHY_BUFFER || why == ROUND_WHY_ROUND)) {
        if (commit_more(h, why))
            return WAGMA_OK;
        h->stats.buffer_waits += !e->counted;
        e->counted = 1;
    }
    if (!e->waiting) {
        wait_begin(&h->wait, s, h->rank);
        e->waiting = 1;
        e->until = 0;
        e->why = ROUND_WHY_WINDOW;
    }
    if (e->why != why || e->until == 0) {
        h->wait.window = why == ROUND_WHY_WINDOW;
        e->why = why;
        e->until = 0;
        if (why == ROUND_WHY_GRACE)
            e->until = grace_deadline(&e->grace, h);
        if (why == ROUND_WHY_SLICES) {
            const uint64_t redo = (uint64_t)(s->options.redo_after * 1e9);
            e->until = wait_now() + (redo > 2 * e->slice_ns ? redo : 2 * e->slice_ns);
        }
    }
    if (e->until != 0 && wait_now() >= e->until) {
        e->input.grace_over |= why == ROUND_WHY_GRACE;
        e->input.redo |= why == ROUND_WHY_SLICES;
        return WAGMA_OK;
    }
    if (budget_ns != 0 && (h->wait.spin < 0 || wait_now() - h->call.began > budget_ns))
        return WAGMA_INPROGRESS;
    if (wait_pause(&h->wait, e->until) != WAIT_HEARTBEAT)
        return WAGMA_OK;
    return why == ROUND_WHY_GRACE ? trouble_in_grace(h) : trouble(h, why);
}

void shm_resume(wagma_handle *h) {
    struct shm_executor *e = h->shm;
    if (!e->waiting)
        return;
    h->call.waited += wait_end(&h->wait);
    e->waiting = 0;
}

int shm_mismatch(wagma_handle *h) {
    const int other = (int)h->shm->local.other;
    const uint64_t word = publication(h->segment, other);
    const long long version = (long long)round_version(word) - 1;
    return error_set(WAGMA_EMISMATCH,
                     "rank %d called %s at version %lld, while rank %d is at version %lld%s: every "
                     "rank has to call sync(x) at the same version",
                     h->rank, h->call.explicit_sync ? "sync(x)" : "allreduce(x)",
                     (long long)h->call.version, other, version,
                     round_low(word) & ROUND_PUB_SYNC ? " in sync(x)" : " in allreduce(x)");
}
