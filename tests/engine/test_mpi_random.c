/* Handles over a transport whose messages overtake each other, up to 16 of them in the hands of one
 * thread that decides who posts, who looks and for how long: no rank has a thread of its own, so
 * that every order is one of polls. What a call gives is decoded from its sums (I1, I2), fresh and
 * late are what was posted before the pin (I2), sync versions have everybody (I4), every call ends,
 * and nothing is left at the end (I9). */
#include "check.h"
#include "contribution.h"
#include "support.h"
#include "transport_sim.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_MAX_ = 16, VERSIONS = 30, TRIALS = 600 / SLOWDOWN };

__attribute__((constructor)) static void over_messages(void) {
    messages_for_threads = 1;
}

typedef struct player {
    rank me; /* for expect_result() */
    double *x;
    int64_t t; /* of the call in progress; -1: none */
    int sync;
    int64_t highest; /* newest version that it has posted */
} player;

typedef struct game {
    char name[256];
    cast c;
    uint32_t random;
    int64_t jumps; /* versions that nobody was asked for */
    int64_t late, unmerged, ended;
    player player[SIZE_MAX_];
    /* by version and lowest member: what the first one to take it found */
    uint64_t digest[4 * VERSIONS][SIZE_MAX_];
} game;

static game *g;

static uint32_t draw(uint32_t n) {
    g->random = g->random * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)g->random * n >> 32);
}

static wagma_options draw_options(void) {
    const int size = 1 + (int)draw(SIZE_MAX_);
    wagma_options o = options_of(size, 1 + (int)draw((uint32_t)size), 1, 1 + draw(40));
    o.grouping = draw(4) == 0 ? WAGMA_GROUPING_PAIRS : (int)draw(2);
    if (o.grouping == WAGMA_GROUPING_PAIRS)
        o.group_size = 0;
    const int group = o.group_size ? o.group_size : size < 2 ? size : 2;
    o.late = draw(3) == 0 ? WAGMA_LATE_SKIP : WAGMA_LATE_STALE;
    o.missed = o.late == WAGMA_LATE_STALE && draw(3) == 0;
    o.activation = o.late == WAGMA_LATE_STALE && draw(3) == 0;
    o.quorum = draw(3) == 0   ? WAGMA_QUORUM_MAJORITY
               : draw(4) == 0 ? 0
                              : 1 + (int)draw((uint32_t)(o.activation ? size : group));
    o.seed = draw(1u << 30);
    o.window = draw(3) ? 1 + draw(6) : 0;
    o.sync_period = draw(2) ? 1 + draw(9) : 0;
    o.grace = draw(3) ? 0 : 20e-6;
    o.timeout = 30;
    o.progress = WAGMA_PROGRESS_MAIN;
    return o;
}

static void post(player *p) {
    const wagma_options *o = &p->me.segment->options;
    wagma_handle *h = g->c.handle[p->me.rank];
    p->t = wagma_version(h);
    p->highest = p->t;
    p->sync = o->sync_period > 0 && (p->t + 1) % o->sync_period == 0;
    contribute(WAGMA_F64, p->x, p->me.rank, p->t, o->count);
    EXPECT(wagma_post(h, p->x, 1, 0) == WAGMA_INPROGRESS, "rank %d: %s", p->me.rank,
           wagma_last_error());
}

/* All who take a version find the same (I1); its sums tell the numbers from the list. */
static void expect_agreement(const player *p, const wagma_outcome *o, int64_t taken) {
    const wagma_options *options = &p->me.segment->options;
    int32_t members[SIZE_MAX_] = {0};
    if (!p->sync)
        wagma_group_of(p->me.rank, options->size, options->group_size, options->grouping,
                       options->seed, taken, members);
    uint64_t digest = 1469598103934665603u;
    for (int i = 0; i < o->contributors_count; i++) {
        digest = (digest ^ (uint64_t)o->contributors[i]) * 1099511628211u;
        digest = (digest ^ (uint64_t)o->versions[i]) * 1099511628211u;
    }
    uint64_t *first = &g->digest[taken][members[0]];
    if (*first == 0)
        *first = digest;
    EXPECT(*first == digest, "rank %d took other contributions of version %" PRId64 " [%s]",
           p->me.rank, taken, g->name);
}

static void expect_list(const player *p, const wagma_outcome *o, int64_t taken) {
    int own = 0;
    for (int i = 0; i < o->contributors_count; i++) {
        const player *q = &g->player[o->contributors[i]];
        EXPECT(o->versions[i] <= q->highest && (o->versions[i] <= taken || o->late),
               "rank %d: %d@%" PRId64 " in version %" PRId64, p->me.rank, q->me.rank,
               o->versions[i], taken);
        own |= q == p && o->versions[i] == p->t;
    }
    EXPECT(own == !o->late || !o->merged, "rank %d version %" PRId64 ": late %d, own %d [%s]",
           p->me.rank, p->t, o->late, own, g->name);
    EXPECT(!p->sync || (!o->late && o->contributors_count == p->me.size),
           "rank %d: %d in sync version %" PRId64 " [%s]", p->me.rank, o->contributors_count, p->t,
           g->name);
}

static void check(player *p, wagma_outcome *o) {
    const wagma_options *options = &p->me.segment->options;
    const int64_t next = wagma_version(g->c.handle[p->me.rank]);
    const int64_t taken = o->late && options->missed ? next - 1 : p->t;
    const int ordered = options->late == WAGMA_LATE_SKIP;
    EXPECT(o->version == p->t && next == p->t + o->skipped + (ordered ? o->results_count : 1),
           "rank %d: version %" PRId64 " then %" PRId64 " [%s]", p->me.rank, o->version, next,
           g->name);
    /* late in a group of its own, which others have activated: x is the result all the same */
    const int alone = o->late && options->activation == WAGMA_ACTIVATION_WORLD &&
                      o->contributors_count == 1 && o->versions[0] == p->t;
    o->late &= !alone;
    g->late += o->late;
    g->unmerged += !o->merged;
    g->ended++;
    if (ordered) { /* x is the newest result; the list is its, and nobody merges */
        const int late = o->late;
        o->late = 0;
        expect_result(&p->me, p->x, o);
        expect_agreement(p, o, next - 1);
        o->late = late;
    } else {
        expect_result(&p->me, p->x, o);
        expect_list(p, o, taken);
        if (!alone && (!o->late || (options->missed && o->merged)))
            expect_agreement(p, o, taken);
    }
    p->t = -1;
}

/* One decision: somebody posts, or looks a few times. Those who are done have left. */
static void turn(player *p, int64_t until) {
    wagma_handle *h = g->c.handle[p->me.rank];
    wagma_outcome o;
    if (p->t < 0) {
        if (wagma_version(h) < until)
            post(p);
        return;
    }
    for (uint32_t looks = 1 + draw(8); looks > 0; looks--) {
        const int status = wagma_test(h, p->x, &o);
        if (status == WAGMA_INPROGRESS)
            continue;
        if (EXPECT(status == WAGMA_OK, "rank %d: %s [%s]", p->me.rank, wagma_last_error(), g->name))
            check(p, &o);
        else
            p->t = -1;
        return;
    }
}

static void *close_one(void *argument) { /* serves those who are not done yet */
    player *p = argument;
    EXPECT(wagma_close(g->c.handle[p->me.rank]) == WAGMA_OK, "rank %d: %s [%s]", p->me.rank,
           wagma_last_error(), g->name);
    return NULL;
}

static void play(uint32_t seed) {
    memset(g, 0, sizeof *g);
    g->random = seed * 2654435761u + 17;
    for (int i = 0; i < 4; i++)
        draw(2);
    const wagma_options options = draw_options();
    const void *initial[RANKS_MAX];
    pthread_t closing[SIZE_MAX_];
    int left = options.size;
    snprintf(g->name, sizeof g->name,
             "seed %u: P=%d S=%d grouping %d activation %d quorum %d late %d missed %d window %d "
             "sync %d grace %g",
             seed, options.size, options.group_size, options.grouping, options.activation,
             options.quorum, options.late, options.missed, (int)options.window,
             (int)options.sync_period, options.grace);
    for (int r = 0; r < options.size; r++) {
        player *p = &g->player[r];
        p->x = malloc((size_t)options.count * sizeof *p->x);
        contribute(WAGMA_F64, p->x, r, -1, options.count);
        initial[r] = p->x;
        p->t = p->highest = -1;
    }
    if (!cast_open(&g->c, &options, initial, NULL))
        return;
    for (int r = 0; r < options.size; r++)
        g->player[r].me = (rank){.rank = r, .size = options.size, .segment = g->c.segment};
    int done[SIZE_MAX_] = {0};
    const uint32_t slow = draw((uint32_t)options.size); /* comes to its turns less often */
    while (left > 0) {
        const uint32_t r = draw((uint32_t)options.size);
        player *p = &g->player[r];
        if (done[r] || (r == slow && p->t < 0 && draw(8)))
            continue;
        turn(p, VERSIONS);
        if (p->t < 0 && wagma_version(g->c.handle[r]) >= VERSIONS) {
            done[r] = 1;
            left--;
            pthread_create(&closing[r], NULL, close_one, p);
        }
    }
    for (int r = 0; r < options.size; r++)
        pthread_join(closing[r], NULL);
    cast_close(&g->c);
    for (int r = 0; r < options.size; r++)
        free(g->player[r].x);
}

static void test_random_orders(void) {
    int64_t late = 0, unmerged = 0, ended = 0;
    for (uint32_t seed = 0; seed < TRIALS; seed += SLOWDOWN_ALONE / SLOWDOWN) {
        play(seed);
        CHECK(expectations_failed() == 0, "%s", g->name);
        late += g->late;
        unmerged += g->unmerged;
        ended += g->ended;
    }
    printf("  %" PRId64 " calls, %" PRId64 " late, %" PRId64 " not merged\n", ended, late,
           unmerged);
    CHECK(late > ended / 50 && unmerged > 0, "too few were late to prove anything");
}

int main(void) {
    g = calloc(1, sizeof *g);
    RUN(test_random_orders);
    free(g);
    return check_summary();
}
