/* See activation_oracle.h. */
#include "activation_oracle.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mix.h"

static void violate(struct oracle_violation *bad, const char *invariant, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void violate(struct oracle_violation *bad, const char *invariant, const char *format, ...) {
    va_list arguments;
    if (bad->invariant)
        return;
    bad->invariant = invariant;
    va_start(arguments, format);
    vsnprintf(bad->detail, sizeof bad->detail, format, arguments);
    va_end(arguments);
}

#define HOLD(condition, invariant, ...)                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            violate(bad, invariant, __VA_ARGS__);                                                  \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* ---- layout ---------------------------------------------------------------------------------- */
size_t oracle_bytes(const struct oracle_rules *rules) {
    const size_t ranks = (size_t)rules->core.size;
    return ranks * sizeof(struct oracle_player) +
           ranks * (size_t)rules->versions * sizeof(struct oracle_cell);
}

struct oracle_player *oracle_player(struct oracle *o, int rank) {
    return (struct oracle_player *)(void *)o + rank;
}

struct oracle_cell *oracle_cell(const struct oracle_rules *rules, struct oracle *o, int rank,
                                int version) {
    struct oracle_cell *cells =
        (struct oracle_cell *)(void *)((char *)o +
                                       (size_t)rules->core.size * sizeof(struct oracle_player));
    return &cells[rank * rules->versions + version];
}

void oracle_init(const struct oracle_rules *rules, struct oracle *o) {
    memset(o, 0, oracle_bytes(rules));
    for (int r = 0; r < rules->core.size; r++)
        *oracle_player(o, r) =
            (struct oracle_player){.newest = -1, .position = -1, .last = -1, .pinned = -1};
}

static int flag(const struct oracle_rules *rules, struct oracle *o, int rank, int version,
                enum oracle_flag which) {
    return (oracle_cell(rules, o, rank, version)->flags & which) != 0;
}

/* ---- rules ----------------------------------------------------------------------------------- */
int oracle_is_sync(const struct oracle_rules *rules, int version) {
    const int64_t period = rules->core.sync_period;
    return (rules->explicit_sync >> version & 1) || (period && (version + 1) % period == 0);
}

static int everybody(const struct oracle_rules *rules, int32_t *members) {
    for (int r = 0; r < rules->core.size; r++)
        members[r] = r;
    return rules->core.size;
}

int oracle_members(const struct oracle_rules *rules, int rank, int version, int32_t *members) {
    if (oracle_is_sync(rules, version))
        return everybody(rules, members);
    return topology_members(&rules->core.topology, rank, version, members);
}

int oracle_starters(const struct oracle_rules *rules, int rank, int version, int32_t *members) {
    if (rules->core.world)
        return everybody(rules, members);
    return oracle_members(rules, rank, version, members);
}

/* 1: everybody has to come to the version. */
static int is_all(const struct oracle_rules *rules, int version) {
    return oracle_is_sync(rules, version) || rules->core.quorum == 0;
}

/* 1: the rank never comes to the version any more: it has departed, or jumped over it. */
static int never_comes(const struct oracle_rules *rules, struct oracle *o, int rank, int version) {
    const struct oracle_player *p = oracle_player(o, rank);
    return !flag(rules, o, rank, version, ORACLE_HERE) &&
           (p->phase == ORACLE_GONE || p->position >= version);
}

/* Versions from barrier to barrier. */
static int64_t half_window(const struct oracle_rules *rules) {
    return rules->core.window > 3 ? rules->core.window / 2 : 1;
}

static int is_departed(struct oracle *o, int rank, int version) {
    const struct oracle_player *p = oracle_player(o, rank);
    return p->phase == ORACLE_GONE && p->version <= version;
}

/* 1: as many have come as start the version. */
static int quorum_present(const struct oracle_rules *rules, struct oracle *o, int rank,
                          int version) {
    int32_t members[ORACLE_RANKS];
    const int n = oracle_starters(rules, rank, version, members);
    int here = 0, left = 0, drawn = -1;
    uint64_t least = 0;
    for (int i = 0; i < n; i++) {
        const int r = members[i];
        here += flag(rules, o, r, version, ORACLE_HERE);
        if (never_comes(rules, o, r, version))
            continue;
        left++;
        const uint64_t number =
            mix_draw(rules->core.seed, (uint64_t)version + 1, (uint32_t)members[0], (uint32_t)r);
        if (drawn < 0 || number < least) {
            drawn = r;
            least = number;
        }
    }
    if (is_all(rules, version))
        return here == left;
    if (rules->core.quorum < 0)
        return drawn >= 0 && flag(rules, o, drawn, version, ORACLE_HERE);
    const int quorum = rules->core.varies ? rules->quorums[rank][version] : rules->core.quorum;
    return here >= (quorum < left ? quorum : left);
}

/* ---- the caller ------------------------------------------------------------------------------ */
void oracle_call(struct oracle *o, int rank) {
    oracle_player(o, rank)->phase = ORACLE_CALLED;
}

void oracle_arrive(const struct oracle_rules *rules, struct oracle *o, int rank,
                   struct oracle_violation *bad) {
    struct oracle_player *p = oracle_player(o, rank);
    const int t = p->version;
    for (int q = 0; q < rules->core.size; q++) {
        const struct oracle_player *other = oracle_player(o, q);
        HOLD(other->phase == ORACLE_GONE || other->version + rules->core.window >= t, "A6-window",
             "rank %d arrives at version %d, rank %d is at %d", rank, t, q, other->version);
    }
    p->phase = ORACLE_ARRIVED;
    p->newest = p->position = (int16_t)t;
    oracle_cell(rules, o, rank, t)->flags |= ORACLE_HERE;
    p->pinned = -1;
    for (int u = t; u < rules->versions; u++) {
        if (flag(rules, o, rank, u, ORACLE_PINNED))
            p->pinned = (int16_t)u;
        else if (rules->core.ordered) /* results are taken in order */
            break;
    }
}

void oracle_depart(struct oracle *o, int rank) {
    oracle_player(o, rank)->phase = ORACLE_GONE;
}

static int next_sync(const struct oracle_rules *rules, int version) {
    while (version < rules->versions && !oracle_is_sync(rules, version))
        version++;
    return version;
}

static void return_late(const struct oracle_rules *rules, struct oracle *o, int rank,
                        const struct activation_call *call, struct oracle_violation *bad) {
    struct oracle_player *p = oracle_player(o, rank);
    const int t = p->version, taken = (int)call->taken;
    HOLD(!oracle_is_sync(rules, t), "I4-sync", "rank %d is late in sync version %d", rank, t);
    HOLD(taken >= p->pinned, "result", "rank %d, late in %d, takes %d, as it came %d was pinned",
         rank, t, taken, p->pinned);
    HOLD(call->merged == (taken > p->last), "result",
         "rank %d, late in %d, takes %d, merged %d; newest before: %d", rank, t, taken,
         call->merged, p->last);
}

void oracle_return(const struct oracle_rules *rules, struct oracle *o, int rank,
                   const struct activation_call *call, struct oracle_violation *bad) {
    struct oracle_player *p = oracle_player(o, rank);
    const int t = p->version, ordered = rules->core.ordered;
    const int taken = (int)call->taken;
    const struct oracle_cell *own = oracle_cell(rules, o, rank, t);
    HOLD(call->taken >= t && call->taken < rules->versions, "result",
         "rank %d, version %d, takes version %d", rank, t, taken);
    HOLD(own->flags & ORACLE_PINNED, "result", "rank %d returns from %d, which is not pinned", rank,
         t);
    HOLD(call->late == (own->input != t), "A2-fresh", "rank %d, version %d: late %d, input %d",
         rank, t, call->late, own->input);
    for (int u = ordered ? t : taken; u <= taken; u++)
        HOLD(flag(rules, o, rank, u, ORACLE_COMPLETE), "result",
             "rank %d, version %d, takes version %d, which is not complete", rank, t, u);
    const int sync = next_sync(rules, t);
    HOLD(taken == t || taken < sync, "I4-sync", "rank %d, version %d, takes %d beyond sync %d",
         rank, t, taken, sync);
    if (call->late) {
        return_late(rules, o, rank, call, bad);
    } else if (!ordered) {
        HOLD(taken == t, "result", "rank %d is fresh in version %d and takes %d", rank, t, taken);
        HOLD(call->merged, "result", "rank %d is fresh in version %d, unmerged", rank, t);
    }
    if (taken > p->last)
        p->last = (int16_t)taken;
    p->version = (int16_t)(ordered || (rules->core.forward && call->late) ? taken + 1 : t + 1);
    p->position = (int16_t)(p->version - 1);
    p->phase = ORACLE_OUTSIDE;
}

/* ---- the core -------------------------------------------------------------------------------- */
/* What the rank has to contribute to a version that it pins now. */
static int due_input(const struct oracle_rules *rules, struct oracle *o, int rank, int version) {
    const struct oracle_player *p = oracle_player(o, rank);
    if (flag(rules, o, rank, version, ORACLE_HERE) && p->newest == version)
        return version;
    if (is_departed(o, rank, version))
        return ORACLE_WEIGHTLESS;
    if (rules->core.ordered)
        return flag(rules, o, rank, version, ORACLE_HERE) ? version : ORACLE_ABSENT;
    return p->newest > version ? ORACLE_ABSENT : p->newest;
}

void oracle_pin(const struct oracle_rules *rules, struct oracle *o, int rank,
                const struct activation_action *action, struct oracle_violation *bad) {
    int32_t members[ORACLE_RANKS];
    HOLD(action->version >= 0 && action->version < rules->versions, "scope",
         "rank %d pins version %lld", rank, (long long)action->version);
    const int v = (int)action->version;
    struct oracle_cell *cell = oracle_cell(rules, o, rank, v);
    const struct oracle_player *p = oracle_player(o, rank);
    const int input = action->input == ACTIVATION_ABSENT ? ORACLE_ABSENT
                      : action->input == ACTIVATION_GONE ? ORACLE_WEIGHTLESS
                                                         : (int)action->input;
    const int due = due_input(rules, o, rank, v), sync = oracle_is_sync(rules, v);
    HOLD(!(cell->flags & ORACLE_PINNED), "A1-pinned-once", "rank %d pins version %d again", rank,
         v);
    HOLD((action->sync != 0) == sync, "I4-sync", "rank %d pins version %d as %s version", rank, v,
         action->sync ? "a sync" : "no sync");
    HOLD(!(cell->flags & ORACLE_HERE) || input == v, "A2-fresh",
         "rank %d has arrived at version %d and pins %d", rank, v, input);
    HOLD(input == due, "A1-newest", "rank %d pins %d for version %d instead of %d", rank, input, v,
         due);
    HOLD(!is_all(rules, v) || input == v || input == ORACLE_WEIGHTLESS, "I4-sync",
         "rank %d pins %d for version %d, to which everybody comes", rank, input, v);
    HOLD(rules->core.forward || input < -1 || v - input <= rules->core.window + 1, "staleness",
         "rank %d pins %d for version %d", rank, input, v);
    for (int u = v - 3 * (int)half_window(rules) - 1; u >= 0; u--)
        for (int q = 0; q < rules->core.size; q++)
            HOLD(!flag(rules, o, q, u, ORACLE_PINNED) || flag(rules, o, q, u, ORACLE_COMPLETE),
                 "slots", "rank %d pins version %d, %d is not over on rank %d", rank, v, u, q);
    cell->flags |= (uint16_t)(ORACLE_PINNED | (sync ? ORACLE_WORLD : 0));
    cell->input = (int16_t)input;
    if (is_all(rules, v))
        return;
    const int n = oracle_starters(rules, rank, v, members);
    for (int i = 0; i < n; i++)
        if (members[i] != rank && flag(rules, o, members[i], v, ORACLE_PINNED))
            return;  /* started before */
    int present = 0; /* where ranks do not agree: for one of them */
    for (int i = 0; i < n; i++)
        present |= quorum_present(rules, o, rules->core.varies ? members[i] : rank, v);
    HOLD(present, "quorum", "rank %d starts version %d, phase %d", rank, v, p->phase);
}

void oracle_complete(const struct oracle_rules *rules, struct oracle *o, int rank, int version,
                     struct oracle_violation *bad) {
    int32_t members[ORACLE_RANKS];
    const int n = oracle_members(rules, rank, version, members);
    for (int i = 0; i < n; i++)
        HOLD(flag(rules, o, members[i], version, ORACLE_PINNED), "A3-all-pinned",
             "version %d ends on rank %d, and rank %d has not pinned it", version, rank,
             members[i]);
    oracle_cell(rules, o, rank, version)->flags |= ORACLE_COMPLETE;
}

static void send_activate(const struct oracle_rules *rules, struct oracle *o, int rank,
                          const struct activation_action *action, struct oracle_violation *bad) {
    int32_t members[ORACLE_RANKS];
    const int v = (int)action->message.version, detail = action->message.detail;
    const int d = detail < 0 ? detail : detail & ((1 << ACTIVATION_CLAIMANT_SHIFT) - 1);
    const int n = oracle_starters(rules, rank, v, members);
    int mine = -1, other = -1;
    for (int i = 0; i < n; i++) {
        mine = members[i] == rank ? i : mine;
        other = members[i] == action->to ? i : other;
    }
    HOLD(other >= 0, "scope", "rank %d activates version %d on rank %d, which is in another group",
         rank, v, action->to);
    if (d == ACTIVATION_NUDGE)
        return;
    HOLD(d >= 0 && d < activation_dimensions(n), "scope", "rank %d, version %d, dimension %d", rank,
         v, d);
    HOLD(other == activation_partner(mine, n, d), "scope",
         "rank %d, version %d, dimension %d: to member %d instead of %d", rank, v, d, other,
         activation_partner(mine, n, d));
    struct oracle_cell *cell = oracle_cell(rules, o, rank, v);
    HOLD(!(cell->flags & ORACLE_SENT << d), "A4-once", "rank %d, version %d, dimension %d again",
         rank, v, d);
    cell->flags |= (uint16_t)(ORACLE_SENT << d);
}

void oracle_send(const struct oracle_rules *rules, struct oracle *o, int rank,
                 const struct activation_action *action, struct oracle_violation *bad) {
    HOLD(action->to >= 0 && action->to < rules->core.size && action->to != rank, "scope",
         "rank %d sends to rank %d", rank, action->to);
    if (action->message.kind != ACTIVATION_ACTIVATE)
        return;
    HOLD(action->message.version >= 0 && action->message.version < rules->versions, "scope",
         "rank %d activates version %lld", rank, (long long)action->message.version);
    send_activate(rules, o, rank, action, bad);
}

/* ---- quiet states ---------------------------------------------------------------------------- */
/* 1: somebody who has not departed is at a lower version. */
static int somebody_before(const struct oracle_rules *rules, struct oracle *o, int64_t version) {
    for (int q = 0; q < rules->core.size; q++) {
        const struct oracle_player *p = oracle_player(o, q);
        if (p->phase != ORACLE_GONE && p->version < version)
            return 1;
    }
    return 0;
}

/* The barrier that has to be over before a rank arrives at version t: that of the multiple of h
 * before the last one. */
static int64_t barrier_before(const struct oracle_rules *rules, int t) {
    return (t / half_window(rules) - 1) * half_window(rules);
}

void oracle_waits(const struct oracle_rules *rules, struct oracle *o, int rank, int may_arrive,
                  const struct activation_call *call, struct oracle_violation *bad) {
    const struct oracle_player *p = oracle_player(o, rank);
    const int t = p->version;
    if (p->phase == ORACLE_CALLED) {
        HOLD(!may_arrive, "A5-waits", "rank %d may arrive at version %d, and does not", rank, t);
        HOLD(somebody_before(rules, o, barrier_before(rules, t)), "A5-waits",
             "rank %d waits for the window before version %d, which everybody is near", rank, t);
        return;
    }
    if (p->phase != ORACLE_ARRIVED)
        return;
    HOLD(call->state != ACTIVATION_DONE, "A5-waits", "rank %d is done with version %d, and stays",
         rank, t);
    HOLD(!quorum_present(rules, o, rank, t), "A5-waits",
         "rank %d waits in version %d for %s, and those that it needs are here", rank, t,
         call->state == ACTIVATION_WAITS_QUORUM ? "its quorum" : "data");
}

/* 1: the version, which rank r has pinned, must be pinned on rank q. In the world's activation one
 * that has departed or jumped over it takes part only where its group needs it. */
static int must_pin(const struct oracle_rules *rules, struct oracle *o, int r, int q, int version) {
    int32_t members[ORACLE_RANKS];
    const int n = oracle_members(rules, r, version, members);
    for (int i = 0; i < n; i++)
        if (members[i] == q)
            return 1;
    return rules->core.world && !never_comes(rules, o, q, version);
}

void oracle_quiet(const struct oracle_rules *rules, struct oracle *o,
                  struct oracle_violation *bad) {
    for (int v = 0; v < rules->versions; v++)
        for (int r = 0; r < rules->core.size; r++) {
            if (!flag(rules, o, r, v, ORACLE_PINNED))
                continue;
            if (is_all(rules, v) && !quorum_present(rules, o, r, v))
                continue;
            for (int q = 0; q < rules->core.size; q++)
                HOLD(flag(rules, o, q, v, ORACLE_PINNED) || !must_pin(rules, o, r, q, v),
                     "A3-all-pinned",
                     "version %d is pinned on rank %d and not on rank %d, nothing is on its way", v,
                     r, q);
            HOLD(flag(rules, o, r, v, ORACLE_COMPLETE), "A3-all-pinned",
                 "version %d never ends on rank %d", v, r);
        }
}
