/* The invariants. Each has a name; the first one that is violated ends the search. */
#include <stdarg.h>
#include <string.h>

#include "model.h"

void violate(struct round_memory *m, const char *invariant, const char *format, ...) {
    if (m->invariant)
        return;
    va_list args;
    va_start(args, format);
    m->invariant = invariant;
    vsnprintf(m->detail, sizeof m->detail, format, args);
    va_end(args);
}

static uint16_t *own(const struct round_memory *m, int field) {
    return cell(m, KIND_RANK, m->rank, field);
}

static int pub_version(const struct round_memory *m, int r) {
    const uint16_t pub = *cell(m, ROUND_PUB, r, 0);
    return pub == 0xFFFF ? MAX_PROGRAM + 1 : (int)round_version(decode(pub));
}

static int is_departed(const struct round_memory *m, int r) {
    return *cell(m, ROUND_PUB, r, 0) == 0xFFFF;
}

static int is_installed(const struct round_memory *m, int leader, int version) {
    return *cell(m, KIND_INSTALLED, leader, 0) >> version & 1;
}

/* How far rank q has come, by its calls and not by what it says: the version it is in, or the last
 * one it has gone past, whose results it does not look at any more. */
static int progress(const struct round_memory *m, int q) {
    const struct config *g = m->config;
    const int published = pub_version(m, q), t = rank_field(g, m->cells, q, R_t);
    const int past = rank_field(g, m->cells, q, R_VIEW) ? 0 : t - 1;
    return past > published ? past : published;
}

/* -- shared words -------------------------------------------------------------------------------
 */
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
    const int leader = (int)round_low(head) >> 1;
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

/* Has q no part in version t: departed, or its counter jumped over it? */
static int is_past(const struct round_memory *m, int q, int t) {
    const int jumped = pub_version(m, q) > t || *cell(m, ROUND_AT, q, 0) >= t ||
                       rank_field(m->config, m->cells, q, R_t) > t;
    return is_departed(m, q) || (m->config->forward && jumped);
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
        const uint64_t number = round_draw(&g->context[m->rank], l->t, l->leader, (uint32_t)q);
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
    if (!g->majority && !sync && fresh < (g->quorum < all ? g->quorum : all))
        violate(m, "quorum", "version %d is pinned with %d of %d members", t, fresh, all);
}

/* -- data ---------------------------------------------------------------------------------------
 */
/* The inputs of round c, which is of `version`, are readable: what was pinned, and whole. */
static void check_inputs(struct round_memory *m, int c, int version, int sync, int fresh_only) {
    const struct config *g = m->config;
    for (int k = 0; k < g->count[sync][version][m->rank]; k++) {
        const int q = g->members[sync][version][m->rank][k];
        const uint16_t in = data_read(m, ROUND_IN, c, k);
        if (in == 0xFFFF)
            continue;
        if (fresh_only && (int)round_version(decode(in)) != version)
            continue;
        const int b = (int)round_buffer(decode(in));
        const uint16_t data = data_read(m, KIND_DATA, q, b);
        if (data & TORN)
            violate(m, "I5-torn", "rank %d writes the contribution that is being read", q);
        if ((data & ~EMPTY) != round_version(decode(in)))
            violate(m, "I9-held", "contribution %d of rank %d was replaced while in use",
                    (int)round_version(decode(in)), q);
    }
}

/* Round local.c is what this rank took: version local.u of its group, and still alive. */
static void check_taken(struct round_memory *m) {
    const struct config *g = m->config;
    const int c = (int)m->local.c, u = (int)m->local.u, sync = (int)m->local.sync;
    const uint64_t head = decode(data_read(m, ROUND_HEAD, c, 0));
    if (*cell(m, KIND_LIFE, c, 0) != (u | INSTALLED) || *cell(m, ROUND_REFS, c, 0) == 0)
        violate(m, "I9-held", "round %d was recycled under a rank that takes version %d of it", c,
                u);
    else if ((int)round_version(head) != u ||
             (int)(round_low(head) >> 1) != g->members[sync][u][m->rank][0])
        violate(m, "I1-agreement", "round %d is not of version %d of this rank's group", c, u);
}

static void deliver(struct round_memory *m, unsigned slices) {
    if (*own(m, R_DELIVERED) & slices)
        violate(m, "I1-agreement", "a slice is delivered twice");
    *own(m, R_DELIVERED) |= (uint16_t)slices;
}

static void check_result(struct round_memory *m, int c, int s) {
    const uint16_t result = data_read(m, KIND_RESULT, c, s);
    if (result & TORN)
        violate(m, "I5-torn", "slice %d of round %d is being written", s, c);
    else if (result != m->local.u)
        violate(m, "I9-held", "slice %d of round %d is not of version %d", s, c, (int)m->local.u);
}

/* Both ends of a read of local.c. */
static void check_reading(struct round_memory *m, enum round_action action) {
    const int c = (int)m->local.c, u = (int)m->local.u, sync = (int)m->local.sync;
    if (action == ROUND_GATHER) {
        check_inputs(m, c, (int)m->local.t, sync, 0);
        return;
    }
    check_taken(m);
    if (m->invariant)
        return;
    if (action == ROUND_PRIVATE || action == ROUND_REDUCE || action == ROUND_REDO)
        check_inputs(m, c, u, sync, m->config->ordered);
    if (action == ROUND_COPY)
        check_result(m, c, (int)m->local.s);
    /* the weights say which inputs are read at all */
    if (data_read(m, KIND_META, c, 0) != u)
        violate(m, "I9-held", "the weights of round %d are not of version %d", c, u);
}

/* Slice s goes into what all members' arrays show next: each is in that call and waits for it, or
 * has left that buffer to the round. Both ends of the write. */
static void check_outputs(struct round_memory *m) {
    const struct config *g = m->config;
    const int u = (int)m->local.u, sync = (int)m->local.sync;
    for (int k = 0; k < g->count[sync][u][m->rank]; k++) {
        const int q = g->members[sync][u][m->rank][k];
        const uint64_t in = decode(data_read(m, ROUND_IN, (int)m->local.c, k));
        const int b = (int)round_takes(in) - 1;
        const uint16_t *f = cell(m, KIND_RANK, q, 0);
        /* failed: its array shows a spare buffer (executor_shm_array.c), and never this one */
        const int waits = q == m->rank || ((f[R_OVER] == RUNNING || f[R_OVER] == FAILED) &&
                                           f[R_t] == u && f[R_takes]);
        const int shows = q == m->rank ? (int)m->local.array == b + 1 : f[R_array] == b + 1;
        const int published =
            !is_departed(m, q) && (int)round_buffer(decode(*cell(m, ROUND_PUB, q, 0))) == b;
        const int left = !shows && !published && *cell(m, ROUND_CREF, q, b) > 0;
        if (b < 0 || (int)round_version(in) != u)
            violate(m, "I1-agreement", "rank %d writes into the array of %d, which is not there",
                    m->rank, q);
        else if (!(waits && shows) && !left)
            violate(m, "I9-held", "rank %d writes into buffer %d of rank %d, which has it back",
                    m->rank, b, q);
    }
}

static void check_fresh(struct round_memory *m) {
    const struct config *g = m->config;
    const int u = (int)m->local.u, sync = (int)m->local.sync;
    int k = 0;
    while (g->members[sync][u][m->rank][k] != m->rank)
        k++;
    const uint64_t in = decode(data_read(m, ROUND_IN, (int)m->local.c, k));
    const int fresh = round_version(in) == m->local.t && m->local.u == m->local.t;
    if (m->config->ordered && (int)m->local.u != *own(m, R_TAKEN) + 1)
        violate(m, "ordered", "rank %d gets the result of version %d after that of %d", m->rank, u,
                *own(m, R_TAKEN));
    if (m->local.u == m->local.t && fresh == (int)m->local.late)
        violate(m, "I2-pinned-newest", "rank %d is %s in version %d", m->rank,
                fresh ? "fresh, not late," : "late, not fresh,", u);
    if (fresh != (int)m->local.fresh)
        violate(m, "I2-pinned-newest", "rank %d takes itself for %s in version %d", m->rank,
                m->local.fresh ? "fresh" : "late", u);
}

/* What the rank leaves with: every slice in its own array, or a complete result to look at. */
static void check_result_whole(struct round_memory *m) {
    const unsigned all = (1u << m->config->slices) - 1;
    const int looks = (m->local.view || m->local.to_all) && !m->local.copying && !m->config->world;
    const unsigned expected = looks ? 0 : all;
    if (*own(m, R_DELIVERED) != expected)
        violate(m, "I1-agreement", "rank %d leaves version %d with slices %x of %x", m->rank,
                (int)m->local.u, *own(m, R_DELIVERED), expected);
    for (int s = 0; looks && s < m->config->slices; s++)
        check_result(m, (int)m->local.c, s);
    if (m->local.to_all && !m->local.copying)
        deliver(m, all); /* by all */
    if (!m->config->ordered)
        return;
    *own(m, R_DELIVERED) = 0;
    *own(m, R_TAKEN) = (uint16_t)m->local.u;
}

void check_begin(struct round_memory *m) {
    const int c = (int)m->local.c, s = (int)m->local.s, b = (int)m->local.buffer;
    const enum round_action action = m->action;
    switch (action) {
    case ROUND_WRITE:
        data_write(m, KIND_DATA, m->rank, b, (uint16_t)(TORN | m->local.t));
        if (m->local.from_array) /* from now on the rank writes into what its array shows */
            data_write(m, KIND_DATA, m->rank, (int)m->local.array - 1, TORN);
        break;
    case ROUND_REDUCE:
        if (data_read(m, KIND_RESULT, c, s) != 0)
            violate(m, "I9-held", "slice %d of the shared result of round %d is written twice", s,
                    c);
        if (m->config->world && m->config->group_size < m->config->ranks)
            violate(m, "I1-agreement", "round %d of all ranks has the result of one group", c);
        check_reading(m, action);
        if (m->local.to_all)
            check_outputs(m);
        data_write(m, KIND_RESULT, c, s, (uint16_t)(TORN | m->local.u));
        break;
    case ROUND_GATHER:
        check_reading(m, action);
        data_write(m, KIND_META, c, 0, (uint16_t)(TORN | m->local.t));
        break;
    case ROUND_COLLECT:
        check_reading(m, action);
        check_fresh(m);
        break;
    case ROUND_PRIVATE:
    case ROUND_COPY:
    case ROUND_REDO:
        check_reading(m, action);
        if (m->local.to_all) /* into another buffer than was published as taking the result */
            data_write(m, KIND_DATA, m->rank, (int)m->local.array - 1, TORN);
        break;
    case ROUND_WAIT:
        if (!m->config->limited &&
            (m->local.why == ROUND_WHY_BUFFER || m->local.why == ROUND_WHY_ROUND))
            violate(m, "no-wait-bound", "rank %d finds no %s among all that the protocol needs",
                    m->rank, m->local.why == ROUND_WHY_BUFFER ? "contribution buffer" : "round");
        break;
    default:
        break;
    }
}

void check_end(struct round_memory *m) {
    const int c = (int)m->local.c, s = (int)m->local.s;
    const enum round_action action = *own(m, R_ACTION);
    if (action == ROUND_WRITE) {
        const int empty = m->config->program[m->rank][m->local.t - 1] == 'z' ? EMPTY : 0;
        data_write(m, KIND_DATA, m->rank, (int)m->local.buffer, (uint16_t)(m->local.t | empty));
        return;
    }
    check_reading(m, action);
    if (action == ROUND_GATHER)
        data_write(m, KIND_META, c, 0, (uint16_t)m->local.t);
    if (action == ROUND_REDUCE && m->local.to_all)
        check_outputs(m);
    if (action == ROUND_REDUCE)
        data_write(m, KIND_RESULT, c, s, (uint16_t)m->local.u);
    if ((action == ROUND_REDUCE && !m->local.view && !m->local.to_all) || action == ROUND_COPY ||
        action == ROUND_REDO)
        deliver(m, 1u << s);
    if (action == ROUND_PRIVATE)
        deliver(m, (1u << m->config->slices) - 1);
    if (action == ROUND_COLLECT)
        check_result_whole(m);
}

/* -- calls --------------------------------------------------------------------------------------
 */
void check_lookup(struct round_memory *m) {
    const int newest = *own(m, R_NEWEST);
    if ((int)m->local.u < newest)
        violate(m, "merge-newest", "rank %d takes version %d although %d had been pinned", m->rank,
                (int)m->local.u, newest);
    if (m->local.u < m->local.t)
        violate(m, "merge-newest", "rank %d takes version %d, older than its own %d", m->rank,
                (int)m->local.u, (int)m->local.t);
}

void check_return(struct round_memory *m) {
    const struct round_local *l = &m->local;
    const int t = (int)l->t, u = (int)l->u;
    const unsigned all = (1u << m->config->slices) - 1, delivered = *own(m, R_DELIVERED);
    const int taken = *own(m, R_TAKEN);
    const int full = l->outcome == ROUND_FRESH || l->outcome == ROUND_LATE;
    if (l->outcome == ROUND_RESERVED) {
        data_write(m, KIND_DATA, m->rank, (int)l->reserved - 1, (uint16_t)(TORN | t));
        return;
    }
    if (t == 0) {
        if (l->outcome != ROUND_GONE)
            violate(m, "I9-end", "a departure ends in another outcome");
        return;
    }
    for (int v = t + 1; v <= u; v++)
        if ((m->config->ordered || m->config->forward) &&
            is_sync(m->config->program[m->rank][v - 1]))
            violate(m, "I4-sync-fresh", "rank %d goes past sync version %d", m->rank, v);
    if (m->config->ordered) {
        if (taken != (full ? u : t - 1))
            violate(m, "ordered", "rank %d leaves version %d with the results up to %d", m->rank,
                    full ? u : t, taken);
        if (l->outcome == ROUND_ALONE)
            *own(m, R_TAKEN) = (uint16_t)t;
        return;
    }
    const int looks = l->outcome == ROUND_FRESH && l->out_of_place && !delivered;
    if (l->kept ? !looks : delivered != (full ? all : 0))
        violate(m, "I1-agreement", "rank %d leaves version %d with slices %x of %x", m->rank, t,
                delivered, full ? all : 0);
    if (l->sync && l->outcome != ROUND_FRESH && l->outcome != ROUND_ALONE)
        violate(m, "I4-sync-fresh", "rank %d is late for sync version %d", m->rank, t);
    if (l->outcome == ROUND_ALONE && l->members != 1)
        violate(m, "I8-any-size", "rank %d is not alone", m->rank);
    if (l->outcome == ROUND_FRESH && u != t)
        violate(m, "I2-pinned-newest", "fresh in version %d, called %d", u, t);
    if (l->outcome == ROUND_LATE && u <= taken)
        violate(m, "merge-newest", "rank %d merges version %d after %d", m->rank, u, taken);
    if (l->outcome == ROUND_UNMERGED && u > taken)
        violate(m, "merge-newest", "rank %d does not merge version %d after %d", m->rank, u, taken);
    const int now = full ? u : l->outcome == ROUND_ALONE ? t : 0;
    if (now > taken)
        *own(m, R_TAKEN) = (uint16_t)now;
}

/* -- waiting ------------------------------------------------------------------------------------
 */
static int can_be_awaited(const struct round_memory *m, int q) {
    const int over = rank_field(m->config, m->cells, q, R_OVER);
    return over == RUNNING || over == FAILED; /* a failed rank is a PeerError, not a hang */
}

/* Has the member that is drawn to start the version arrived? */
static int starter_is_present(const struct round_memory *m) {
    const struct config *g = m->config;
    const struct round_local *l = &m->local;
    uint64_t least = UINT64_MAX;
    int present = 0;
    for (int k = 0; k < (int)l->members; k++) {
        const int q = g->members[0][l->t][m->rank][k];
        const uint64_t number = round_draw(&g->context[m->rank], l->t, l->leader, (uint32_t)q);
        if (number > least || is_past(m, q, (int)l->t))
            continue;
        least = number;
        present = pub_version(m, q) >= (int)l->t;
    }
    return present;
}

void check_alone(struct round_memory *m) {
    const struct config *g = m->config;
    const struct round_local *l = &m->local;
    const int t = (int)l->t, sync = (int)l->sync;
    int behind = 0, present = 0, gone = 0;
    if (g->limited && (l->why == ROUND_WHY_BUFFER || l->why == ROUND_WHY_ROUND))
        return;
    if (l->why == ROUND_WHY_WINDOW) {
        for (int q = 0; q < g->ranks; q++)
            behind += progress(m, q) + g->window < t && can_be_awaited(m, q);
        if (!behind)
            violate(m, "I3-run-alone", "rank %d waits at the window for nobody", m->rank);
        return;
    }
    if (is_installed(m, (int)l->leader, t)) {
        violate(m, l->fresh ? "I3-run-alone" : "I6-late-waits",
                "rank %d waits in version %d, which is pinned", m->rank, t);
        return;
    }
    for (int k = 0; k < (int)l->members; k++) {
        const int q = g->members[sync][t][m->rank][k];
        const int past = sync ? is_departed(m, q) : is_past(m, q, t);
        gone += past;
        present += !past && pub_version(m, q) >= t;
        behind += pub_version(m, q) < t && !past && can_be_awaited(m, q);
    }
    const int all = (int)l->members - gone;
    int need = sync || g->quorum > all ? all : g->quorum;
    if (g->majority && !sync) {
        need = 1;
        present = starter_is_present(m);
    }
    if (l->why != ROUND_WHY_QUORUM || present >= need || !behind)
        violate(m, "I3-run-alone", "rank %d waits in version %d (why %d) with %d of %d present",
                m->rank, t, (int)l->why, present, need);
}

/* Rounds of all ranks are never complete: those that are held keep their inputs. */
static int pins_of_holds(const struct round_memory *m, int r, int b) {
    const struct config *g = m->config;
    int pins = 0;
    for (int c = 0; g->world && c < g->ranks * g->rounds; c++) {
        const uint16_t in = *cell(m, ROUND_IN, c, r);
        pins += *cell(m, ROUND_REFS, c, 0) && in != 0xFFFF && (int)round_buffer(decode(in)) == b;
    }
    return pins;
}

void check_terminal(struct round_memory *m) {
    const struct config *g = m->config;
    int failed = 0;
    for (int r = 0; r < g->ranks; r++)
        failed += rank_field(g, m->cells, r, R_OVER) == FAILED;
    if (g->mismatch && !failed)
        violate(m, "mismatch", "the ranks disagreed and none was told");
    for (int r = 0; r < g->ranks; r++)
        if (!failed && rank_field(g, m->cells, r, R_OVER) == RUNNING)
            violate(m, "no-deadlock", "rank %d can never go on", r);
    if (failed)
        return;
    for (int r = 0; r < g->ranks; r++)
        for (int b = 0; b < g->buffers; b++)
            if (*cell(m, ROUND_CREF, r, b) != pins_of_holds(m, r, b))
                violate(m, "I9-end", "contribution %d of rank %d stays pinned", b, r);
    for (int c = 0; c < g->ranks * g->rounds; c++) {
        int holds = 0;
        for (int r = 0; r < g->ranks; r++) {
            const uint16_t hold = *cell(m, ROUND_HOLD, r, 0);
            holds += hold != 0 && hold != 0xFFFF && (int)round_low(decode(hold)) == c;
            holds += rank_field(g, m->cells, r, R_kept) == c + 1 &&
                     rank_field(g, m->cells, r, R_OVER) != DEPARTED;
        }
        if (g->ordered) {
            if (!*cell(m, ROUND_FREE, c, 0) && *cell(m, ROUND_USERS, c, 0))
                violate(m, "I9-end", "the inputs of round %d stay pinned", c);
            continue;
        }
        if (*cell(m, ROUND_REFS, c, 0) != holds || *cell(m, ROUND_FREE, c, 0) != !holds ||
            (holds && *cell(m, ROUND_USERS, c, 0) && !g->world))
            violate(m, "I9-end", "round %d keeps %d references, of which holds explain %d", c,
                    *cell(m, ROUND_REFS, c, 0), holds);
    }
}
