/* See exchange_crew.h. */
#include "exchange_crew.h"

#include <stdio.h>
#include <string.h>

#include "base/mix.h"

uint64_t crew_draw(crew *c, uint64_t below) {
    return mix(c->random++) % below;
}

int crew_open(crew *c, const wagma_options *options, size_t attached, uint64_t seed, int delay) {
    *c = (crew){.size = options->size, .random = mix(seed)};
    c->sim = sim_create(c->size, seed, (struct sim_options){.delay = delay});
    for (int r = 0; r < c->size; r++) {
        c->pools[r] = exchange_pool_create(sim_transport(c->sim, r), options, reduce_best(),
                                           &c->arenas[r], attached);
        if (!c->pools[r])
            return -1;
    }
    return 0;
}

void crew_close(crew *c) {
    for (int r = 0; r < c->size; r++) {
        exchange_pool_free(c->pools[r]);
        arena_free(&c->arenas[r]);
    }
    sim_free(c->sim);
}

static const char *receive(crew *c, int rank) {
    wagma_transport *t = sim_transport(c->sim, rank);
    const void *message;
    size_t bytes;
    int from, sync, explicit_sync;
    int64_t version;
    const int got = t->calls->poll_control(t, &from, &message, &bytes);
    if (got < 0)
        return wagma_last_error();
    if (got == 0)
        return NULL;
    if (*(const unsigned char *)message != EXCHANGE_HEADER)
        return "another kind of message";
    if (exchange_receive(c->pools[rank], from, message, bytes, &version, &sync, &explicit_sync))
        return wagma_last_error();
    return NULL;
}

static const char *poll(crew *c, part *parts, int versions, int rank, int *left) {
    exchange_end ends[2];
    const int n = exchange_poll(c->pools[rank], ends, 2);
    if (n < 0)
        return wagma_last_error();
    for (int k = 0; k < n; k++) {
        part *p = NULL;
        for (int v = 0; v < versions; v++)
            if (parts[v * c->size + rank].exchange == ends[k].exchange)
                p = &parts[v * c->size + rank];
        if (!p || p->ended || p->start.version != ends[k].version)
            return "an exchange ended that was none, or a second time";
        p->ended = 1;
        --*left;
    }
    return NULL;
}

static const char *begin(crew *c, part *parts, int versions, int rank) {
    part *p = &parts[crew_draw(c, (uint64_t)versions) * (uint64_t)c->size + (uint64_t)rank];
    if (p->begun || p->absent)
        return NULL;
    p->begun = 1;
    return exchange_begin(c->pools[rank], &p->start, &p->exchange) ? wagma_last_error() : NULL;
}

const char *crew_run(crew *c, part *parts, int versions) {
    static char text[128];
    int left = 0;
    for (int k = 0; k < versions * c->size; k++)
        left += !parts[k].absent;
    for (long turn = 0; left > 0; turn++) {
        const int rank = (int)crew_draw(c, (uint64_t)c->size);
        const uint64_t what = crew_draw(c, 8);
        const char *wrong = what == 0  ? begin(c, parts, versions, rank)
                            : what < 4 ? receive(c, rank)
                                       : poll(c, parts, versions, rank, &left);
        if (wrong)
            return wrong;
        if (turn > 4000000) {
            for (int k = 0; k < versions * c->size; k++)
                if (!parts[k].absent && !parts[k].ended) {
                    snprintf(text, sizeof text, "rank %d waits for %d in version %d", k % c->size,
                             parts[k].begun ? exchange_missing(parts[k].exchange) : -2,
                             k / c->size);
                    return text;
                }
        }
    }
    return NULL;
}

void crew_release(crew *c, part *parts, int versions) {
    for (int k = 0; k < versions * c->size; k++)
        if (parts[k].ended)
            exchange_release(c->pools[k % c->size], parts[k].exchange);
}

const char *crew_leftover(crew *c) {
    static char text[64];
    int64_t sent = 0, received = 0;
    if (sim_trouble(c->sim))
        return sim_trouble(c->sim);
    for (int r = 0; r < c->size; r++) {
        int64_t out, in;
        exchange_counts(c->pools[r], &out, &in);
        sent += out, received += in;
    }
    if (sim_pending(c->sim) == 0 && sent == received)
        return NULL;
    snprintf(text, sizeof text, "%lld messages are left, %lld headers of %lld came",
             (long long)sim_pending(c->sim), (long long)received, (long long)sent);
    return text;
}
