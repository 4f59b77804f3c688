/* The invariants of quorum "all". Each has a name; the first one that is violated ends the search.
 */
#include <stdarg.h>
#include <string.h>

#include "quorum_all_model.h"

void quorum_all_violate(struct quorum_all_memory *m, const char *invariant, const char *format,
                        ...) {
    if (m->invariant)
        return;
    va_list args;
    va_start(args, format);
    m->invariant = invariant;
    vsnprintf(m->detail, sizeof m->detail, format, args);
    va_end(args);
}

static int over_of(const struct quorum_all_memory *m, int r) {
    return *quorum_all_field(m, r, R_OVER);
}

static uint64_t word(const struct quorum_all_memory *m, int kind, int r, int parity) {
    return quorum_all_decode(kind, *quorum_all_cell(m, kind, r, parity));
}

static int has_failed(const struct quorum_all_memory *m, int r) {
    return word(m, QUORUM_ALL_STATE, r, 0) == QUORUM_ALL_STATE_FAILED;
}

/* -- records ----------------------------------------------------------------------------------- */
static void check_record(struct quorum_all_memory *m, int q, int t) {
    const uint16_t record = *quorum_all_cell(m, KIND_RECORD, q, t & 1);
    if (record >= 0x8000)
        quorum_all_violate(m, "I5-torn", "rank %d reads the record that rank %d is writing",
                           m->rank, q);
    else if (record != t + 1)
        quorum_all_violate(m, "I9-held",
                           "rank %d reads version %d of rank %d, whose record is of %d by now",
                           m->rank, t, q, record - 1);
}

void quorum_all_check_weight(struct quorum_all_memory *m, int q, int parity) {
    (void)parity;
    check_record(m, q, (int)m->local.t);
}

/* Both ends of a read of the records of `ranks`. */
static void check_records(struct quorum_all_memory *m, const int32_t *ranks, int32_t n) {
    for (int32_t k = 0; k < n; k++)
        check_record(m, ranks[k], (int)m->local.t);
}

/* -- arrays ------------------------------------------------------------------------------------ */
static void check_claimed(struct quorum_all_memory *m, int q, int s) {
    const int t = (int)m->local.t;
    const uint16_t content = *quorum_all_cell(m, KIND_ARRAY, q, s);
    if (content == CONTENT_INPUT(t))
        return;
    if (has_failed(m, q) && content == CONTENT_WRITING(q)) /* it gave up; nobody may deliver this */
        *quorum_all_field(m, m->rank, R_TAINTED) = 1;
    else if (content >= 0x8000)
        quorum_all_violate(m, "I5-torn", "slice %d of rank %d is being written by rank %d", s, q,
                           content & 0xFF);
    else if (content >> 1 == t + 1)
        quorum_all_violate(m, "I1-agreement", "slice %d of rank %d is reduced twice", s, q);
    else
        quorum_all_violate(m, "I9-held", "slice %d of rank %d is not of version %d", s, q, t);
}

static void begin_slice(struct quorum_all_memory *m) {
    const struct quorum_all_local *l = &m->local;
    const int s = (int)l->s;
    if (s >= m->config->slices) {
        quorum_all_violate(m, "I1-agreement", "slice %d of %d is claimed", s, m->config->slices);
        return;
    }
    for (int32_t k = 0; k < l->present_n; k++)
        check_claimed(m, l->present[k], s);
    for (int32_t k = 0; k < l->present_n && !m->invariant; k++)
        if (!has_failed(m, l->present[k]))
            *quorum_all_cell(m, KIND_ARRAY, l->present[k], s) = CONTENT_WRITING(m->rank);
}

static void end_slice(struct quorum_all_memory *m) {
    const struct quorum_all_local *l = &m->local;
    uint16_t *tainted = quorum_all_field(m, m->rank, R_TAINTED);
    for (int32_t k = 0; k < l->present_n; k++)
        *tainted |= (uint16_t)has_failed(m, l->present[k]);
    for (int32_t k = 0; k < l->present_n; k++) {
        const int q = l->present[k];
        uint16_t *content = quorum_all_cell(m, KIND_ARRAY, q, (int)l->s);
        if (has_failed(m, q))
            continue;
        if (*content != CONTENT_WRITING(m->rank))
            quorum_all_violate(m, "I5-torn", "slice %d of rank %d changes while rank %d reduces it",
                               (int)l->s, q, m->rank);
        *content = (uint16_t)(CONTENT_RESULT(l->t) | (*tainted ? CONTENT_TAINTED : 0));
    }
    *tainted = 0;
}

static void check_delivered(struct quorum_all_memory *m) {
    for (int s = 0; s < m->config->slices; s++) {
        const uint16_t content = *quorum_all_cell(m, KIND_ARRAY, m->rank, s);
        if (content == (CONTENT_RESULT(m->local.t) | CONTENT_TAINTED))
            quorum_all_violate(
                m, "I5-torn",
                "rank %d delivers slice %d, computed from an array that was overwritten", m->rank,
                s);
        else if (content >= 0x8000)
            quorum_all_violate(m, "I5-torn", "rank %d delivers slice %d, which rank %d is writing",
                               m->rank, s, content & 0xFF);
        else if (content != CONTENT_RESULT(m->local.t))
            quorum_all_violate(m, "I1-agreement", "rank %d delivers slice %d, which nobody reduced",
                               m->rank, s);
    }
}

/* ---- who takes part -------------------------------------------------------------------------- */
static int comes_to(const struct quorum_all_memory *m, int q, int t) {
    return (int)strspn(m->config->program[q], "nszyp") > t;
}

/* All who have not departed before take part, whoever asks; only what weighs something is read. */
static void check_gathered(struct quorum_all_memory *m) {
    const struct quorum_all_config *g = m->config;
    const struct quorum_all_local *l = &m->local;
    const int t = (int)l->t;
    int32_t n = 0, contributors = 0;
    for (int32_t k = 0; k < l->n; k++) {
        const int q = l->members[k];
        if (!comes_to(m, q, t))
            continue;
        const int weighs = strchr("nsp", g->program[q][t]) != NULL;
        if (n >= l->present_n || l->present[n] != q)
            quorum_all_violate(m, l->sync ? "I4-sync-fresh" : "I1-agreement",
                               "rank %d goes on in version %d without rank %d", m->rank, t, q);
        if (weighs && (contributors >= l->contributors_n || l->contributors[contributors] != q))
            quorum_all_violate(m, "I1-agreement", "the contribution of rank %d to %d is left out",
                               q, t);
        n++;
        contributors += weighs;
    }
    if (n != l->present_n)
        quorum_all_violate(m, "I1-agreement", "a departed rank takes part in version %d", t);
    if (contributors != l->contributors_n)
        quorum_all_violate(m, "weight-0", "rank %d reads a contribution of weight 0", m->rank);
    if (l->n == 1 && l->present_n != 1)
        quorum_all_violate(m, "I8-any-size", "rank %d is not alone in version %d", m->rank, t);
}

/* ---- waiting --------------------------------------------------------------------------------- */
/* 1: q keeps the rank, which waits for `why`, from going on. */
static int is_missing(const struct quorum_all_memory *m, int q, enum quorum_all_why why) {
    const struct quorum_all_config *g = m->config;
    const uint16_t *f = quorum_all_field(m, m->rank, 0);
    const int t = f[R_T] - 1, parity = t & 1;
    if (q == m->rank || word(m, QUORUM_ALL_STATE, q, 0) == QUORUM_ALL_STATE_DEPARTED)
        return 0;
    if (why == QUORUM_ALL_WHY_WINDOW) {
        const int before = f[R_GROUP + parity] - 1, sync = f[R_GROUP_SYNC + parity];
        if ((int)word(m, QUORUM_ALL_ARRIVE, q, 0) - 1 < t - g->window)
            return 1;
        for (int k = 0; before >= 0 && k < g->count[sync][before][m->rank]; k++)
            if (g->members[sync][before][m->rank][k] == q &&
                (int)word(m, QUORUM_ALL_FINISH, q, 0) <= before)
                return 1;
        return 0;
    }
    for (int k = 0; k < g->count[f[R_SYNC]][t][m->rank]; k++)
        if (g->members[f[R_SYNC]][t][m->rank][k] == q)
            return why == QUORUM_ALL_WHY_MEMBERS
                       ? word(m, QUORUM_ALL_STAMP, q, parity) < quorum_all_stamp(t, 0)
                       : (f[R_PRESENT] >> q & 1) && (int)word(m, QUORUM_ALL_SLICED, q, 0) <= t;
    return 0;
}

/* A rank that lives holds a slice of the version that rank m->rank waits for. */
static int holds(const struct quorum_all_memory *m, int q) {
    return (*quorum_all_field(m, m->rank, R_PRESENT) >> q & 1) && *quorum_all_field(m, q, R_HOLDS);
}

/* 1: the rank cannot go on, because of ranks that are lost. `exactly`: among the living those who
 * hold a slice keep it waiting, otherwise those who may hold one as far as it can know. */
static int is_stuck(const struct quorum_all_memory *m, enum quorum_all_why why, int exactly) {
    int lost = 0, living = 0;
    for (int q = 0; q < m->config->ranks; q++)
        if (quorum_all_is_lost(m, q))
            lost += is_missing(m, q, why);
        else
            living += exactly ? holds(m, q) : is_missing(m, q, why);
    return lost && (why != QUORUM_ALL_WHY_SLICES || !living);
}

static int all_done(const struct quorum_all_memory *m, int t, uint16_t present) {
    if (!m->config->slices)
        return 0;
    const uint64_t base = ((uint64_t)t + 1) << QUORUM_ALL_SLICE_BITS;
    return word(m, QUORUM_ALL_DONE, __builtin_ctz(present), t & 1) >=
           base + (uint64_t)m->config->slices;
}

/* A version ends in an error only if a rank that it needs is lost. */
static void check_peer(struct quorum_all_memory *m) {
    const struct quorum_all_local *l = &m->local;
    const uint16_t *f = quorum_all_field(m, m->rank, 0); /* before this step */
    const int t = (int)l->t;
    if (!quorum_all_is_lost(m, l->other)) {
        quorum_all_violate(m, "I7-dead-is-error", "rank %d is taken for dead", l->other);
        return;
    }
    const int done = f[R_PRESENT] && all_done(m, t, f[R_PRESENT]);
    const int stuck = is_stuck(m, (enum quorum_all_why)l->why, 1);
    if (f[R_MODE] == SEEKING && stuck && (l->why != QUORUM_ALL_WHY_SLICES || !done))
        return;
    /* all is there, but perhaps computed from what that rank wrote after it gave up */
    if (done && has_failed(m, l->other) && (f[R_PRESENT] >> l->other & 1) &&
        (int)word(m, QUORUM_ALL_FINISH, l->other, 0) <= t)
        return;
    quorum_all_violate(m, "I7-dead-is-error",
                       "rank %d gives version %d up because of rank %d, which it does not need",
                       m->rank, t, l->other);
}

/* Everybody waits for ranks that are behind it: for one at a lower version, or for one at the same
 * version that has not published it, or that still claims slices. So the last of those who live
 * waits for nobody. */
void quorum_all_check_alone(struct quorum_all_memory *m) {
    const uint16_t *f = quorum_all_field(m, m->rank, 0);
    const enum quorum_all_why why = (enum quorum_all_why)f[R_WHY];
    const int t = f[R_T];
    int behind = 0;
    if (is_stuck(m, why, 0)) {
        quorum_all_violate(m, "I7-dead-is-error",
                           "rank %d waits in version %d for ranks that are dead", m->rank, t - 1);
        return;
    }
    for (int q = 0; q < m->config->ranks; q++) {
        const int at = *quorum_all_field(m, q, R_T);
        const int leaves = over_of(m, q) == DEPARTING || over_of(m, q) == FAILING;
        if (is_missing(m, q, why) && !quorum_all_is_lost(m, q))
            behind += leaves || (why == QUORUM_ALL_WHY_WINDOW ? at < t : at <= t);
    }
    if (!behind || (why == QUORUM_ALL_WHY_SLICES && all_done(m, t - 1, f[R_PRESENT])))
        quorum_all_violate(m, "no-deadlock",
                           "rank %d waits in version %d for nobody that is behind", m->rank, t - 1);
}

/* ---- steps ----------------------------------------------------------------------------------- */
static void check_counts(struct quorum_all_memory *m) {
    const struct quorum_all_access *a = &m->access;
    if (a->name && a->done && a->after != a->before &&
        (a->word == QUORUM_ALL_CLAIM || a->word == QUORUM_ALL_DONE) &&
        (a->after & ((1 << QUORUM_ALL_SLICE_BITS) - 1)) > (uint64_t)m->config->slices)
        quorum_all_violate(m, "I1-agreement", "more slices are counted than there are");
}

static void check_window(struct quorum_all_memory *m) {
    for (int q = 0; q < m->config->ranks; q++)
        if ((int)word(m, QUORUM_ALL_ARRIVE, q, 0) - 1 < m->local.t - m->config->window &&
            word(m, QUORUM_ALL_STATE, q, 0) != QUORUM_ALL_STATE_DEPARTED)
            quorum_all_violate(m, "window", "rank %d is in version %d while rank %d is at %d",
                               m->rank, (int)m->local.t, q,
                               (int)word(m, QUORUM_ALL_ARRIVE, q, 0) - 1);
}

void quorum_all_check_begin(struct quorum_all_memory *m) {
    const struct quorum_all_local *l = &m->local;
    const int parity = (int)(l->t & 1);
    check_counts(m);
    if (m->action == QUORUM_ALL_REDUCE)
        *quorum_all_field(m, m->rank, R_HOLDS) = 1;
    else if (m->access.name && m->access.word == QUORUM_ALL_DONE &&
             m->access.after != m->access.before)
        *quorum_all_field(m, m->rank, R_HOLDS) = 0;
    switch (m->action) {
    case QUORUM_ALL_WRITE:
        check_window(m);
        *quorum_all_cell(m, KIND_RECORD, m->rank, parity) = CONTENT_WRITING(m->rank);
        break;
    case QUORUM_ALL_PRIVATE:
        if (!m->config->mismatch)
            check_gathered(m);
        if (m->config->slices == 0)
            check_records(m, l->contributors, l->contributors_n);
        break;
    case QUORUM_ALL_SHARE:
        if (!m->config->mismatch)
            check_gathered(m);
        check_records(m, l->present, l->present_n);
        break;
    case QUORUM_ALL_REDUCE: begin_slice(m); break;
    case QUORUM_ALL_DELIVER: check_delivered(m); break;
    case QUORUM_ALL_MISMATCH:
        if (!m->config->mismatch)
            quorum_all_violate(m, "mismatch", "reported although all ranks agree");
        break;
    case QUORUM_ALL_PEER: check_peer(m); break;
    default: break;
    }
}

void quorum_all_check_end(struct quorum_all_memory *m, enum quorum_all_action action) {
    const struct quorum_all_local *l = &m->local;
    switch (action) {
    case QUORUM_ALL_WRITE:
        *quorum_all_cell(m, KIND_RECORD, m->rank, (int)(l->t & 1)) = (uint16_t)(l->t + 1);
        for (int s = 0; s < m->config->slices; s++)
            *quorum_all_cell(m, KIND_ARRAY, m->rank, s) = CONTENT_INPUT(l->t);
        break;
    case QUORUM_ALL_PRIVATE:
        if (m->config->slices == 0)
            check_records(m, l->contributors, l->contributors_n);
        break;
    case QUORUM_ALL_SHARE: check_records(m, l->present, l->present_n); break;
    case QUORUM_ALL_REDUCE: end_slice(m); break;
    case QUORUM_ALL_DELIVER: check_delivered(m); break;
    default: break;
    }
}

void quorum_all_check_terminal(struct quorum_all_memory *m) {
    int failed = 0;
    for (int r = 0; r < m->config->ranks; r++)
        failed += over_of(m, r) == FAILED;
    if (m->config->mismatch && !failed && m->config->deaths == 0)
        quorum_all_violate(m, "mismatch", "the ranks disagreed and none was told");
}
