/* Invariants of data: what is read is whole, and what was pinned; who leaves has every slice. */
#include "check.h"

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
             (!g->varies && (int)(round_low(head) >> 1) != g->members[sync][u][m->rank][0]))
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
        /* failed: its array shows a spare buffer (shm/avoiding/array.c), and never this one */
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
    default: break;
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
