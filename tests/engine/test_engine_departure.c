/* Ranks that close() while others go on, and ranks that disagree about sync(x). */
#include "check.h"
#include "contribution.h"
#include "support.h"

#include <inttypes.h>
#include <string.h>

/* ---- departure ------------------------------------------------------------------------------- */

typedef struct plan {
    int64_t departs[RANKS_MAX]; /* versions that the rank takes */
    _Atomic int closed[RANKS_MAX];
} plan;

static int lists(const wagma_outcome *o, int rank) {
    for (int k = 0; k < o->contributors_count; k++)
        if (o->contributors[k] == rank)
            return 1;
    return 0;
}

/* Who had closed before the call began is in no version that the call is fresh in; a sync version
 * has all the others. */
static void check_present(const rank *me, const plan *p, const wagma_outcome *o,
                          const int *closed_before) {
    const wagma_options *options = &me->segment->options;
    const int sync = options->sync_period && (o->version + 1) % options->sync_period == 0;
    for (int k = 0; k < o->contributors_count; k++) {
        const int q = o->contributors[k];
        EXPECT(o->versions[k] < p->departs[q], "rank %d has contributed version %" PRId64, q,
               o->versions[k]);
        EXPECT(!sync || o->versions[k] == o->version, "sync version %" PRId64 " holds %" PRId64,
               o->version, o->versions[k]);
        EXPECT(o->late || !closed_before[q], "rank %d is in version %" PRId64 ", after its close",
               q, o->version);
    }
    for (int q = 0; sync && q < me->size; q++)
        EXPECT(lists(o, q) == (p->departs[q] > o->version),
               "rank %d, which takes %" PRId64 " versions, in sync version %" PRId64 ": %d", q,
               p->departs[q], o->version, lists(o, q));
    EXPECT(sync ? !o->late : 1, "late for sync version %" PRId64, o->version);
    EXPECT(o->weight == o->contributors_count + o->late, "weight %g of %d", o->weight,
           o->contributors_count);
}

static void run_and_depart(rank *me) {
    plan *p = me->shared;
    double x[17];
    contribute(WAGMA_F64, x, me->rank, -1, 17);
    wagma_handle *h = rank_join(me, x);
    while (h && wagma_version(h) < p->departs[me->rank]) {
        wagma_outcome o;
        int closed[RANKS_MAX];
        contribute(WAGMA_F64, x, me->rank, wagma_version(h), 17);
        jitter(me);
        for (int q = 0; q < me->size; q++)
            closed[q] = atomic_load(&p->closed[q]);
        if (!EXPECT(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "rank %d: %s", me->rank,
                    wagma_last_error()))
            break;
        if (!o.merged) {
            EXPECT(o.late, "rank %d: version %" PRId64 " not merged", me->rank, o.version);
            o.weight = 0, o.late = 0; /* nothing to check but that x is unchanged */
            expect_result(me, x, &o);
            continue;
        }
        expect_result(me, x, &o);
        check_present(me, p, &o, closed);
    }
    wagma_close(h);
    atomic_store(&p->closed[me->rank], 1);
    wagma_free(h);
}

/* Nobody waits for a rank that has departed: not for the quorum, the window, or a sync version. */
static void test_departures(void) {
    for (int round = 0; round < 12; round++) { /* every kind with every size */
        const enum kind kind = THREADS + round % 3;
        const int size = 3 + round % 4, group = 2 + round % (size - 1);
        const int quorum = 1 + round % (group - 1 ? group - 1 : 1);
        plan *p = shared_memory(sizeof *p);
        wagma_options o = options_of(size, group, quorum, 17);
        o.sync_period = round % 2 ? 8 : 0;
        o.window = 1 + round % 5;
        for (int r = 0; r < size; r++) /* the last one is alone for a long time */
            p->departs[r] = (r + round) % size * 37 + (round / 3 % 2 ? 1 : 0);
        team_join_clean(team_start(kind, &o, run_and_depart, p));
        CHECK(expectations_failed() == 0, "P=%d S=%d quorum=%d, %s", size, group, quorum,
              kind_name[kind]);
    }
}

/* By hand: a departed rank has weight 0 from then on, and the quorum is capped. */
static void test_departed_has_no_weight(void) {
    wagma_options options = options_of(3, 3, 2, 1);
    double x = 1, y = 10;
    wagma_outcome o;
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    CHECK(wagma_start(c.handle[0], &x, 1, 0, &o) == WAGMA_INPROGRESS, "alone");
    CHECK(wagma_close(c.handle[2]) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_start(c.handle[1], &y, 1, 0, &o) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(y == 11 && o.weight == 2 && o.contributors_count == 2, "%g weight %g", y, o.weight);
    CHECK(wagma_finish(c.handle[0], &x, &o) == WAGMA_OK && x == 11, "%g", x);
    y = 4;
    CHECK(wagma_start(c.handle[1], &y, 1, 0, &o) == WAGMA_INPROGRESS, "quorum 2 alone");
    CHECK(wagma_close(c.handle[0]) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_finish(c.handle[1], &y, &o) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(y == 4 && !o.late && o.weight == 1 && o.contributors_count == 1 && lists(&o, 1),
          "%g weight %g", y, o.weight);
    for (int t = 2; t < 200; t++) { /* past every window, sync included */
        CHECK(wagma_start(c.handle[1], &y, 1, t % 2, &o) == WAGMA_OK && y == 4, "version %d", t);
    }
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* A rank closes with a result in its hold, and one closes while its contribution is pinned. */
static void test_departure_with_a_hold(void) {
    const wagma_options options = options_of(3, 3, 1, 1);
    double x = 1;
    wagma_outcome o;
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    for (int t = 0; t < 3; t++)
        CHECK(wagma_start(c.handle[0], &x, 1, 0, &o) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_close(c.handle[1]) == WAGMA_OK, "%s", wagma_last_error());
    x = 8;
    CHECK(wagma_start(c.handle[0], &x, 1, 0, &o) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(x == 8 && o.weight == 2 && !lists(&o, 1) && lists(&o, 2), "%g weight %g", x, o.weight);
    cast_close(&c); /* rank 2 still holds version 3 */
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- disagreement about sync ----------------------------------------------------------------- */

typedef struct dispute {
    int64_t at[RANKS_MAX]; /* version at which the rank calls sync(x); -1: never */
    int status[RANKS_MAX];
    int64_t version[RANKS_MAX]; /* that failed */
    char message[RANKS_MAX][512];
    _Atomic int joined;
} dispute;

static void run_disputed(rank *me) {
    dispute *d = me->shared;
    double x[3] = {0};
    wagma_handle *h = rank_join(me, NULL);
    int status = WAGMA_OK;
    atomic_fetch_add(&d->joined, 1);
    while (atomic_load(&d->joined) < me->size) /* one that fails early spoils others' creation */
        sleep_ms(0.1);
    for (int64_t t = 0; h && t < 40 && status == WAGMA_OK; t++) {
        jitter(me);
        d->version[me->rank] = t;
        status = t == d->at[me->rank] ? wagma_sync(h, x, 1, NULL) : wagma_allreduce(h, x, 1, NULL);
    }
    d->status[me->rank] = status;
    snprintf(d->message[me->rank], sizeof d->message[0], "%s", status ? wagma_last_error() : "");
    if (status == WAGMA_OK)
        wagma_close(h);
    wagma_free(h);
}

/* Somebody finds out, its message names both versions, and nobody hangs. */
static void check_dispute(enum kind kind, int size, int group, int64_t first, int64_t others,
                          int periodic) {
    dispute *d = shared_memory(sizeof *d);
    wagma_options o = options_of(size, group, 1, 3);
    o.window = 4;
    o.timeout = PATIENCE_SECONDS;
    o.sync_period = periodic;
    for (int r = 0; r < size; r++)
        d->at[r] = r == 0 ? first : others;
    team_join(team_start(kind, &o, run_disputed, d));
    int found = 0;
    for (int r = 0; r < size; r++) {
        EXPECT(d->status[r] == WAGMA_EMISMATCH || d->status[r] == WAGMA_EPEER, "rank %d: %d %s", r,
               d->status[r], d->message[r]);
        if (d->status[r] != WAGMA_EMISMATCH)
            continue;
        char version[32];
        snprintf(version, sizeof version, "version %" PRId64, d->version[r]);
        found++;
        EXPECT(strstr(d->message[r], version) && strstr(d->message[r], "sync(x)"), "%s",
               d->message[r]);
    }
    EXPECT(found > 0, "nobody has found the mismatch: %s", d->message[0]);
    CHECK(expectations_failed() == 0, "%s: P=%d S=%d sync(x) at %" PRId64 " and %" PRId64,
          kind_name[kind], size, group, first, others);
}

static void test_sync_at_other_versions(void) {
    for (int size = 2; size <= 4; size++)
        for (int group = 2; group <= size; group++)
            for (int kind = THREADS; kind <= MESSAGES; kind += MESSAGES - THREADS) {
                check_dispute((enum kind)kind, size, group, 3, 4, 0);
                check_dispute((enum kind)kind, size, group, 5, 3, 0);
                check_dispute((enum kind)kind, size, group, 3, -1, 0);
                check_dispute((enum kind)kind, size, group, 3, -1, 10);
            }
}

/* Plays the mismatch by hand, in the orders that matter; the message names both sides. */
static void test_mismatch_by_hand(void) {
    for (int first_syncs = 0; first_syncs <= 1; first_syncs++) {
        wagma_options options = options_of(2, 2, 1, 1);
        double x = 1, y = 1;
        cast c;
        CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
        if (first_syncs) { /* rank 0 waits in sync(x), rank 1 comes to the same version without */
            EXPECT(wagma_start(c.handle[0], &x, 1, 1, NULL) == WAGMA_INPROGRESS, "alone");
            EXPECT(wagma_allreduce(c.handle[1], &y, 1, NULL) == WAGMA_EMISMATCH, "no mismatch");
            EXPECT(strstr(wagma_last_error(), "rank 1 called allreduce(x) at version 0") &&
                       strstr(wagma_last_error(), "rank 0, now at version 0, called sync(x)"),
                   "%s", wagma_last_error());
            const int status = wagma_finish(c.handle[0], &x, NULL);
            EXPECT(status == WAGMA_EMISMATCH || status == WAGMA_EPEER, "%d %s", status,
                   wagma_last_error());
        } else { /* rank 0 has gone past version 0 when rank 1 wants to sync there */
            EXPECT(wagma_allreduce(c.handle[0], &x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
            EXPECT(wagma_sync(c.handle[1], &y, 1, NULL) == WAGMA_EMISMATCH, "no mismatch");
            EXPECT(strstr(wagma_last_error(), "rank 1 called sync(x) at version 0") &&
                       strstr(wagma_last_error(), "rank 0, now at version 0, called allreduce(x)"),
                   "%s", wagma_last_error());
        }
        EXPECT(wagma_allreduce(c.handle[1], &y, 1, NULL) == WAGMA_ECLOSED, "it goes on");
        cast_drop(&c);
    }
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    RUN(test_departures);
    RUN(test_departed_has_no_weight);
    RUN(test_departure_with_a_hold);
    RUN(test_sync_at_other_versions);
    RUN(test_mismatch_by_hand);
    return check_summary();
}
