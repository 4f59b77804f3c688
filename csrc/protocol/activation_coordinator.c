/* Coordinators: every version has one rank that counts arrivals, and activates the version when its
 * quorum is there and its grace is over. */
#include "protocol/activation_state.h"
#include "protocol/starter.h"

static int has(const uint64_t *ranks, int rank) {
    return (int)(ranks[rank / 64] >> (rank % 64) & 1);
}

/* 1: the rank has arrived, or may: it has neither departed nor gone past the version. */
static int may_come(const struct activation *a, const struct activation_version *v, int rank) {
    return !activation_left(a, rank, v->version) && !has(activation_passed(a, v), rank);
}

/* Return 1 if the ranks that have arrived may start the version. */
static int quorum_present(const struct activation *a, const struct activation_version *v,
                          const struct activation_scope *scope) {
    const uint64_t *arrived = activation_arrived(a, v);
    int living = 0, present = 0;
    for (int i = 0; i < scope->n; i++) {
        const int rank = activation_member(scope->members, i);
        living += may_come(a, v, rank);
        present += has(arrived, rank);
    }
    if (living == 0 || present == 0)
        return 0;
    const int quorum = a->config.varies ? v->quorum : a->config.quorum;
    if (quorum > 0)
        return present >= (quorum < living ? quorum : living);
    const uint32_t lowest = (uint32_t)activation_member(scope->members, 0);
    int drawn = -1;
    for (int i = 0; i < scope->n; i++) {
        const int rank = activation_member(scope->members, i);
        if (may_come(a, v, rank))
            drawn = starter(a->config.seed, (uint64_t)v->version + 1, lowest, drawn, rank);
    }
    return has(arrived, drawn);
}

/* Ranks that are expected, have not arrived, and still may. */
static int is_awaiting(const struct activation *a, const struct activation_version *v) {
    const uint64_t *arrived = activation_arrived(a, v), *expected = activation_expected(a, v);
    for (int w = 0; w < a->words; w++)
        for (uint64_t rest = expected[w] & ~arrived[w]; rest; rest &= rest - 1)
            if (may_come(a, v, w * 64 + __builtin_ctzll(rest)))
                return 1;
    return 0;
}

/* Sets when the first grace ends; 0: none runs. */
static void set_deadline(struct activation *a) {
    a->deadline = 0;
    for (int i = 0; a->graces > 0 && i < a->slots; i++) {
        const struct activation_version *v = activation_slot(a, i);
        const uint64_t end = v->quorum_at + a->config.grace;
        if (v->has_quorum && (a->deadline == 0 || end < a->deadline))
            a->deadline = end;
    }
}

/* As the version's coordinator: activates it if its time has come. */
static void consider(struct activation *a, struct activation_version *v) {
    if (v->state != ACTIVATION_IDLE || v->sent || activation_is_sync(a, v->version))
        return;
    const struct activation_scope scope = activation_scope_of(a, v);
    if (!v->has_quorum) {
        if (!quorum_present(a, v, &scope))
            return;
        v->quorum_at = a->now;
    }
    const int over = !is_awaiting(a, v) || a->now - v->quorum_at >= a->config.grace;
    if (v->has_quorum == over) { /* its grace begins, or ends */
        v->has_quorum = !over;
        a->graces += over ? -1 : 1;
        set_deadline(a);
    }
    if (over)
        activation_activate(a, v, -1);
}

/* From the first arrival to the last of those that were expected: told once, when all are in. */
static void tell_spread(struct activation *a, struct activation_version *v) {
    if (!a->config.automatic || v->counted || v->arrivals < 2 || v->has_quorum ||
        is_awaiting(a, v) || (v->state == ACTIVATION_IDLE && !v->sent))
        return;
    v->counted = 1;
    activation_push(a, (struct activation_action){.kind = ACTIVATION_SPREAD,
                                                  .version = v->version,
                                                  .ns = v->last - v->first});
}

void activation_consider(struct activation *a, struct activation_version *v) {
    consider(a, v);
    tell_spread(a, v);
}

static void notice(struct activation *a, struct activation_version *v, int from) {
    uint64_t *const arrived = activation_arrived(a, v);
    if (has(arrived, from))
        return;
    arrived[from / 64] |= UINT64_C(1) << (from % 64);
    if (v->arrivals++ == 0)
        v->first = v->last = a->now;
    if (has(activation_expected(a, v), from) || v->state == ACTIVATION_IDLE)
        v->last = a->now;
    activation_consider(a, v);
}

static void expect(struct activation *a, struct activation_version *v, int from) {
    activation_expected(a, v)[from / 64] |= UINT64_C(1) << (from % 64);
}

static void pass(struct activation *a, struct activation_version *v, int from) {
    activation_passed(a, v)[from / 64] |= UINT64_C(1) << (from % 64);
    activation_consider(a, v);
}

void activation_coordinate(struct activation *a, struct activation_version *v, int kind, int from) {
    if (kind == ACTIVATION_NOTICE)
        notice(a, v, from);
    else if (kind == ACTIVATION_PASS)
        pass(a, v, from);
    else
        expect(a, v, from);
}

void activation_tell_coordinator(struct activation *a, int64_t version, int kind) {
    struct activation_version *v = activation_open(a, version);
    if (!v)
        return;
    const struct activation_scope scope = activation_scope_of(a, v);
    const int to = activation_coordinator(a->config.seed, version, scope.members, scope.n);
    if (to != a->config.rank && kind == ACTIVATION_NOTICE)
        activation_send_claim(a, to, kind, v, 0);
    else if (to != a->config.rank)
        activation_send(a, to, kind, version, 0);
    else
        activation_coordinate(a, v, kind, to);
}

void activation_pass(struct activation *a, int64_t version) {
    const struct activation_version *v = activation_find(a, version);
    if (!activation_is_sync(a, version) && (!v || v->state == ACTIVATION_IDLE))
        activation_tell_coordinator(a, version, ACTIVATION_PASS);
}

void activation_grace(struct activation *a, uint64_t ns) {
    a->config.grace = ns;
    set_deadline(a); /* of those that run */
}
