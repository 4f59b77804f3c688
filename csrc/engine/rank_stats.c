/* See rank_stats.h. */
#include "engine/rank_stats.h"

#include <stdlib.h>

#include "base/error.h"
#include "engine/handle.h"

static rank_record *record_of(wagma_handle *h, int r, uint64_t syncs) {
    return h->calls->record(h, r, syncs);
}

int rank_stats_create(wagma_handle *h) {
    const int size = h->size;
    wagma_rank_stats *gathered = calloc((size_t)size, sizeof *gathered);
    for (int r = 0; gathered && r < size; r++)
        gathered[r].version = gathered[r].synced = -1;
    h->ranks.gathered = gathered;
    return gathered ? 0 : -1;
}

void rank_stats_free(wagma_handle *h) {
    free(h->ranks.gathered);
    h->ranks.gathered = NULL;
}

/* From the start of the previous call to `now`, but for what it waited: its own work in the call
 * counts, and so does what the rank computes while a call is pending. The clock is not read. */
static void add_compute(struct rank_stats *r, uint64_t now) {
    if (r->began != 0) {
        const uint64_t between = now - r->began;
        const uint64_t compute = between > r->waited ? between - r->waited : 0;
        r->compute += compute;
        r->recent[r->intervals++ % GRACE_SAMPLES] = compute;
    }
    r->began = now;
    r->waited = 0;
}

/* Return the median of the last GRACE_SAMPLES intervals. */
static uint64_t median(struct rank_stats *r) {
    if (r->intervals - r->sampled > GRACE_SAMPLES)
        r->sampled = r->intervals - GRACE_SAMPLES;
    for (; r->sampled < r->intervals; r->sampled++)
        grace_add(&r->samples, r->recent[r->sampled % GRACE_SAMPLES]);
    return r->samples.count ? grace_quantile(&r->samples, 0.5) : 0;
}

static void store(wagma_handle *h, uint64_t syncs, int departed) {
    struct rank_stats *r = &h->ranks;
    *record_of(h, h->rank, syncs) = (rank_record){
        .syncs = syncs,
        .arrived = r->began,
        .stats =
            {
                .version = h->version,
                .calls = h->stats.calls,
                .late = h->stats.late,
                .unmerged = h->stats.unmerged,
                .used = r->used,
                .staleness = r->staleness,
                .staleness_max = r->staleness_max,
                .waited = h->stats.waited,
                .compute = (double)r->compute * 1e-9,
                .compute_median = (double)median(r) * 1e-9,
                .departed = departed,
            },
    };
}

void rank_stats_call(wagma_handle *h) {
    add_compute(&h->ranks, h->call.began);
    if (h->call.sync)
        store(h, ++h->ranks.syncs, 0);
}

void rank_stats_depart(wagma_handle *h) {
    add_compute(&h->ranks, clock_now());
    store(h, h->ranks.syncs + 1, 1);
}

static void gather(wagma_handle *h) {
    const uint64_t syncs = h->ranks.syncs;
    uint64_t first = UINT64_MAX;
    for (int r = 0; r < h->size; r++) {
        const rank_record *record = record_of(h, r, syncs);
        if (record->syncs == syncs && !record->stats.departed && record->arrived < first)
            first = record->arrived;
    }
    for (int r = 0; r < h->size; r++) {
        const rank_record *record = record_of(h, r, syncs);
        wagma_rank_stats *gathered = &h->ranks.gathered[r];
        double behind = gathered->behind;
        if (record->syncs == syncs) { /* otherwise it departed before, and this is known */
            *gathered = record->stats;
            if (!gathered->departed)
                behind += (double)(record->arrived - first) * 1e-9;
        }
        gathered->behind = behind;
        gathered->synced = h->call.version;
    }
}

/* Note the age of this rank's contribution in the result, as the other members receive it. */
static void note_staleness(struct rank_stats *r, const wagma_outcome *o, int rank) {
    int64_t newest = -1, own = INT64_MAX;
    for (int i = 0; i < o->contributors_count; i++) {
        if (o->versions[i] > newest)
            newest = o->versions[i];
        if (o->contributors[i] == rank)
            own = o->versions[i];
    }
    if (own == INT64_MAX)
        return;
    const int64_t staleness = newest - own;
    r->used++;
    r->staleness += staleness;
    if (staleness > r->staleness_max)
        r->staleness_max = staleness;
}

void rank_stats_return(wagma_handle *h) {
    struct rank_stats *r = &h->ranks;
    r->waited = h->call.waited;
    if (h->outcome.late)
        note_staleness(r, &h->outcome, h->rank);
    else if (h->call.weight != 0)
        r->used++;
    if (h->call.sync)
        gather(h);
}

int wagma_gathered_stats(const wagma_handle *h, int rank, wagma_rank_stats *stats) {
    if (!h)
        return error_set(WAGMA_EINVAL, "handle is NULL");
    if (rank < 0 || rank >= h->size)
        return error_set(WAGMA_EINVAL, "rank=%d: must be in 0..%d", rank, h->size - 1);
    *stats = h->ranks.gathered[rank];
    return WAGMA_OK;
}
