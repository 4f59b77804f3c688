/* Turns the transport's messages into events of activation.c, and its actions into messages and
 * exchanges. The owner's waits and the progress thread use the same function. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "messages/executor.h"

enum {
    MESSAGES_AT_ONCE = 64, /* for callers that do not wait for more */
    ENDS_AT_ONCE = 8,
};

/* ---- actions --------------------------------------------------------------------------------- */

/* Messages about trouble go to all ranks: the last events would hold nothing else. */
static int is_chatter(int kind) {
    return kind == ACTIVATION_INQUIRE || kind == ACTIVATION_TELL || kind == ACTIVATION_DISPUTE;
}

int messages_send(wagma_handle *h, int to, const struct activation_message *m) {
    struct messages_executor *e = h->state;
    const int status = e->transport->calls->send_control(e->transport, to, m, sizeof *m);
    e->sent++;
    if (!is_chatter(m->kind))
        trace_now(h->trace, TRACE_SEND, m->version, to, m->kind);
    return status;
}

static int position(const int32_t *members, int n, int rank) {
    int i = 0;
    while (i < n && members[i] != rank)
        i++;
    return i;
}

/* For rank_stats.c: ranks on other nodes have other clocks, but they have all seen the last sync
 * version end at about the same time. */
static void count_from_epoch(struct messages_executor *e, rank_record *mine) {
    if (!mine->stats.departed)
        mine->arrived -= e->epoch;
}

static int pin(wagma_handle *h, const struct activation_action *action) {
    struct messages_executor *e = h->state;
    const int most = action->sync ? h->size : h->topology.group_size;
    messages_version *v = messages_version_new(h, action->version, most);
    if (!v)
        return WAGMA_ENOMEM;
    v->sync = action->sync;
    if (action->sync)
        for (int r = 0; r < h->size; r++)
            v->members[r] = r;
    else
        v->n = topology_members(&h->topology, h->rank, action->version, v->members);
    exchange_start start = {.version = action->version,
                            .members = v->members,
                            .n = v->n,
                            .index = position(v->members, v->n, h->rank),
                            .sync = action->sync,
                            .attachment = &e->records[h->rank]};
    int status = messages_pin_input(h, v, action->input, &start);
    const int64_t behind = action->version - start.mine.version;
    trace_now(h->trace, TRACE_PIN, action->version, -1,
              action->input < -1 ? TRACE_WITHOUT : (int)behind);
    if (status != WAGMA_OK)
        return status;
    if (!action->sync && action->version == h->version)
        atomic_store_explicit(&e->pinned, action->version, memory_order_relaxed); /* of pinned() */
    if (action->sync)
        count_from_epoch(e, &e->records[h->rank]);
    if (v->n > 1)
        return exchange_begin(e->pool, &start, &v->exchange);
    v->records[0] = start.mine;
    v->next_untold = e->untold;
    e->untold = v;
    return WAGMA_OK;
}

static int quorum_dispute(const struct activation_message *m) {
    const struct activation_dispute d = activation_disputed(m);
    return error_set(WAGMA_EQUORUM,
                     "rank %d called version %lld with quorum %d, and rank %d with quorum %d: "
                     "every rank has to call a version with the same quorum",
                     d.ranks[0], (long long)d.version, d.quorums[0], d.ranks[1], d.quorums[1]);
}

static int activation_error(wagma_handle *h, const struct activation_action *action) {
    const call *c = &h->call;
    const int64_t now = c->active ? c->version : h->version; /* between calls: the next one fails */
    const int syncs = c->active && c->explicit_sync && c->version == action->version;
    char other[32] = "another rank";
    if (action->reason == ACTIVATION_QUORUMS)
        return quorum_dispute(&action->message);
    if (action->reason != ACTIVATION_MISMATCH)
        return error_set(WAGMA_ESYS,
                         "internal error of the activation at version %lld: please report it with "
                         "the handle's dump_state()",
                         (long long)action->version);
    if (action->to >= 0)
        snprintf(other, sizeof other, "rank %d", action->to);
    messages_of(h)->mismatch = action->version;
    return error_set(WAGMA_EMISMATCH,
                     "rank %d (in version %lld) took version %lld for %s, while %s took it for %s: "
                     "every rank has to call sync(x) at the same version",
                     h->rank, (long long)now, (long long)action->version,
                     syncs ? "sync(x)" : "allreduce(x)", other, syncs ? "allreduce(x)" : "sync(x)");
}

/* TELL, with what activation.c does not know. */
static int answer(wagma_handle *h, int to, struct activation_message m) {
    const messages_version *v = messages_version_find(h->state, messages_of(h)->asked);
    m.sync = (uint8_t)h->call.active;
    m.detail = v && v->exchange ? exchange_missing(v->exchange) : -1;
    return messages_send(h, to, &m);
}

static int do_action(wagma_handle *h, const struct activation_action *action) {
    struct messages_executor *e = h->state;
    switch (action->kind) {
    case ACTIVATION_SEND:
        return action->message.kind == ACTIVATION_TELL
                   ? answer(h, action->to, action->message)
                   : messages_send(h, action->to, &action->message);
    case ACTIVATION_PIN: return pin(h, action);
    case ACTIVATION_SPREAD:
        grace_add(&e->spreads, action->ns);
        messages_renew_grace(e);
        return WAGMA_OK;
    case ACTIVATION_TROUBLE: return activation_error(h, action);
    }
    return WAGMA_OK;
}

/* ---- events ---------------------------------------------------------------------------------- */

static int step_once(wagma_handle *h, struct activation_event event) {
    struct activation *a = messages_of(h)->activation;
    struct activation_action action;
    int status = WAGMA_OK;
    event.now = clock_now();
    activation_step(a, &event);
    while (activation_next(a, &action))
        if (status == WAGMA_OK)
            status = do_action(h, &action);
    return status;
}

static void complete(wagma_handle *h, messages_version *v) {
    struct messages_executor *e = h->state;
    messages_block_drop(e, v->input);
    v->input = NULL;
    v->complete = 1;
    if (v->sync)
        e->epoch = clock_now();
    trace_now(h->trace, TRACE_COMPLETE, v->version, -1, 0);
}

/* An event, and the ends of the versions that this rank pinned for itself alone. */
static int step(wagma_handle *h, struct activation_event event) {
    struct messages_executor *e = h->state;
    int status = step_once(h, event);
    while (e->untold && status == WAGMA_OK) {
        messages_version *v = e->untold;
        e->untold = v->next_untold;
        complete(h, v);
        status = step_once(
            h, (struct activation_event){.kind = ACTIVATION_EVENT_COMPLETE, .version = v->version});
    }
    return status;
}

int messages_tell(wagma_handle *h, enum activation_event_kind kind) {
    return step(h, (struct activation_event){.kind = kind,
                                             .version = h->call.version,
                                             .sync = h->call.sync,
                                             .is_explicit = h->call.explicit_sync});
}

int messages_tell_return(wagma_handle *h, int64_t next) {
    const int status =
        step(h, (struct activation_event){.kind = ACTIVATION_EVENT_RETURN, .version = next});
    const int pinned = activation_pinned(messages_of(h)->activation, next);
    atomic_store_explicit(&messages_of(h)->pinned, pinned ? next : -1, memory_order_relaxed);
    messages_sweep(h->state);
    return status;
}

int messages_see_dead_in_groups(wagma_handle *h, int rank) {
    return step(h, (struct activation_event){.kind = ACTIVATION_EVENT_DEAD, .from = rank});
}

int messages_look_for_dead(wagma_handle *h) {
    struct messages_executor *e = h->state;
    const int n = e->transport->calls->dead(e->transport, e->ranks);
    int status = n < 0 ? n : WAGMA_OK;
    for (int i = 0; i < n && status == WAGMA_OK; i++) {
        const int rank = e->ranks[i];
        if (e->losses[rank].how)
            continue;
        e->losses[rank].how = HANDLE_DEAD;
        if (e->core->see_dead)
            status = e->core->see_dead(h, rank);
    }
    return status;
}

/* ---- what comes in --------------------------------------------------------------------------- */

int messages_strange(int from, size_t bytes) {
    return error_set(WAGMA_ESYS,
                     "rank %d sent %zu bytes that are no message of this version of wagma: the "
                     "ranks have to run the same one",
                     from, bytes);
}

void messages_note_failure(struct messages_executor *e, int from,
                           const struct activation_message *m) {
    if (!e->losses[from].how)
        e->losses[from] = (messages_loss){HANDLE_FAILED, m->cause, m->detail};
    if (m->cause == ACTIVATION_BY_MISMATCH && e->mismatch < 0) {
        e->mismatch = m->version;
        e->disputer = from;
    }
}

int messages_receive_for_groups(wagma_handle *h, int from, const void *message, size_t bytes) {
    struct messages_executor *e = h->state;
    struct activation_event event = {.kind = ACTIVATION_EVENT_MESSAGE, .from = from};
    const unsigned char kind = bytes > 0 ? *(const unsigned char *)message : 0;
    if (kind == EXCHANGE_HEADER) {
        event.kind = ACTIVATION_EVENT_DATA;
        const int status = exchange_receive(e->pool, from, message, bytes, &event.version,
                                            &event.sync, &event.is_explicit);
        trace_now(h->trace, TRACE_RECEIVE, event.version, from, kind);
        return status == WAGMA_OK ? step(h, event) : status;
    }
    if (bytes != sizeof event.message)
        return messages_strange(from, bytes);
    memcpy(&event.message, message, sizeof event.message);
    e->received++;
    if (!is_chatter(kind))
        trace_now(h->trace, TRACE_RECEIVE, event.message.version, from, kind);
    if (kind == ACTIVATION_FAILED)
        messages_note_failure(e, from, &event.message);
    else if (kind == ACTIVATION_TELL)
        messages_note_word(e, from, &event.message);
    else if (kind == ACTIVATION_INQUIRE)
        e->asked = event.message.version;
    return step(h, event);
}

/* One at a time: what it made possible goes first. To look for the next one drives MPI, which may
 * copy data for long then, or give the core away when it finds nothing. */
int messages_take_message(wagma_handle *h) {
    struct messages_executor *e = h->state;
    int from;
    const void *message;
    size_t bytes;
    const int got = e->transport->calls->poll_control(e->transport, &from, &message, &bytes);
    if (got <= 0)
        return got;
    e->words[from].heard = clock_now();
    const int status = e->core->receive(h, from, message, bytes);
    return status != WAGMA_OK ? status : 1;
}

/* End the exchange: keep the members' records and all ranks' counters. */
static int end_exchange(wagma_handle *h, const exchange_end *end) {
    struct messages_executor *e = h->state;
    messages_version *v = messages_version_find(e, end->version);
    const int32_t *members;
    int n;
    const exchange_record *records = exchange_records(end->exchange, &members, &n);
    memcpy(v->records, records, (size_t)n * sizeof *records);
    for (int i = 0; v->sync && i < n; i++)
        if (members[i] != h->rank)
            memcpy(&e->records[members[i]], exchange_attachment(end->exchange, i),
                   sizeof *e->records);
    exchange_release(e->pool, end->exchange);
    v->exchange = NULL;
    complete(h, v);
    return step(
        h, (struct activation_event){.kind = ACTIVATION_EVENT_COMPLETE, .version = v->version});
}

/* 1: data came, or left, or was summed up; an exchange may have ended. */
static int take_data(wagma_handle *h) {
    exchange_end ends[ENDS_AT_ONCE];
    const uint64_t before = exchange_moves(messages_of(h)->pool);
    const int n = exchange_poll(messages_of(h)->pool, ends, ENDS_AT_ONCE);
    int status = WAGMA_OK;
    for (int i = 0; i < n && status == WAGMA_OK; i++)
        status = end_exchange(h, &ends[i]);
    return n < 0 ? n : status != WAGMA_OK ? status : exchange_moves(messages_of(h)->pool) != before;
}

/* ---- driving --------------------------------------------------------------------------------- */

/* 1: the grace of a version is over, and the core knows. */
static int take_time(wagma_handle *h) {
    const uint64_t deadline = activation_deadline(messages_of(h)->activation);
    if (deadline == 0 || clock_now() < deadline)
        return 0;
    const int status = step(h, (struct activation_event){.kind = ACTIVATION_EVENT_TICK});
    return status != WAGMA_OK ? status : 1;
}

/* What carries is added to the whole contribution. */
static int may_arrive(const wagma_handle *h) {
    const struct messages_executor *e = messages_of(h);
    return h->call.active && !e->arrived && (!e->carried || parts_whole(h->call.parts)) &&
           activation_may_arrive(e->activation);
}

/* The call publishes its contribution as soon as the window lets it. 1: it did. */
static int arrive(wagma_handle *h) {
    struct messages_executor *e = h->state;
    if (!may_arrive(h))
        return 0;
    int status = messages_contribute(h);
    if (status != WAGMA_OK)
        return status;
    e->arrived = 1;
    trace_now(h->trace, TRACE_ARRIVAL, h->call.version, -1, 0);
    status = messages_tell(h, ACTIVATION_EVENT_ARRIVAL);
    return status != WAGMA_OK ? status : 1;
}

/* 1: more of the contribution is written, and the versions that have pinned it know. */
static int take_parts(wagma_handle *h) {
    struct messages_executor *e = h->state;
    if (!h->call.active || parts_whole(h->call.parts))
        return 0;
    const int more = h->call.parts->look(h);
    for (messages_version *v = e->versions; more > 0 && v; v = v->next)
        if (v->exchange)
            exchange_see_parts(e->pool, v->exchange);
    return more;
}

/* Pass the call first: a rank that has arrived is not late for a message that has activated its
 * version meanwhile. */
int messages_drive_groups(wagma_handle *h) {
    int (*const parts[])(wagma_handle *) = {take_parts, arrive, messages_take_message, take_data,
                                            take_time};
    int moved = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const int result = parts[i](h);
        if (result < 0)
            return result;
        moved |= result;
    }
    if (moved)
        messages_sweep(h->state);
    return moved;
}

int messages_drive(wagma_handle *h) {
    return messages_of(h)->core->drive(h);
}

int messages_drive_all(wagma_handle *h) {
    int moved = messages_drive(h), n = 0, took = 1;
    while (moved > 0 && n < MESSAGES_AT_ONCE && (took = messages_take_message(h)) > 0)
        n++;
    if (took < 0)
        return took;
    if (n == 0)
        return moved;
    moved = messages_drive(h); /* with what they made possible */
    return moved < 0 ? moved : 1;
}

void messages_tell_failure(wagma_handle *h) {
    struct messages_executor *e = h->state;
    struct activation_message m = {.kind = ACTIVATION_FAILED,
                                   .cause = (uint8_t)e->failure.cause,
                                   .detail = e->failure.first,
                                   .version = h->version};
    if (e->told_failure)
        return;
    e->told_failure = 1;
    if (e->mismatch >= 0) {
        m.cause = ACTIVATION_BY_MISMATCH;
        m.version = e->mismatch;
    }
    for (int r = 0; r < h->size; r++)
        if (r != h->rank)
            (void)messages_send(h, r, &m); /* what does not come, the others find out otherwise */
}

int messages_is_busy(const wagma_handle *h) {
    return messages_of(h)->core->is_busy(h->state) || h->call.active;
}

/* Poll in the progress thread. Keep an error for the next call, and tell the other ranks now. */
enum progress_found messages_poll_progress(void *context, uint64_t *deadline) {
    wagma_handle *h = context;
    struct messages_executor *e = h->state;
    if (e->broken)
        return PROGRESS_IDLE;
    const int moved = messages_drive_all(h);
    if (moved < 0) {
        e->broken = moved;
        snprintf(e->error, sizeof e->error, "%s", wagma_last_error());
        messages_tell_failure(h);
        return PROGRESS_IDLE;
    }
    *deadline = e->core->deadline ? e->core->deadline(e) : 0;
    if (moved)
        return PROGRESS_MOVED;
    return messages_is_busy(h) ? PROGRESS_STILL : PROGRESS_IDLE;
}
