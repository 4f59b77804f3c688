/* Events of versions: arrivals, activations, departures. */
#include "protocol/activation.h"

#include "protocol/activation_state.h"

/* ---- pinning --------------------------------------------------------------------------------- */

/* The contribution that this rank pins for the version. */
static int64_t input_of(const struct activation *a, int64_t version) {
    if (activation_left(a, a->config.rank, version))
        return ACTIVATION_GONE;
    if (a->newest > version || (a->config.ordered && a->newest != version))
        return ACTIVATION_ABSENT;
    return a->newest;
}

/* Tell members of the version's scope to pin the version if no other message may tell them: the
 * departed ones, and, if all groups are activated at once, the ones that have jumped over the
 * version and would not pin it. */
static void nudge(struct activation *a, const struct activation_version *v, int only) {
    const int32_t *members = v->sync ? NULL : activation_group(a, v);
    const int n = members ? v->n : a->config.size;
    const int jumped = a->config.world && a->config.forward && !v->sync;
    for (int i = 0; i < n; i++) {
        const int rank = activation_member(members, i);
        if (rank == a->config.rank || (only >= 0 && rank != only) ||
            !(jumped || activation_left(a, rank, v->version)))
            continue;
        activation_push(a, (struct activation_action){
                               .kind = ACTIVATION_SEND,
                               .to = rank,
                               .version = v->version,
                               .message = {.kind = ACTIVATION_ACTIVATE,
                                           .sync = v->sync,
                                           .detail = ACTIVATION_NUDGE,
                                           .version = v->version},
                           });
    }
}

/* Return 1 if a version reaches every member through the graph: then no member needs a nudge. */
static int reaches_all(const struct activation *a, const struct activation_version *v) {
    return a->config.quorum != 0 && !a->config.world && !v->sync;
}

static void pin(struct activation *a, struct activation_version *v, int sync) {
    v->state = ACTIVATION_PINNED;
    v->sync = (uint8_t)sync;
    v->input = input_of(a, v->version);
    a->active++;
    if (!sync && v->version > a->newest_pinned)
        a->newest_pinned = v->version;
    activation_push(
        a, (struct activation_action){
               .kind = ACTIVATION_PIN, .version = v->version, .sync = sync, .input = v->input});
    if (!reaches_all(a, v))
        nudge(a, v, -1);
}

/* Forward a version that was activated over dimension d or (-1) here. Send it once over every
 * dimension above d, also if the version is known: the sender relies on this rank for these. */
static void forward(struct activation *a, struct activation_version *v, int d) {
    const struct activation_scope scope = activation_scope_of(a, v);
    const int dimensions = activation_dimensions(scope.n);
    for (int e = d + 1; e < dimensions; e++) {
        if (v->sent >> e & 1)
            continue;
        v->sent |= UINT32_C(1) << e;
        const int to = activation_partner(scope.index, scope.n, e);
        activation_send_claim(a, activation_member(scope.members, to), ACTIVATION_ACTIVATE, v, e);
    }
}

/* Return 1 if this rank may pin the version. If all groups are activated at once, the members of
 * this rank's group may never call it. */
static int may_pin(const struct activation *a, int64_t version) {
    return !a->config.world || (!activation_left(a, a->config.rank, version) &&
                                (!a->config.forward || version >= a->counter));
}

void activation_activate(struct activation *a, struct activation_version *v, int d) {
    v->activated = (uint8_t)a->config.varies;
    forward(a, v, d);
    if (v->state == ACTIVATION_IDLE && may_pin(a, v->version))
        pin(a, v, 0);
}

/* ---- the caller ------------------------------------------------------------------------------ */

static void call(struct activation *a, const struct activation_event *e) {
    a->calling = 1;
    a->arrived = a->late = 0;
    a->counter = e->version;
    a->sync = (uint8_t)(e->sync != 0);
    a->is_explicit = (uint8_t)(e->is_explicit != 0);
    a->target = -1;
    activation_window(a);
}

/* The version is pinned without this rank's contribution of it: which result it takes. */
static void come_late(struct activation *a) {
    a->late = 1;
    a->target = a->newest_pinned;
    if (!a->config.ordered)
        return;
    for (a->target = a->counter;; a->target++) { /* every result, in order, as far as they go */
        const struct activation_version *v = activation_find(a, a->target + 1);
        if (!v || v->state == ACTIVATION_IDLE || v->sync)
            return;
    }
}

/* Return 1 if another rank disagrees about a sync version outside the period: this rank calls it
 * with sync, and it was activated without, or the other way round. The other rank may have called
 * it first: one of the two notices, here or in receive_data(). */
static int disagrees(const struct activation *a, const struct activation_version *v) {
    return a->sync ? v->state != ACTIVATION_IDLE && !v->sync : v->sync_seen;
}

static void arrive(struct activation *a) {
    const int64_t t = a->counter;
    struct activation_version *v = activation_open(a, t);
    if (!v || !a->calling || a->arrived) {
        activation_trouble(a, ACTIVATION_PROTOCOL, t, -1);
        return;
    }
    if (disagrees(a, v)) {
        activation_trouble(a, ACTIVATION_MISMATCH, t, -1);
        return;
    }
    if (!a->sync && activation_claim(a, v, a->config.rank, a->config.quorum))
        return;
    a->arrived = 1;
    a->newest = t;
    activation_tales(a)[a->config.rank] = t;
    const int counts = activation_counts(a);
    /* Before the data of t, which this rank may send in this step: a rank that completes t with
     * them may be the coordinator of t + 1, and would not await this rank. */
    if (counts && !activation_is_sync(a, t + 1))
        activation_tell_coordinator(a, t + 1, ACTIVATION_EXPECT);
    if (v->state != ACTIVATION_IDLE)
        come_late(a);
    else if (a->sync)
        pin(a, v, 1);
    else if (a->config.quorum == 0 || (!a->config.world && v->n == 1))
        pin(a, v, 0);
    else if (!counts)
        activation_activate(a, v, -1);
    if (counts && !a->sync && (v->state == ACTIVATION_IDLE || a->config.automatic))
        activation_tell_coordinator(a, t, ACTIVATION_NOTICE);
}

static void leave_call(struct activation *a, int64_t next) {
    const struct activation_call answer = activation_ask(a);
    if (answer.state == ACTIVATION_DONE && answer.merged && answer.taken > a->last)
        a->last = answer.taken;
    a->calling = a->arrived = a->late = a->sync = a->is_explicit = 0;
    a->target = -1;
    if (activation_counts(a)) {
        a->passing = a->counter + 1;
        a->passed_all = next;
    }
    a->counter = next;
    activation_window(a);
}

static void depart(struct activation *a) {
    a->gone = 1;
    a->departed++;
    activation_departures(a)[a->config.rank] = a->counter;
    for (int r = 0; r < a->config.size; r++)
        if (r != a->config.rank)
            activation_send(a, r, ACTIVATION_DEPARTED, a->counter, 0);
    a->recheck = a->slots;
    activation_window(a);
}

static void inquire(struct activation *a) {
    const struct activation_message m = {.kind = ACTIVATION_INQUIRE,
                                         .sync = a->sync && a->arrived,
                                         .version = activation_ask(a).taken};
    for (int r = 0; r < a->config.size; r++)
        if (r != a->config.rank)
            activation_push(
                a, (struct activation_action){
                       .kind = ACTIVATION_SEND, .to = r, .version = m.version, .message = m});
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Nudged: a member has pinned the version and needs this rank. */
static void be_nudged(struct activation *a, struct activation_version *v, int sync) {
    if (v->state != ACTIVATION_IDLE)
        return;
    if (activation_left(a, a->config.rank, v->version) || (!sync && a->config.quorum != 0))
        pin(a, v, sync);
}

static void be_activated(struct activation *a, const struct activation_event *e) {
    const struct activation_message *m = &e->message;
    const int dimension = m->detail & ((1 << ACTIVATION_CLAIMANT_SHIFT) - 1);
    struct activation_version *v = activation_open(a, m->version);
    if (!v)
        return; /* old */
    if (m->detail == ACTIVATION_NUDGE)
        be_nudged(a, v, m->sync);
    else if (v->state == ACTIVATION_PINNED && v->sync)
        activation_trouble(a, ACTIVATION_MISMATCH, m->version, e->from);
    else if (dimension < 0 || dimension >= 32 || activation_is_sync(a, m->version))
        activation_trouble(a, ACTIVATION_PROTOCOL, m->version, e->from);
    else if (!activation_claim(a, v, m->detail >> ACTIVATION_CLAIMANT_SHIFT, m->quorum))
        activation_activate(a, v, dimension);
    if (a->config.varies)
        activation_window(a); /* it may have waited for this */
}

/* Data that came for a version. That of an ordinary one was pinned by a member of the group, which
 * waits for this rank. */
static void receive_data(struct activation *a, const struct activation_event *e) {
    struct activation_version *v = activation_open(a, e->version);
    if (!v)
        return;
    const int gone = activation_left(a, a->config.rank, e->version);
    if (e->sync && !activation_is_sync(a, e->version)) {
        v->sync_seen = 1;
        const int otherwise = v->state != ACTIVATION_IDLE && !v->sync;
        const int calls = a->arrived && a->counter == e->version && !a->sync; /* waits for others */
        if (otherwise || calls || (!gone && a->counter > e->version && !v->sync))
            activation_trouble(a, ACTIVATION_MISMATCH, e->version, e->from);
    }
    if (!e->sync && v->state != ACTIVATION_IDLE && v->sync)
        activation_trouble(a, ACTIVATION_MISMATCH, e->version, e->from);
    if (v->state != ACTIVATION_IDLE)
        return;
    if (gone || (!e->sync && a->config.quorum != 0))
        pin(a, v, e->sync);
}

static void lose(struct activation *a, int rank, int how) {
    if (activation_losses(a)[rank] == ACTIVATION_ALIVE)
        activation_losses(a)[rank] = (uint8_t)how;
}

static void be_left(struct activation *a, int rank, int64_t version) {
    if (activation_has_departed(a, rank))
        return;
    activation_departures(a)[rank] = version;
    a->departed++;
    a->leaver = rank;
    a->recheck = a->slots;
}

void activation_review(struct activation *a, int i) {
    struct activation_version *v = activation_slot(a, i);
    if (v->version < 0)
        return;
    if (v->state == ACTIVATION_PINNED && a->leaver >= 0 && !reaches_all(a, v))
        nudge(a, v, a->leaver);
    if (v->arrivals > 0)
        activation_consider(a, v);
}

static void receive(struct activation *a, const struct activation_event *e) {
    const struct activation_message *m = &e->message;
    struct activation_version *v;
    int64_t *const tale = &activation_tales(a)[e->from];
    switch (m->kind) {
    case ACTIVATION_ACTIVATE: be_activated(a, e); return;
    case ACTIVATION_NOTICE:
        *tale = m->version > *tale ? m->version : *tale;
        if ((v = activation_open(a, m->version)) && !activation_claim(a, v, e->from, m->quorum))
            activation_coordinate(a, v, m->kind, e->from);
        return;
    case ACTIVATION_EXPECT:
        *tale = m->version - 1 > *tale ? m->version - 1 : *tale;
        if ((v = activation_open(a, m->version)))
            activation_coordinate(a, v, m->kind, e->from);
        return;
    case ACTIVATION_PASS:
        *tale = m->version > *tale ? m->version : *tale;
        if ((v = activation_open(a, m->version)))
            activation_coordinate(a, v, m->kind, e->from);
        return;
    case ACTIVATION_DISPUTE: activation_dispute(a, m); return;
    case ACTIVATION_BARRIER: activation_barrier(a, m->version, m->detail); return;
    case ACTIVATION_DEPARTED: be_left(a, e->from, m->version); return;
    case ACTIVATION_FAILED: lose(a, e->from, ACTIVATION_SAID_FAILED); return;
    case ACTIVATION_INQUIRE:
        if (m->sync) /* as its data would say, which may go to other ranks only */
            receive_data(
                a, &(struct activation_event){.from = e->from, .sync = 1, .version = m->version});
        activation_send(a, e->from, ACTIVATION_TELL, a->newest, 0);
        return;
    case ACTIVATION_TELL: *tale = m->version > *tale ? m->version : *tale; return;
    default: activation_trouble(a, ACTIVATION_PROTOCOL, m->version, e->from);
    }
}

static void complete(struct activation *a, int64_t version) {
    struct activation_version *v = activation_find(a, version);
    if (!v || v->state != ACTIVATION_PINNED) {
        activation_trouble(a, ACTIVATION_PROTOCOL, version, -1);
        return;
    }
    v->state = ACTIVATION_COMPLETE;
    a->active--;
    activation_window(a);
}

/* Coordinated versions whose grace is over. */
static void tick(struct activation *a) {
    if (a->deadline != 0 && a->now >= a->deadline)
        a->recheck = a->slots;
}

void activation_step(struct activation *a, const struct activation_event *e) {
    a->now = e->now;
    if (a->troubled)
        return;
    switch (e->kind) {
    case ACTIVATION_EVENT_CALL: call(a, e); return;
    case ACTIVATION_EVENT_ARRIVAL: arrive(a); return;
    case ACTIVATION_EVENT_RETURN: leave_call(a, e->version); return;
    case ACTIVATION_EVENT_MESSAGE: receive(a, e); return;
    case ACTIVATION_EVENT_DATA: receive_data(a, e); return;
    case ACTIVATION_EVENT_COMPLETE: complete(a, e->version); return;
    case ACTIVATION_EVENT_TICK: tick(a); return;
    case ACTIVATION_EVENT_DEPART: depart(a); return;
    case ACTIVATION_EVENT_INQUIRE: inquire(a); return;
    case ACTIVATION_EVENT_DEAD: lose(a, e->from, ACTIVATION_IS_DEAD); return;
    }
}
