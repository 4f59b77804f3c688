/* Questions about a state that the checks of the invariants ask. */
#ifndef EXPLORE_CHECK_H
#define EXPLORE_CHECK_H

#include "model.h"

/* A field of the rank that steps. */
static inline uint16_t *own(const struct round_memory *m, int field) {
    return cell(m, KIND_RANK, m->rank, field);
}

static inline int pub_version(const struct round_memory *m, int r) {
    const uint16_t pub = *cell(m, ROUND_PUB, r, 0);
    return pub == 0xFFFF ? MAX_PROGRAM + 1 : (int)round_version(decode(pub));
}

static inline int is_departed(const struct round_memory *m, int r) {
    return *cell(m, ROUND_PUB, r, 0) == 0xFFFF;
}

static inline int is_installed(const struct round_memory *m, int leader, int version) {
    return *cell(m, KIND_INSTALLED, leader, 0) >> version & 1;
}

/* How far rank q has come, by its calls and not by what it says: the version it is in, or the last
 * one it has gone past, whose results it does not look at any more. */
static inline int progress(const struct round_memory *m, int q) {
    const struct config *g = m->config;
    const int published = pub_version(m, q), t = rank_field(g, m->cells, q, R_t);
    const int past = rank_field(g, m->cells, q, R_VIEW) ? 0 : t - 1;
    return past > published ? past : published;
}

/* Has q no part in version t: departed, or its counter jumped over it? */
static inline int is_past(const struct round_memory *m, int q, int t) {
    const int jumped = pub_version(m, q) > t || *cell(m, ROUND_AT, q, 0) >= t ||
                       rank_field(m->config, m->cells, q, R_t) > t;
    return is_departed(m, q) || (m->config->forward && jumped);
}

#endif
