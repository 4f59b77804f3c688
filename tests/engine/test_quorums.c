/* Quorums that change from version to version: every version has the one that all ranks called it
 * with, and its result is the same on all; ranks that do not agree are told, all of them. */
/* short run: c tsan */
#include "protocol/activation.h"
#include "check.h"
#include "fates.h"
#include "support.h"
#include "transport_sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { VERSIONS = 3000 / SLOWDOWN, AT_MOST = 400, TRIALS = 24 / (SLOWDOWN > 4 ? 4 : SLOWDOWN) };

static struct {
    uint32_t seed;
    int other;                                    /* rank that does not agree; -1: all do */
    int64_t at;                                   /* from this version on */
    int once;                                     /* in this version alone */
    _Atomic uint64_t results[VERSIONS + AT_MOST]; /* who is in it, bit by bit; 0: not known */
    _Atomic int told;
} g;

/* Over messages a version takes longer. */
static int64_t versions(void) {
    return messages_for_threads ? VERSIONS / 6 : VERSIONS;
}

static int quorum_at(int size, int64_t version) {
    uint32_t x = (uint32_t)version * 2654435761u ^ g.seed;
    x ^= x >> 15;
    return 1 + (int)(x * 2246822519u >> 16) % size;
}

static int quorum_of(const rank *me, int64_t version) {
    const int quorum = quorum_at(me->size, version);
    const int differs = me->rank == g.other && (g.once ? version == g.at : version >= g.at);
    return differs ? 1 + quorum % me->size : quorum;
}

/* A result: element r is 1 where rank r is in it. */
static void check_result(const rank *me, int64_t version, const double *result) {
    uint64_t bits = 0, none = 0;
    int n = 0;
    for (int r = 0; r < me->size; r++) {
        EXPECT(result[r] == 0 || result[r] == 1, "version %" PRId64 ": %g of rank %d", version,
               result[r], r);
        bits |= (uint64_t)(result[r] != 0) << r;
        n += result[r] != 0;
    }
    if (!atomic_compare_exchange_strong(&g.results[version], &none, bits))
        EXPECT(none == bits, "version %" PRId64 ": %" PRIx64 " and %" PRIx64, version, none, bits);
    const int quorum = quorum_at(me->size, version);
    EXPECT(g.other >= 0 || n >= quorum, "version %" PRId64 ": %d of %d", version, n, quorum);
}

static int call(rank *me, wagma_handle *h) {
    double x[RANKS_MAX] = {0};
    const int64_t t = wagma_version(h);
    wagma_outcome o;
    x[me->rank] = 1;
    int status = wagma_set_quorum(h, quorum_of(me, t));
    const int pinned = status == WAGMA_OK ? wagma_pinned(h) : 0;
    if (status == WAGMA_OK)
        status = wagma_allreduce(h, x, 1, &o);
    if (status != WAGMA_OK)
        return status;
    EXPECT(!pinned || o.late, "version %" PRId64 " was pinned before, and this rank is in it", t);
    EXPECT(!o.late || x[me->rank] == 0 || o.results_count > 1, "late, and in the result");
    for (int i = 0; i < o.results_count; i++)
        check_result(me, t + i, o.results[i]);
    return WAGMA_OK;
}

static void agree(rank *me) {
    wagma_handle *h = rank_join(me, NULL);
    while (h && wagma_version(h) < versions()) {
        jitter(me);
        const int status = call(me, h);
        if (!EXPECT(status == WAGMA_OK, "rank %d: %s", me->rank, wagma_last_error()))
            break;
    }
    wagma_close(h);
    wagma_free(h);
}

/* Each goes on until it is told. */
static void disagree(rank *me) {
    wagma_handle *h = rank_join(me, NULL);
    int status = WAGMA_OK;
    while (h && status == WAGMA_OK && wagma_version(h) < AT_MOST) {
        jitter(me);
        status = call(me, h);
    }
    EXPECT(status == WAGMA_EQUORUM, "rank %d: %d %s", me->rank, status, wagma_last_error());
    int ranks[2] = {-1, -1}, quorums[2] = {0, 0};
    long long version = -1;
    const int found = sscanf(wagma_last_error(),
                             "rank %d called version %lld with quorum %d, and rank %d with quorum "
                             "%d:",
                             &ranks[0], &version, &quorums[0], &ranks[1], &quorums[1]);
    EXPECT(found == 5 && version >= g.at && quorums[0] != quorums[1] &&
               (ranks[0] == g.other) != (ranks[1] == g.other),
           "rank %d: %s", me->rank, wagma_last_error());
    atomic_fetch_add(&g.told, 1);
    wagma_free(h);
}

static wagma_options options_at(int size) {
    wagma_options o = options_of(size, size, 1, size);
    o.late = WAGMA_LATE_SKIP;
    o.window = 3;
    o.timeout = 20;
    return o;
}

static void start(uint32_t seed, int other) {
    memset(&g, 0, sizeof g);
    g.seed = seed;
    g.other = other;
}

static void test_all_agree(void) {
    for (int size = 2; size <= 4; size++) {
        const wagma_options o = options_at(size);
        start((uint32_t)size, -1);
        team_join_clean(team_start(THREADS, &o, agree, NULL));
        CHECK(expectations_failed() == 0, "%d ranks", size);
    }
}

static void test_one_does_not(void) {
    for (uint32_t trial = 0; trial < TRIALS; trial++) {
        const int size = 2 + (int)trial % 3;
        const wagma_options o = options_at(size);
        start(trial, (int)trial % size);
        g.at = trial % 7;
        team_join(team_start(THREADS, &o, disagree, NULL));
        CHECK(expectations_failed() == 0 && g.told == size, "trial %u: %d of %d told", trial,
              g.told, size);
    }
}

/* Three ranks: the coordinator finds that another rank has another quorum. It can no longer reach
 * the third, which learns of the dispute from a rank that has failed because of it. */
static void hear_from_another(rank *me) {
    fates *f = me->shared;
    const int finder = activation_coordinator(0, 0, NULL, me->size);
    const int last = (finder + 2) % me->size;
    double x[RANKS_MAX] = {0};
    wagma_handle *h = rank_join(me, NULL);
    if (me->rank == finder)
        sim_hold(me->sim, finder, last, 1);
    atomic_fetch_add(&f->ready, 1);
    while (atomic_load(&f->ready) < me->size + (me->rank == last ? 2 : 0))
        sleep_ms(1);
    EXPECT(wagma_set_quorum(h, me->rank == finder ? 2 : 3) == WAGMA_OK, "%s", wagma_last_error());
    note(f, me->rank, wagma_allreduce(h, x, 1, NULL));
    wagma_free(h);
    atomic_fetch_add(&f->ready, 1);
}

static void test_a_dispute_outruns_failures(void) {
    wagma_options o = options_at(3);
    fates f = {.size = 3};
    o.quorum = 2;
    team_join(team_start(MESSAGES, &o, hear_from_another, &f));
    for (int r = 0; r < f.size; r++)
        expect_fate(&f, r, WAGMA_EQUORUM, "called version 0 with quorum");
    CHECK(expectations_failed() == 0, "not told");
}

static void refuse(wagma_options o, int32_t quorum, const char *words) {
    cast c;
    if (!cast_open(&c, &o, NULL, NULL))
        return;
    EXPECT(wagma_set_quorum(c.handle[0], quorum) == WAGMA_EINVAL &&
               strstr(wagma_last_error(), words),
           "%d: %s", (int)quorum, wagma_last_error());
    EXPECT(wagma_set_quorum(c.handle[0], o.quorum) == WAGMA_OK || o.quorum < 1, "%s",
           wagma_last_error());
    cast_close(&c);
}

static void test_what_is_refused(void) {
    wagma_options o = options_at(3);
    refuse(o, 0, "1 to size (3)");
    refuse(o, 4, "1 to size (3)");
    o.late = WAGMA_LATE_STALE;
    refuse(o, 2, "late is");
    o = options_at(3);
    o.quorum = 3;
    refuse(o, 2, "make it with fewer ranks");
    o.quorum = WAGMA_QUORUM_MAJORITY;
    refuse(o, 2, "MAJORITY");
    o = options_at(3);
    o.group_size = 2;
    refuse(o, 2, "group_size is less");
    CHECK(expectations_failed() == 0, "not refused");
}

int main(void) {
    RUN(test_what_is_refused);
    RUN(test_all_agree);
    RUN(test_one_does_not);
    if (messages_for_threads)
        RUN(test_a_dispute_outruns_failures);
    return check_summary();
}
