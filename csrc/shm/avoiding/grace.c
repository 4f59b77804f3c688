/* See shm/avoiding/grace.h. */
#include "shm/avoiding/grace.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/starter.h"
#include "shm/avoiding/executor.h"

int grace_create(struct grace *g, const wagma_segment *s) {
    const size_t words = ((size_t)s->size + 63) / 64;
    g->automatic = s->options.grace < 0;
    g->fixed = g->automatic ? 0 : (uint64_t)(s->options.grace * 1e9);
    g->members = calloc((size_t)s->size, sizeof *g->members);
    g->times = calloc((size_t)s->size, sizeof *g->times);
    uint64_t *bits = calloc(words * GRACE_PENDING, sizeof *bits);
    for (size_t i = 0; i < GRACE_PENDING; i++)
        g->pending[i].awaited = bits ? bits + i * words : NULL;
    return g->members && g->times && bits ? 0 : -1;
}

void grace_destroy(struct grace *g) {
    free(g->members);
    free(g->times);
    free(g->pending[0].awaited);
}

uint64_t grace_value(const struct grace *g) {
    return g->automatic ? grace_auto(&g->spreads, &g->computes) : g->fixed;
}

static uint64_t newest(const wagma_segment *s, int r) {
    /* acquire: its arrival times; pairs with PC_PUBLISH of round.c */
    return round_version(atomic_load_explicit(segment_pub(s, r), memory_order_acquire));
}

static segment_atomic *arrival(const wagma_segment *s, int r, uint64_t t) {
    return segment_arrival(s, r, (int)(t % (uint64_t)s->slots));
}

void grace_arrive(const struct grace *g, wagma_segment *s, int rank, uint64_t t) {
    if (g->automatic || g->fixed != 0)
        /* release: a rank that reads it sees the publication before this one, and so that the cell
         * was reused; pairs with spread_of() */
        atomic_store_explicit(arrival(s, rank, t), clock_now(), memory_order_release);
}

/* The spread of a pending version into *spread. 1: known; 0: somebody is still to come; -1: never
 * to be known, because an arrival time was overwritten since, or a member departed. */
static int spread_of(struct grace *g, const wagma_segment *s, const struct wagma_handle *h,
                     const struct grace_pending *p, uint64_t *spread) {
    const int n =
        round_members_of(&avoiding_of(h)->context, p->t, (uint32_t)h->rank, 0, g->members);
    uint64_t first = UINT64_MAX, last = 0;
    for (int i = 0; i < n; i++) {
        if (!(p->awaited[i / 64] >> (i % 64) & 1))
            continue;
        if (newest(s, g->members[i]) < p->t)
            return 0;
        /* acquire: before the check that the cell was not reused */
        const uint64_t at =
            atomic_load_explicit(arrival(s, g->members[i], p->t), memory_order_acquire);
        if (newest(s, g->members[i]) + 1 >= p->t + (uint64_t)s->slots)
            return -1;
        /* relaxed: ordered by newest(). Its counter may have jumped over the version */
        if (atomic_load_explicit(segment_at(s, g->members[i]), memory_order_relaxed) >= p->t)
            return -1;
        if (at < first)
            first = at;
        if (at > last)
            last = at;
    }
    *spread = last - first;
    return 1;
}

void grace_call(struct grace *g, const struct wagma_handle *h) {
    if (!g->automatic)
        return;
    if (g->returned != 0)
        grace_add(&g->computes, h->call.began - g->returned);
    for (int i = 0; i < GRACE_PENDING; i++) {
        uint64_t spread;
        if (g->pending[i].t == 0)
            continue;
        const int known = spread_of(g, handle_segment(h), h, &g->pending[i], &spread);
        if (known > 0)
            grace_add(&g->spreads, spread);
        if (known != 0)
            g->pending[i].t = 0;
    }
}

static int compare_times(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

uint64_t grace_deadline(struct grace *g, const struct wagma_handle *h) {
    const wagma_segment *s = handle_segment(h);
    const struct round_local *l = &avoiding_of(h)->local;
    const uint64_t t = l->t, seed = avoiding_of(h)->context.topology.seed;
    uint64_t started = 0; /* "majority": arrival of the starter */
    int present = 0, drawn = -1;
    for (int i = 0; i < h->call.n; i++) {
        const int r = h->call.members[i];
        if (newest(s, r) != t)
            continue;
        /* relaxed: ordered by the acquire in newest() */
        g->times[present] = atomic_load_explicit(arrival(s, r, t), memory_order_relaxed);
        drawn = starter(seed, t, l->leader, drawn, r);
        if (drawn == r)
            started = g->times[present];
        present++;
    }
    if (h->quorum == WAGMA_QUORUM_MAJORITY)
        return started + grace_value(g);
    qsort(g->times, (size_t)present, sizeof *g->times, compare_times);
    const int quorum = h->quorum < present ? h->quorum : present;
    return g->times[quorum - 1] + grace_value(g);
}

void grace_return(struct grace *g, const wagma_segment *s, const struct wagma_handle *h) {
    if (!g->automatic)
        return;
    /* a posted call: what it computed meanwhile counts, so its own work does too */
    const struct avoiding_executor *e = h->state;
    g->returned = e->posted ? h->call.began + h->call.waited : clock_now() - e->computed;
    if (h->call.sync || h->call.n < 2)
        return;
    struct grace_pending *p = &g->pending[g->next_pending];
    g->next_pending = (g->next_pending + 1) % GRACE_PENDING;
    p->t = (uint64_t)h->call.version + 1;
    memset(p->awaited, 0, (((size_t)h->call.n + 63) / 64) * sizeof *p->awaited);
    for (int i = 0; i < h->call.n; i++) {
        uint64_t version = newest(s, h->call.members[i]);
        /* relaxed: a rank whose counter jumped is about to arrive, too */
        const uint64_t at =
            atomic_load_explicit(segment_at(s, h->call.members[i]), memory_order_relaxed);
        version = at > version ? at : version;
        if (version + 1 >= p->t && version != ROUND_DEPARTED_VERSION)
            p->awaited[i / 64] |= UINT64_C(1) << (i % 64);
    }
}
