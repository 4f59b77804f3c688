/* What a call over messages costs and tells: waits that end in time, memory, counters of all ranks.
 */
/* short run: c */
#include "check.h"
#include "contribution.h"
#include "base/pages.h"
#include "engine/handle.h"
#include "support.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- waits that end in time ------------------------------------------------------------------ */

static _Atomic int let_go;

static void wait_in_vain(rank *me) {
    double x[3];
    wagma_outcome o;
    wagma_handle *h = rank_join(me, NULL);
    contribute(WAGMA_F64, x, me->rank, 0, 3);
    if (me->rank == 1) {
        while (!atomic_load(&let_go))
            sleep_ms(1);
        EXPECT(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "%s", wagma_last_error());
    } else {
        EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        for (int i = 0; i < 3; i++) {
            const double began = seconds();
            EXPECT(wagma_wait(h, x, 0.06, &o) == WAGMA_INPROGRESS, "%s", wagma_last_error());
            EXPECT(strstr(wagma_last_error(), "for rank 1, which"), "%s", wagma_last_error());
            EXPECT(seconds() - began >= 0.06, "after %g s", seconds() - began);
        }
        for (int i = 0; i < 3 && h->call.waited < 170000000; i++) /* one may have had no core */
            EXPECT(wagma_wait(h, x, 0.06, &o) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        EXPECT(wagma_test(h, x, &o) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        atomic_store(&let_go, 1);
        EXPECT(wagma_finish(h, x, &o) == WAGMA_OK, "%s", wagma_last_error());
        EXPECT(o.waited >= 0.17 && o.waited <= seconds(), "waited %g s", o.waited);
    }
    expect_result(me, x, &o);
    EXPECT(wagma_close(h) == WAGMA_OK, "%s", wagma_last_error());
    wagma_free(h);
}

static void test_waits_end_in_time(void) {
    wagma_options o = options_of(2, 0, 0, 3);
    o.timeout = 20;
    atomic_store(&let_go, 0);
    team_join_clean(team_start(MESSAGES, &o, wait_in_vain, NULL));
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { LARGE = 20000, WINDOW = 2 };

/* Contributions and results are used again; of those that are pinned there are few, since versions
 * in flight are few. */
static void use_memory(rank *me) {
    double *x = malloc(LARGE * sizeof *x);
    wagma_stats stats;
    wagma_outcome o;
    contribute(WAGMA_F64, x, me->rank, -1, LARGE);
    wagma_handle *h = rank_join(me, x);
    for (int64_t t = 0; t < 300 / SLOWDOWN; t++) {
        contribute(WAGMA_F64, x, me->rank, t, LARGE);
        jitter(me);
        EXPECT(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "%s", wagma_last_error());
    }
    wagma_get_stats(h, &stats);
    const int in_place = me->segment->options.quorum == me->size;
    /* blocks: contributions, and results of as many versions; each exchange has received some more
     */
    const int blocks = in_place ? 0 : (2 * WINDOW + 2) + 2 * (2 * WINDOW + 1);
    const int exchanges = 2 * (2 * WINDOW + 1);
    /* in huge pages: in one of them, 13 arrays find room */
    const int arrays = blocks + exchanges + 1, in_a_page = PAGES_HUGE / (LARGE * (int)sizeof *x);
    const double most = (arrays + in_a_page - 1) / in_a_page * (double)PAGES_HUGE;
    EXPECT((double)stats.segment_bytes <= most, "%" PRIu64 " bytes, %.0f at most",
           stats.segment_bytes, most);
    EXPECT(wagma_close(h) == WAGMA_OK, "%s", wagma_last_error());
    wagma_free(h);
    free(x);
}

static void test_memory(void) {
    for (int quorum = 0; quorum < 3; quorum++) {
        wagma_options o = options_of(3, 3, quorum, LARGE);
        o.timeout = 20;
        o.window = WINDOW;
        team_join_clean(team_start(MESSAGES, &o, use_memory, NULL));
        CHECK(expectations_failed() == 0, "quorum %d", quorum);
    }
}

/* ---- counters of all ranks ------------------------------------------------------------------- */

enum { PERIOD = 4, SYNCS = 4, SLOW_MS = 150 };

static wagma_rank_stats gathered[RANKS_MAX][RANKS_MAX];
static _Atomic int posted; /* sync versions, by all ranks but the last one */

/* The last rank is slow before each sync version, and calls it some time after the others; rank 0
 * departs after the second to last. */
static void gather(rank *me) {
    double x[3] = {0};
    const int departs = me->rank == 0;
    const int64_t versions = PERIOD * (SYNCS - departs);
    wagma_handle *h = rank_join(me, NULL);
    const int is_slow = me->rank == me->size - 1;
    int others = 0;
    for (int64_t t = 0; t < versions; t++) {
        const int syncs = (t + 1) % PERIOD == 0;
        others += syncs ? me->size - 1 - (t / PERIOD == SYNCS - 1) : 0;
        while (is_slow && syncs && atomic_load(&posted) < others)
            sleep_ms(1);
        if (is_slow && syncs)
            sleep_ms(SLOW_MS);
        EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        if (!is_slow && syncs)
            atomic_fetch_add(&posted, 1);
        EXPECT(wagma_finish(h, x, NULL) == WAGMA_OK, "%s", wagma_last_error());
    }
    EXPECT(wagma_close(h) == WAGMA_OK, "%s", wagma_last_error());
    for (int r = 0; r < me->size; r++)
        EXPECT(wagma_gathered_stats(h, r, &gathered[me->rank][r]) == WAGMA_OK, "%s",
               wagma_last_error());
    wagma_free(h);
}

static void test_counters_of_all(void) {
    for (int quorum = 0; quorum < 2; quorum++) {
        wagma_options o = options_of(4, 2, quorum, 3);
        o.timeout = 20;
        o.sync_period = PERIOD;
        atomic_store(&posted, 0);
        team_join_clean(team_start(MESSAGES, &o, gather, NULL));
        const wagma_rank_stats *all = gathered[1];
        for (int r = 2; r < 4; r++)
            CHECK(memcmp(gathered[r], all, 4 * sizeof *all) == 0, "rank %d knows other numbers", r);
        for (int r = 0; r < 4; r++) {
            const wagma_rank_stats *s = &all[r];
            const int64_t last = PERIOD * SYNCS - 1, calls = r ? last : PERIOD * (SYNCS - 1);
            CHECK(s->synced == last && s->calls == calls && s->departed == !r,
                  "rank %d: %" PRId64 " calls at %" PRId64 ", departed %d", r, s->calls, s->synced,
                  s->departed);
            CHECK(r == 3 || s->behind < all[3].behind - 1e-3 * SLOW_MS * (SYNCS - 1),
                  "rank %d is %g s behind, the slow %g", r, s->behind, all[3].behind);
        }
        CHECK(all[3].behind > 1e-3 * SLOW_MS * (SYNCS - 1) && all[3].behind < seconds(),
              "the slow rank is %g s behind", all[3].behind);
        CHECK(expectations_failed() == 0, "quorum %d", quorum);
    }
}

int main(void) {
    RUN(test_waits_end_in_time);
    RUN(test_memory);
    RUN(test_counters_of_all);
    return check_summary();
}
