/* Questions about the state: they change nothing. */
#include "protocol/activation_state.h"

int activation_pinned(const struct activation *a, int64_t version) {
    const struct activation_version *v = activation_find(a, version);
    return v && v->state != ACTIVATION_IDLE && !v->sync;
}

int activation_active(const struct activation *a) {
    return a->active;
}

uint64_t activation_deadline(const struct activation *a) {
    return a->deadline;
}

int activation_idle(const struct activation *a) {
    return a->departed == a->config.size && a->active == 0;
}

int activation_has_departed(const struct activation *a, int rank) {
    return activation_departures(a)[rank] != INT64_MAX;
}

static int is_complete(const struct activation *a, int64_t version) {
    const struct activation_version *v = activation_find(a, version);
    return v && v->state == ACTIVATION_COMPLETE;
}

static struct activation_call ask_late(const struct activation *a) {
    struct activation_call answer = {ACTIVATION_DONE, 1, 1, a->target};
    if (!a->config.ordered) {
        answer.merged = a->target > a->last;
        if (answer.merged && !is_complete(a, a->target))
            answer.state = ACTIVATION_WAITS_DATA;
        return answer;
    }
    for (int64_t t = a->counter; t <= a->target; t++)
        if (!is_complete(a, t))
            answer.state = ACTIVATION_WAITS_DATA;
    return answer;
}

struct activation_call activation_ask(const struct activation *a) {
    struct activation_call answer = {ACTIVATION_WAITS_WINDOW, 0, 1, a->counter};
    if (!a->arrived)
        return answer;
    if (a->late)
        return ask_late(a);
    const struct activation_version *v = activation_find(a, a->counter);
    const int state = v ? v->state : ACTIVATION_IDLE;
    answer.state = state == ACTIVATION_COMPLETE ? ACTIVATION_DONE
                   : state == ACTIVATION_PINNED ? ACTIVATION_WAITS_DATA
                                                : ACTIVATION_WAITS_QUORUM;
    return answer;
}

int activation_keeps(const struct activation *a, int64_t version) {
    if (a->config.ordered)
        return version >= a->counter;
    if (a->calling && (version == a->counter || (a->late && version == a->target)))
        return 1;
    return version == a->newest_pinned && version > a->last && version >= a->counter;
}

/* ---- trouble --------------------------------------------------------------------------------- */

/* Return the members that the call waits for, unless it waits for the window. */
static struct activation_scope awaited(const struct activation *a, struct activation_call call) {
    const struct activation_version *v = activation_find(a, call.taken);
    const int32_t *members = v ? activation_group(a, v) : NULL;
    if (!v || a->sync || (call.state == ACTIVATION_WAITS_QUORUM && a->config.world) || !members)
        return (struct activation_scope){NULL, a->config.size, a->config.rank};
    return (struct activation_scope){members, v->n, 0};
}

/* A rank that has not come as far as the call needs it, as far as is known. */
static int is_behind(const struct activation *a, struct activation_call call, int rank) {
    if (rank == a->config.rank)
        return 0;
    if (call.state == ACTIVATION_WAITS_WINDOW)
        return !activation_has_departed(a, rank) &&
               activation_tales(a)[rank] + 1 < (a->passed + 1) * a->half;
    if (activation_left(a, rank, a->counter))
        return 0;
    const struct activation_version *v = activation_find(a, a->counter);
    if (v && activation_arrived(a, v)[rank / 64] >> (rank % 64) & 1)
        return 0;
    return activation_tales(a)[rank] < a->counter;
}

int activation_behind(const struct activation *a, int rank) {
    return is_behind(a, activation_ask(a), rank);
}

int activation_missing(const struct activation *a, int32_t *ranks, int *needed) {
    const struct activation_call call = activation_ask(a);
    struct activation_scope scope = {NULL, a->config.size, a->config.rank};
    if (call.state != ACTIVATION_WAITS_WINDOW)
        scope = awaited(a, call);
    int n = 0, present = 0;
    for (int i = 0; i < scope.n; i++) {
        const int rank = activation_member(scope.members, i);
        if (is_behind(a, call, rank))
            ranks[n++] = rank;
        else
            present += !activation_left(a, rank, a->counter);
    }
    *needed = n;
    if (call.state == ACTIVATION_WAITS_QUORUM && a->config.quorum != 0) {
        const int quorum = a->config.quorum > 0 ? a->config.quorum : 1;
        *needed = quorum - present < 1 ? 1 : quorum - present;
        *needed = *needed < n ? *needed : n;
    }
    for (int i = 0; n == 0 && i < scope.n; i++) { /* all are there: messages are missing */
        const int rank = activation_member(scope.members, i);
        if (rank != a->config.rank)
            ranks[(*needed)++] = rank;
    }
    return n ? n : *needed;
}

int activation_lost(const struct activation *a, int *failed) {
    const struct activation_call call = activation_ask(a);
    struct activation_scope scope = {NULL, a->config.size, a->config.rank};
    if (call.state == ACTIVATION_DONE)
        return -1;
    if (call.state != ACTIVATION_WAITS_WINDOW)
        scope = awaited(a, call);
    for (int i = 0; i < scope.n; i++) {
        const int rank = activation_member(scope.members, i);
        *failed = activation_losses(a)[rank] == ACTIVATION_SAID_FAILED;
        if (activation_losses(a)[rank] != ACTIVATION_ALIVE)
            return rank;
    }
    return -1;
}
