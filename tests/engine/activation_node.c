/* See activation_node.h. */
#include "activation_node.h"

#include <inttypes.h>
#include <string.h>

static struct oracle_player *player(const struct node *n) {
    return oracle_player(n->oracle, n->rank);
}

static void violate(const struct node *n, const char *invariant, const char *what, int64_t number) {
    if (n->bad->invariant)
        return;
    n->bad->invariant = invariant;
    snprintf(n->bad->detail, sizeof n->bad->detail, "rank %d %s (%" PRId64 ")", n->rank, what,
             number);
}

/* ---- words ----------------------------------------------------------------------------------- */
static const char *message_text(const struct activation_message *m, char text[64]) {
    static const char *const names[] = {"?",       "ACTIVATE", "NOTICE", "EXPECT",
                                        "BARRIER", "DEPARTED", "FAILED", "INQUIRE",
                                        "TELL",    "PASS",     "DISPUTE"};
    const int known = m->kind < sizeof names / sizeof *names;
    if (m->kind == ACTIVATION_BARRIER)
        snprintf(text, 64, "BARRIER %" PRId64 "/%d", m->version, m->detail);
    else if (m->kind == ACTIVATION_ACTIVATE && m->detail == ACTIVATION_NUDGE)
        snprintf(text, 64, "NUDGE v%" PRId64 "%s", m->version, m->sync ? " of all" : "");
    else if (m->kind == ACTIVATION_ACTIVATE)
        snprintf(text, 64, "ACTIVATE v%" PRId64 "/%d", m->version,
                 m->detail & ((1 << ACTIVATION_CLAIMANT_SHIFT) - 1));
    else if (m->kind == ACTIVATION_DISPUTE)
        snprintf(text, 64, "DISPUTE v%" PRId64, activation_disputed(m).version);
    else
        snprintf(text, 64, "%s v%" PRId64, names[known ? m->kind : 0], m->version);
    const size_t n = strlen(text);
    if ((m->kind == ACTIVATION_ACTIVATE || m->kind == ACTIVATION_NOTICE) && m->quorum)
        snprintf(text + n, 64 - n, ", quorum %d", m->quorum);
    return text;
}

static const char *input_text(int64_t input, char text[32]) {
    if (input == ACTIVATION_ABSENT || input == ACTIVATION_GONE)
        return input == ACTIVATION_GONE ? "departed" : "absent";
    if (input < 0)
        return "first";
    snprintf(text, 32, "v%" PRId64, input);
    return text;
}

static void log_action(const struct node *n, const struct activation_action *action) {
    char text[64], input[32];
    if (!n->log)
        return;
    switch (action->kind) {
    case ACTIVATION_SEND:
        fprintf(n->log, "        sends %s to rank %d\n", message_text(&action->message, text),
                action->to);
        break;
    case ACTIVATION_PIN:
        fprintf(n->log, "        pins v%" PRId64 "%s: %s\n", action->version,
                action->sync ? " of all" : "", input_text(action->input, input));
        break;
    case ACTIVATION_SPREAD:
        fprintf(n->log, "        spread of v%" PRId64 ": %" PRIu64 " ns\n", action->version,
                action->ns);
        break;
    case ACTIVATION_TROUBLE:
        fprintf(n->log, "        trouble %d at v%" PRId64 " with rank %d\n", action->reason,
                action->version, action->to);
        break;
    }
}

/* ---- events and actions ---------------------------------------------------------------------- */
static void act(struct node *n, const struct activation_action *action) {
    log_action(n, action);
    switch (action->kind) {
    case ACTIVATION_SEND:
        oracle_send(n->rules, n->oracle, n->rank, action, n->bad);
        if (!n->bad->invariant)
            n->send(n, action->to, &action->message);
        break;
    case ACTIVATION_PIN: oracle_pin(n->rules, n->oracle, n->rank, action, n->bad); break;
    case ACTIVATION_SPREAD: break;
    case ACTIVATION_TROUBLE: n->trouble(n, action); break;
    }
}

void node_step(struct node *n, struct activation_event event) {
    const int idle = activation_idle(n->core) && event.kind != ACTIVATION_EVENT_MESSAGE &&
                     event.kind != ACTIVATION_EVENT_DATA;
    struct activation_action action;
    uint64_t pinned = 0; /* versions */
    event.now = n->now;
    activation_step(n->core, &event);
    while (!n->bad->invariant && activation_next(n->core, &action)) {
        if (idle)
            violate(n, "A7-end", "is idle, and starts something", action.kind);
        else
            act(n, &action);
        if (action.kind == ACTIVATION_PIN)
            pinned |= UINT64_C(1) << action.version % ORACLE_VERSIONS;
    }
    for (int v = 0; n->pinned && pinned && !n->bad->invariant; v++, pinned >>= 1)
        if (pinned & 1)
            n->pinned(n, v);
}

void node_receive(struct node *n, int from, const struct activation_message *message) {
    char text[64];
    if (n->log)
        fprintf(n->log, "    rank %d gets %s from rank %d\n", n->rank, message_text(message, text),
                from);
    node_step(n, (struct activation_event){
                     .kind = ACTIVATION_EVENT_MESSAGE, .from = from, .message = *message});
}

void node_receive_data(struct node *n, int from, int version) {
    if (n->log)
        fprintf(n->log, "    rank %d gets data of v%d from rank %d\n", n->rank, version, from);
    node_step(n, (struct activation_event){
                     .kind = ACTIVATION_EVENT_DATA,
                     .from = from,
                     .version = version,
                     .sync = oracle_is_sync(n->rules, version),
                     .is_explicit = (int)(n->rules->explicit_sync >> version & 1),
                 });
}

void node_complete(struct node *n, int version) {
    if (n->log)
        fprintf(n->log, "    rank %d has the result of v%d\n", n->rank, version);
    oracle_complete(n->rules, n->oracle, n->rank, version, n->bad);
    if (!n->bad->invariant)
        node_step(n,
                  (struct activation_event){.kind = ACTIVATION_EVENT_COMPLETE, .version = version});
}

int node_tick(struct node *n) {
    const uint64_t deadline = activation_deadline(n->core);
    if (deadline == 0)
        return 0;
    if (n->log)
        fprintf(n->log, "    rank %d: the grace is over\n", n->rank);
    if (deadline > n->now)
        n->now = deadline;
    node_step(n, (struct activation_event){.kind = ACTIVATION_EVENT_TICK});
    if (activation_deadline(n->core) == deadline)
        violate(n, "grace", "has a deadline that does not end", (int64_t)deadline);
    return 1;
}

/* ---- the caller ------------------------------------------------------------------------------ */
static void say(const struct node *n, const char *what) {
    if (n->log)
        fprintf(n->log, "    rank %d %s v%d\n", n->rank, what, player(n)->version);
}

static int outside(struct node *n, enum node_move next) {
    const int version = player(n)->version;
    if (next == NODE_STAYS)
        return 0;
    say(n, next == NODE_DEPARTS ? "departs before" : next == NODE_SYNCS ? "syncs" : "calls");
    if (next == NODE_DEPARTS) {
        oracle_depart(n->oracle, n->rank);
        node_step(n,
                  (struct activation_event){.kind = ACTIVATION_EVENT_DEPART, .version = version});
        return 1;
    }
    oracle_call(n->oracle, n->rank);
    if (n->rules->core.varies)
        activation_quorum(n->core, n->rules->quorums[n->rank][version]);
    node_step(n, (struct activation_event){.kind = ACTIVATION_EVENT_CALL,
                                           .version = version,
                                           .sync = oracle_is_sync(n->rules, version),
                                           .is_explicit = next == NODE_SYNCS});
    return 1;
}

static int arrive(struct node *n) {
    if (!activation_may_arrive(n->core))
        return 0;
    say(n, "arrives at");
    oracle_arrive(n->rules, n->oracle, n->rank, n->bad);
    if (!n->bad->invariant)
        node_step(n, (struct activation_event){.kind = ACTIVATION_EVENT_ARRIVAL,
                                               .version = player(n)->version});
    return 1;
}

static int leave(struct node *n, int *returned) {
    const struct activation_call call = activation_ask(n->core);
    if (call.state != ACTIVATION_DONE)
        return 0;
    if (n->log)
        fprintf(n->log, "    rank %d returns from v%d with v%" PRId64 "%s%s\n", n->rank,
                player(n)->version, call.taken, call.late ? ", late" : "",
                call.merged ? "" : ", unmerged");
    *returned = 1;
    oracle_return(n->rules, n->oracle, n->rank, &call, n->bad);
    if (!n->bad->invariant)
        node_step(n, (struct activation_event){.kind = ACTIVATION_EVENT_RETURN,
                                               .version = player(n)->version});
    return 1;
}

int node_caller(struct node *n, enum node_move next, int *returned) {
    *returned = 0;
    switch ((enum oracle_phase)player(n)->phase) {
    case ORACLE_OUTSIDE: return outside(n, next);
    case ORACLE_CALLED: return arrive(n);
    case ORACLE_ARRIVED: return leave(n, returned);
    case ORACLE_GONE: break;
    }
    return 0;
}

void node_check_waiting(const struct node *n) {
    const struct activation_call call = activation_ask(n->core);
    oracle_waits(n->rules, n->oracle, n->rank, activation_may_arrive(n->core), &call, n->bad);
}
