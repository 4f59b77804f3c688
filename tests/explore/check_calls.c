/* Invariants of calls and waits: what a call returns with, whom it waits for, what is left. */
#include "base/mix.h"
#include "check.h"

void check_lookup(struct round_memory *m) {
    const int newest = *own(m, R_NEWEST);
    if ((int)m->local.u < newest)
        violate(m, "merge-newest", "rank %d takes version %d although %d had been pinned", m->rank,
                (int)m->local.u, newest);
    if (m->local.u < m->local.t)
        violate(m, "merge-newest", "rank %d takes version %d, older than its own %d", m->rank,
                (int)m->local.u, (int)m->local.t);
}

/* Two ranks that have called a version without a dispute called it with the same quorum. */
static void check_quorums(struct round_memory *m) {
    const struct config *g = m->config;
    const int t = (int)m->local.t;
    if (!g->varies || t == 0)
        return;
    if (*own(m, R_WARNED))
        violate(m, "dispute-told", "rank %d calls version %d after a dispute, and is not told",
                m->rank, t);
    if (m->local.sync)
        return;
    for (int q = 0; q < g->ranks; q++)
        if ((rank_field(g, m->cells, q, R_CALLED) >> t & 1) &&
            quorum_at(g, q, t) != quorum_at(g, m->rank, t))
            violate(m, "quorum-agreement",
                    "ranks %d and %d have called version %d with quorums %d and %d", q, m->rank, t,
                    quorum_at(g, q, t), quorum_at(g, m->rank, t));
    *own(m, R_CALLED) |= (uint16_t)(1u << t);
}

void check_disputed(struct round_memory *m) {
    const struct config *g = m->config;
    const uint64_t word = m->local.w;
    const int t = (int)round_version(word), finder = (int)round_low(word) - 1;
    const uint64_t slot = decode(*cell(m, ROUND_SLOT, 0, t % g->stride[ROUND_SLOT]));
    if (!g->disagree || *cell(m, ROUND_DISPUTE, 0, 0) != encode(word)) {
        violate(m, "mismatch", "rank %d is told of a dispute that there is not", m->rank);
        return;
    }
    if ((int)round_version(slot) != t ||
        (int)(round_low(decode(*cell(m, ROUND_HEAD, (int)round_low(slot), 0))) >> 1) ==
            quorum_at(g, finder, t))
        violate(m, "mismatch", "rank %d is told of version %d and rank %d, which do not disagree",
                m->rank, t, finder);
}

void check_return(struct round_memory *m) {
    const struct round_local *l = &m->local;
    const int t = (int)l->t, u = (int)l->u;
    const unsigned all = (1u << m->config->slices) - 1, delivered = *own(m, R_DELIVERED);
    const int taken = *own(m, R_TAKEN);
    const int full = l->outcome == ROUND_FRESH || l->outcome == ROUND_LATE;
    check_quorums(m);
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

/* -- waiting ----------------------------------------------------------------------------------- */
static int can_be_awaited(const struct round_memory *m, int q) {
    const int over = rank_field(m->config, m->cells, q, R_OVER);
    /* a failed rank is a PeerError, not a hang; but who failed by a dispute has told all */
    return over == RUNNING || (over == FAILED && !m->config->varies);
}

/* Has the member that is drawn to start the version arrived? */
static int starter_is_present(const struct round_memory *m) {
    const struct config *g = m->config;
    const struct round_local *l = &m->local;
    uint64_t least = UINT64_MAX;
    int present = 0;
    for (int k = 0; k < (int)l->members; k++) {
        const int q = g->members[0][l->t][m->rank][k];
        const uint64_t number =
            mix_draw(g->context[m->rank].topology.seed, l->t, l->leader, (uint32_t)q);
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
    if (g->no_waits) {
        violate(m, "I3-run-alone", "rank %d waits in version %d, which is not allowed", m->rank, t);
        return;
    }
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
    const int quorum = quorum_at(g, m->rank, t);
    int need = sync || quorum > all ? all : quorum;
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
        if ((!failed || g->varies) && rank_field(g, m->cells, r, R_OVER) == RUNNING)
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
