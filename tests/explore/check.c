/* The invariants. Each has a name; the first one that is violated ends the search. Here: of shared
 * words; check_data.c: of data, check_calls.c: of calls and waits. */
#include <stdarg.h>

#include "base/mix.h"
#include "check.h"

void violate(struct round_memory *m, const char *invariant, const char *format, ...) {
    if (m->invariant)
        return;
    va_list args;
    va_start(args, format);
    m->invariant = invariant;
    vsnprintf(m->detail, sizeof m->detail, format, args);
    va_end(args);
}

void check_commit(struct round_memory *m, enum access_kind kind, int word, int i, int j,
                  uint16_t value) {
    const int installed =
        word >= ROUND_HEAD && word <= ROUND_FREE && (*cell(m, KIND_LIFE, i, 0) & INSTALLED);
    const int referenced =
        word >= ROUND_HEAD && word <= ROUND_FREE && *cell(m, ROUND_REFS, i, 0) > 0;
    (void)j;
    const int retired = m->config->ordered && word == ROUND_REFS && !value;
    if (kind == ACCESS_STORE && installed && !(word == ROUND_FREE && value) && !retired)
        violate(m, "I9-held", "round %d is prepared anew although it is pinned", i);
    if (kind == ACCESS_RMW && (word == ROUND_NEXT || word == ROUND_DONE) && !referenced)
        violate(m, "I9-held", "round %d is used without a reference", i);
    if (word == ROUND_FREE && value) {
        if (*cell(m, ROUND_FREE, i, 0))
            violate(m, "I9-held", "round %d is freed twice", i);
        if (referenced)
            violate(m, "I9-held", "round %d is freed although it is referenced", i);
    }
}

/* I2, for one member: pinned is what was its newest at some moment since the pin began. */
void check_recorded(struct round_memory *m, int c, int k) {
    const uint16_t in = *cell(m, ROUND_IN, c, k), floor = *own(m, R_FLOOR + k);
    const int t = *own(m, R_t), sync = *own(m, R_sync);
    const int q = m->config->members[sync][t][m->rank][k];
    const int past = m->config->forward && pub_version(m, q) > t;
    if (in == 0xFFFF ? !is_departed(m, q) && !past
                     : floor == 0xFFFF || round_version(decode(in)) < round_version(decode(floor)))
        violate(
            m, "I2-pinned-newest",
            "version %d of rank %d is pinned, which was not its newest at any moment of the pin",
            (int)round_version(decode(in)), q);
}

/* I9: the references of the fresh members are in the round until they take it. */
void check_freed(struct round_memory *m, int c) {
    const struct config *g = m->config;
    const uint64_t head = decode(*cell(m, ROUND_HEAD, c, 0));
    const int v = (int)round_version(head), sync = (int)round_low(head) & 1;
    const int leader = g->varies ? 0 : (int)round_low(head) >> 1;
    if (!(*cell(m, KIND_LIFE, c, 0) & INSTALLED))
        return;
    for (int k = 0; k < g->count[sync][v][leader]; k++) {
        const int q = g->members[sync][v][leader][k];
        const uint16_t in = *cell(m, ROUND_IN, c, k);
        const uint16_t *f = cell(m, KIND_RANK, q, 0);
        if (f[R_kept] == c + 1 || (f[R_VIEW] && f[R_VIEW] <= v && v <= f[R_VIEW_LAST]))
            violate(m, "I9-held", "round %d is freed while rank %d looks at its result", c, q);
        if (g->ordered) {
            if (f[R_OVER] == RUNNING && f[R_t] && f[R_t] <= v && !is_departed(m, q))
                violate(m, "I9-held", "round %d is freed before rank %d has gone past it", c, q);
            continue;
        }
        if (q != m->rank && in != 0xFFFF && (int)round_version(decode(in)) == v &&
            rank_field(g, m->cells, q, R_OVER) == RUNNING && rank_field(g, m->cells, q, R_t) == v &&
            rank_field(g, m->cells, q, R_DELIVERED) != (1u << g->slices) - 1)
            violate(m, "I9-held", "round %d is freed before its fresh member %d is done with it", c,
                    q);
    }
}

/* The member that is drawn is fresh; who would have been drawn instead is past the version. */
static void check_drawn(struct round_memory *m, int c) {
    const struct config *g = m->config;
    const struct round_local *l = &m->local;
    const int t = (int)l->t;
    uint64_t least = UINT64_MAX;
    int drawn = 0;
    for (int k = 0; k < g->count[0][t][m->rank]; k++) {
        const int q = g->members[0][t][m->rank][k];
        const uint16_t in = *cell(m, ROUND_IN, c, k);
        const uint64_t number =
            mix_draw(g->context[m->rank].topology.seed, l->t, l->leader, (uint32_t)q);
        const int fresh = in != 0xFFFF && (int)round_version(decode(in)) == t;
        if (number > least || (!fresh && is_past(m, q, t)))
            continue;
        least = number;
        drawn = fresh;
    }
    if (!drawn)
        violate(m, "quorum", "version %d is pinned without the member that starts it", t);
}

/* I1: one input set per version and group; I2: of published contributions; I4. */
void check_pinned(struct round_memory *m, int leader, uint64_t before, uint64_t word) {
    const struct config *g = m->config;
    const int t = (int)m->local.t, sync = (int)m->local.sync, c = (int)round_low(word);
    const int old = (int)round_version(before);
    if ((int)round_version(word) != t)
        return; /* not what a slot says of a pinned version */
    for (int k = 0; old && !g->mismatch && k < g->count[0][old][leader]; k++) {
        const int q = g->members[0][old][leader][k];
        const int in = rank_field(g, m->cells, q, R_t);
        if (rank_field(g, m->cells, q, R_OVER) == RUNNING && in && in <= old &&
            *cell(m, ROUND_AT, q, 0) < old)
            violate(m, "I1-agreement", "the slot of version %d is reused while rank %d is in %d",
                    old, q, in);
    }
    if (is_installed(m, leader, t))
        violate(m, "I1-agreement", "version %d of the group led by %d is pinned twice", t, leader);
    *cell(m, KIND_INSTALLED, leader, 0) |= (uint16_t)(1u << t);
    if ((*cell(m, KIND_LIFE, c, 0) & ~INSTALLED) != t)
        violate(m, "I1-agreement", "slot of version %d names round %d of another one", t, c);
    *cell(m, KIND_LIFE, c, 0) |= INSTALLED;
    const int quorum = quorum_at(g, m->rank, t);
    int fresh = 0, all = 0;
    for (int k = 0; k < g->count[sync][t][m->rank]; k++) {
        const int q = g->members[sync][t][m->rank][k];
        const uint16_t in = *cell(m, ROUND_IN, c, k);
        all += (in != 0xFFFF && (int)round_version(decode(in)) == t) || !is_past(m, q, t);
        if (in == 0xFFFF)
            continue;
        const int version = (int)round_version(decode(in)), b = (int)round_buffer(decode(in));
        fresh += version == t;
        if (version > t)
            violate(m, "I2-pinned-newest", "version %d of rank %d is pinned for version %d",
                    version, q, t);
        if ((*cell(m, KIND_DATA, q, b) & ~EMPTY) != version)
            violate(m, "I2-pinned-newest", "the pinned version %d of rank %d is overwritten",
                    version, q);
        if (sync && version != t)
            violate(m, "I4-sync-fresh", "sync version %d holds version %d of rank %d", t, version,
                    q);
    }
    if (!fresh)
        violate(m, "I2-pinned-newest", "version %d is pinned without any arrival", t);
    if (g->majority && !sync)
        check_drawn(m, c);
    if (!g->majority && !sync && fresh < (quorum < all ? quorum : all))
        violate(m, "quorum", "version %d is pinned with %d of %d members", t, fresh, all);
}
