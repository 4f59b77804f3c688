/* Waits of the executor of quorum "all": when a step is over, and who keeps it from that. */
#include "executor_inplace.h"

static int admitted(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    const wagma_segment *s = h->segment;
    int64_t t = h->call.version;
    int parity = (int)(t & 1);
    for (; e->cursor < e->group_n[parity]; e->cursor++) {
        int q = e->group[parity][e->cursor];
        if (q != h->rank && e->seen[q] <= e->group_version[parity] &&
            !inplace_has_finished(s, q, e->group_version[parity]))
            return 0;
    }
    if (t - e->slowest > s->options.window)
        e->slowest = inplace_slowest(s);
    return t - e->slowest <= s->options.window;
}

static int error_mismatch(const wagma_handle *h, int q) {
    int64_t version = h->call.version;
    uint64_t stamp = atomic_load(&inplace_record_of(h->segment, q, version)->stamp);
    static const char *const names[] = {"without sync", "with sync"};
    return error_set(
        WAGMA_EMISMATCH,
        "rank %d is at version %lld %s, but rank %d came to version %lld %s: all ranks "
        "have to call sync at the same version",
        h->rank, (long long)version, names[h->call.sync != 0], q,
        (long long)inplace_stamp_version(stamp), names[stamp & 1]);
}

static int gathered(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    for (; e->cursor < h->call.n; e->cursor++) {
        int q = h->call.members[e->cursor];
        switch (inplace_look(h->segment, q, h->call.version, h->call.sync)) {
        case INPLACE_AWAITED:
            return 0;
        case INPLACE_MISMATCH:
            return error_mismatch(h, q);
        case INPLACE_HERE:
            e->seen[q] = h->call.version;
            break;
        case INPLACE_DEPARTED:
            break;
        }
    }
    return 1;
}

static int drained(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    return inplace_all_done(h->segment, e->leader, h->call.version, e->slices);
}

int inplace_holds(wagma_handle *h) {
    switch (h->inplace->step) {
    case INPLACE_ADMIT:
        return admitted(h);
    case INPLACE_GATHER:
        return gathered(h);
    case INPLACE_DRAIN:
        return drained(h);
    }
    __builtin_unreachable();
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* All ranks that keep the current step from being over: one that is left out could be a dead one
 * behind a living one, and nobody would find it. */
static int list_missing(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    const wagma_segment *s = h->segment;
    const int64_t t = h->call.version;
    const int parity = (int)(t & 1);
    int n = 0;
    switch (e->step) {
    case INPLACE_ADMIT:
        for (int q = 0, k = 0; q < s->size; q++) {
            const int is_member = k < e->group_n[parity] && e->group[parity][k] == q;
            k += is_member;
            if (inplace_is_behind(s, q, t - s->options.window) ||
                (is_member && !inplace_has_finished(s, q, e->group_version[parity])))
                e->missing[n++] = q;
        }
        break;
    case INPLACE_GATHER:
        for (int k = e->cursor; k < h->call.n; k++)
            if (inplace_look(s, h->call.members[k], t, h->call.sync) == INPLACE_AWAITED)
                e->missing[n++] = h->call.members[k];
        break;
    case INPLACE_DRAIN: /* a slice that is not done is held by somebody who still claims */
        for (int k = 0; k < h->call.n; k++)
            if (e->seen[h->call.members[k]] == t && !inplace_has_sliced(s, h->call.members[k], t))
                e->missing[n++] = h->call.members[k];
    }
    return n;
}

static int look_for_trouble(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    const char *phase = e->step == INPLACE_DRAIN   ? "slices"
                        : e->step == INPLACE_ADMIT ? "window"
                        : h->call.sync             ? "sync"
                                                   : "quorum";
    int n = list_missing(h);
    return handle_heartbeat(h, phase, e->missing, n, n);
}

int inplace_wait(wagma_handle *h, uint32_t most_pauses) {
    int holds = inplace_holds(h), status = WAGMA_OK;
    const uint64_t until = h->call.until;
    if (holds)
        return holds < 0 ? holds : WAGMA_OK;
    if (most_pauses == INPLACE_NO_PAUSE) {
        if (handle_look_due(h))
            status = look_for_trouble(h);
        return status == WAGMA_OK ? WAGMA_INPROGRESS : status;
    }
    if (most_pauses != INPLACE_ANY_PAUSES && h->wait.spin <= 0)
        return WAGMA_INPROGRESS; /* the first pause would already give the core away */
    wait_begin(&h->wait, h->segment, h->rank);
    /* Of this step's two waits only that for the window needs it; rings for members wake both. */
    h->wait.window = h->inplace->step == INPLACE_ADMIT;
    while (status == WAGMA_OK && (holds = inplace_holds(h)) == 0) {
        if (h->wait.pauses >= most_pauses)
            status = WAGMA_INPROGRESS;
        else if (wait_pause(&h->wait, until) == WAIT_HEARTBEAT || (until && wait_now() >= until))
            status = look_for_trouble(h);
    }
    h->call.waited += wait_end(&h->wait);
    return holds < 0 ? holds : status;
}
