/* Creation and close over a transport, in which all ranks take part.
 *
 * Close: a rank that has departed serves the others until all have departed and no version is
 * pinned on it: then only a message can start anything on it. Messages may still be in flight. So
 * the ranks in this state run rounds of a sum over all ranks, to which each rank adds the numbers
 * of messages that it has sent and received so far. The close ends when two successive rounds give
 * the same numbers, as many received as sent. Proof: every rank had already received its count of
 * the second round when it took part in the first one. Each rank began the second round after all
 * had ended their part in the first. So at the moment between the two all sent messages were
 * received, none was in flight, and no rank had anything to do. Data messages need no count of
 * their own: their sender has sent the header before, and a receiver of that header keeps the
 * version pinned until the data has arrived. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "messages/executor.h"
#include "messages/refuse.h"

enum { FLUSH_NS = 1000000000 }; /* a rank that fails waits so long for its last messages to leave */

/* ---- together -------------------------------------------------------------------------------- */

/* A sum over all ranks; meanwhile this one goes on. WAGMA_OK or an error. */
static int add_up(wagma_handle *h, enum trace_wait what, const int64_t mine[2], int64_t totals[2]) {
    struct messages_executor *e = h->state;
    int done, status = WAGMA_OK;
    e->adding = 1;
    e->together = h->call.delay;
    while ((done = e->transport->calls->sum(e->transport, mine, totals)) == 0) {
        const int moved = messages_drive(h);
        status = moved < 0 ? moved : messages_pause_together(h, what, moved);
        if (status != WAGMA_OK)
            return status;
    }
    e->adding = 0;
    return done < 0 ? done : WAGMA_OK;
}

static void begin_together(wagma_handle *h) {
    struct messages_executor *e = h->state;
    const uint64_t now = clock_now();
    h->call = (call){.version = h->version, .next = h->version, .began = now, .counted = now};
    e->heartbeat = e->lost_since = e->moved = 0;
    e->together = e->questions = 0;
    e->signs = now;
    for (int r = 0; r < h->size; r++)
        e->words[r].sign = 0;
}

/* ---- creation -------------------------------------------------------------------------------- */

static uint64_t digest(uint64_t hash, const void *value, size_t bytes) { /* FNV-1a */
    const unsigned char *p = value;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Return a digest of the options that have to be the same on all ranks. */
static uint64_t digest_of(const wagma_options *o) {
    const int64_t words[] = {
        o->size,           o->group_size,    o->quorum,          o->late,
        o->missed,         o->activation,    o->grouping,        o->graph,
        o->neighbors,      o->dtype,         o->average,         o->memory,
        o->count,          o->window,        o->sync_period,     o->schedule_switch,
        o->schedule_chunk, o->schedule_part, o->schedule_direct, (int64_t)o->seed};
    const double numbers[] = {o->grace, o->timeout, o->stall_warning};
    const uint64_t hash = digest(UINT64_C(0xcbf29ce484222325), words, sizeof words);
    return digest(hash, numbers, sizeof numbers);
}

int messages_meet(wagma_handle *h) {
    const uint64_t hash = digest_of(&h->options);
    const int64_t mine[2] = {(int64_t)(hash >> 32), (int64_t)(uint32_t)hash};
    int64_t totals[2];
    begin_together(h);
    const int status = add_up(h, TRACE_FOR_CREATION, mine, totals);
    messages_end_wait(h);
    messages_of(h)->epoch = clock_now();
    if (status != WAGMA_OK)
        return status;
    if (totals[0] != mine[0] * h->size || totals[1] != mine[1] * h->size)
        return error_set(
            WAGMA_EMISMATCH,
            "the ranks have passed different options: all but progress* have to be the "
            "same on all %d ranks",
            h->size);
    return WAGMA_OK;
}

/* ---- close ----------------------------------------------------------------------------------- */

static int serve_until_idle(wagma_handle *h) {
    while (!messages_of(h)->core->is_idle(h->state)) {
        const int moved = messages_drive(h);
        const int status = moved < 0 ? moved : messages_pause_together(h, TRACE_FOR_DRAIN, moved);
        if (status != WAGMA_OK)
            return status;
    }
    return WAGMA_OK;
}

static int drain(wagma_handle *h) {
    struct messages_executor *e = h->state;
    int64_t before[2] = {-1, -1}, totals[2];
    for (;;) {
        int status = serve_until_idle(h);
        if (status != WAGMA_OK)
            return status;
        int64_t mine[2] = {0, 0};
        if (e->pool)
            exchange_counts(e->pool, &mine[0], &mine[1]);
        mine[0] += e->sent;
        mine[1] += e->received;
        status = add_up(h, TRACE_FOR_DRAIN, mine, totals);
        if (status != WAGMA_OK)
            return status;
        if (totals[0] == totals[1] && memcmp(totals, before, sizeof totals) == 0)
            return WAGMA_OK;
        memcpy(before, totals, sizeof before);
    }
}

static void flush_and_close(wagma_transport *t) {
    const uint64_t end = clock_now() + FLUSH_NS;
    while (t->calls->flushed(t) == 0 && clock_now() < end)
        progress_rest(0);
    t->calls->close(t, 0);
}

void transport_refuse(wagma_transport *t) {
    const struct activation_message m = {.kind = ACTIVATION_FAILED};
    for (int r = 0; r < t->size; r++)
        if (r != t->rank)
            (void)t->calls->send_control(t, r, &m, sizeof m);
    flush_and_close(t);
}

/* Leaves the others alone. What was on its way may still be read and written. */
static void close_alone(wagma_handle *h) {
    struct messages_executor *e = h->state;
    if (!e->transport)
        return;
    if (h->trace) {
        messages_tell_failure(h);
        flush_and_close(e->transport);
    } else { /* not even made */
        transport_refuse(e->transport);
    }
    e->abandoned = e->core->is_busy(e);
    e->transport = NULL;
}

int messages_close(wagma_handle *h) {
    struct messages_executor *e = h->state;
    progress_enter(&e->progress);
    begin_together(h);
    int status = messages_check(e);
    if (status == WAGMA_OK)
        status = e->core->depart(h);
    if (status == WAGMA_OK)
        status = drain(h);
    messages_end_wait(h);
    if (status == WAGMA_OK) {
        e->transport->calls->close(e->transport, 1);
        e->transport = NULL;
    } else {
        close_alone(h);
    }
    progress_end(&e->progress);
    progress_leave(&e->progress, PROGRESS_NOTHING_LEFT);
    progress_join(&e->progress);
    return status;
}

/* Any thread. The owner may be in a wait, which ends by this: in one of its hooks, too. */
static void end_alone(wagma_handle *h, int why, const char *said) {
    struct messages_executor *e = h->state;
    /* relaxed: the mutex orders everything else */
    atomic_store_explicit(&e->failing, 1, memory_order_relaxed);
    progress_enter(&e->progress);
    if (!e->broken && why != WAGMA_OK) {
        e->broken = why;
        snprintf(e->error, sizeof e->error, "%s %s", e->name, said);
    }
    close_alone(h);
    progress_end(&e->progress);
    progress_leave(&e->progress, PROGRESS_NOTHING_LEFT);
}

void messages_fail(wagma_handle *h) {
    end_alone(h, WAGMA_OK, "");
}

void messages_transport_ends(void *handle) {
    end_alone(handle, WAGMA_ESYS,
              "was finalized while the handle was open: call close() on every rank before");
}
