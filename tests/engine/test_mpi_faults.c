/* What goes wrong over messages: ranks that fail or die, that pass other options or cannot make
 * their handles, that do not come in time. Everybody gets an error that names it, and nobody hangs.
 */
#include "check.h"
#include "contribution.h"
#include "engine/handle.h"
#include "fates.h"
#include "transport_sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1000 };

/* ---- lost while the others call -------------------------------------------------------------- */

static const char *const how_name[] = {"fails", "fails in a call", "dies, and that is known",
                                       "dies"};

static void be_lost(rank *me, wagma_handle *h, double *x) {
    fates *f = me->shared;
    contribute(WAGMA_F64, x, me->rank, wagma_version(h), COUNT);
    if (f->how == FAILS_IN_CALL)
        EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    while (atomic_load(&f->ready) < f->size - 1)
        sleep_ms(1);
    atomic_store(&f->when, seconds());
    if (f->how == DIES_KNOWN || f->how == DIES_UNKNOWN)
        sim_kill(me->sim, me->rank, f->how == DIES_KNOWN);
    wagma_free(h); /* unclosed: fails */
}

/* All call some versions; then the last rank is lost, and the others go on until they cannot. */
static void lose_one(rank *me) {
    fates *f = me->shared;
    double *x = malloc(COUNT * sizeof *x);
    wagma_outcome o;
    contribute(WAGMA_F64, x, me->rank, -1, COUNT);
    wagma_handle *h = rank_join(me, x);
    int status = WAGMA_OK;
    have_patience(h, PATIENCE_SECONDS);
    for (int64_t t = 0; t < 5 && status == WAGMA_OK; t++) {
        contribute(WAGMA_F64, x, me->rank, wagma_version(h), COUNT);
        status = wagma_allreduce(h, x, 1, &o);
        EXPECT(status == WAGMA_OK, "rank %d: %s", me->rank, wagma_last_error());
        expect_result(me, x, &o);
    }
    if (me->rank == me->size - 1) {
        be_lost(me, h, x);
        free(x);
        return;
    }
    contribute(WAGMA_F64, x, me->rank, wagma_version(h), COUNT);
    if (f->posted)
        status = wagma_post(h, x, 1, 0);
    atomic_fetch_add(&f->ready, 1);
    while (atomic_load(&f->when) == 0)
        sleep_ms(1);
    have_patience(h, f->patience);
    if (status == WAGMA_INPROGRESS)
        status = wagma_finish(h, x, &o);
    while (status == WAGMA_OK && wagma_version(h) < 1000) {
        contribute(WAGMA_F64, x, me->rank, wagma_version(h), COUNT);
        status = wagma_allreduce(h, x, 1, &o);
        if (status == WAGMA_OK)
            expect_result(me, x, &o);
    }
    note(f, me->rank, status);
    wagma_free(h);
    free(x);
}

static void test_lost_rank(void) {
    times noticing = {0};
    for (int how = 0; how < HOWS; how++)
        for (int variant = 0; variant < 6; variant++) {
            fates f = {.size = 3 + variant % 2,
                       .quorum = variant % 3,
                       .how = how,
                       .posted = variant % 2,
                       .patience = how == DIES_UNKNOWN ? 0.6 : 20};
            wagma_options o = options_of(f.size, 0, f.quorum, COUNT);
            o.timeout = f.patience;
            team_join(team_start(MESSAGES, &o, lose_one, &f));
            for (int r = 0; r < f.size - 1; r++) {
                if (how == DIES_UNKNOWN) { /* who is the first to give up, ends the others' wait */
                    EXPECT(f.status[r] == WAGMA_ESTALL || f.status[r] == WAGMA_EPEER,
                           "rank %d: %d %s", r, f.status[r], f.message[r]);
                } else {
                    EXPECT(f.status[r] == WAGMA_EPEER, "rank %d: %d %s", r, f.status[r],
                           f.message[r]);
                    times_add(&noticing, f.took[r]);
                }
            }
            CHECK(expectations_failed() == 0, "rank %d %s: quorum %d, posted %d", f.size - 1,
                  how_name[how], f.quorum, f.posted);
        }
    CHECK(times_are_soon(&noticing, 1, "noticing a rank that has failed"), "see above");
}

/* ---- ranks that fail because another one did ------------------------------------------------- */

enum chain { LEAVES, STAYS_AWAY, CHAINS };

/* The last rank is lost. Each rank below it hears of that from the one above alone, and fails. */
static void fail_in_turn(rank *me) {
    fates *f = me->shared;
    const int last = me->size - 1;
    double x[3] = {0};
    wagma_handle *h = rank_join(me, NULL);
    const double timeout = h->options.timeout;
    have_patience(h, PATIENCE_SECONDS);
    EXPECT(wagma_allreduce(h, x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
    if (me->rank < last) {
        for (int from = me->rank + 2; from < me->size; from++)
            sim_hold(me->sim, from, me->rank, 1);
        atomic_fetch_add(&f->ready, 1);
    }
    while (atomic_load(&f->ready) < last)
        sleep_ms(1);
    if (me->rank < last) {
        if (me->rank == last - 1)
            have_patience(h, timeout); /* less than those below */
        note(f, me->rank, wagma_allreduce(h, x, 1, NULL));
        atomic_fetch_add(&f->ready, 1);
    }
    while (f->how == STAYS_AWAY && atomic_load(&f->ready) < 2 * last)
        sleep_ms(1);
    wagma_free(h);
}

static void test_the_first_cause(void) {
    static const char *const words[] = {"failed or left without close()", "did not come in time"};
    for (int how = 0; how < CHAINS; how++)
        for (int size = 3; size <= (how == LEAVES ? 4 : 3); size++) {
            const int last = size - 1;
            char text[64];
            fates f = {.size = size, .how = how};
            wagma_options o = options_of(size, 0, 0, 3);
            o.timeout = how == STAYS_AWAY ? 1 : 20;
            team_join(team_start(MESSAGES, &o, fail_in_turn, &f));
            if (how == LEAVES)
                expect_fate(&f, last - 1, WAGMA_EPEER, "rank ");
            else
                expect_fate(&f, last - 1, WAGMA_ESTALL, "for rank ");
            for (int r = 0; r < last - 1; r++) {
                snprintf(text, sizeof text, "rank %d %s, so rank %d failed", last, words[how],
                         r + 1);
                expect_fate(&f, r, WAGMA_EPEER, text);
            }
            CHECK(expectations_failed() == 0, "%d ranks, way %d", size, how);
        }
}

/* ---- who is missing -------------------------------------------------------------------------- */

/* Waits until the ranks that are there have been warned that the last one is not, and lives. */
static int wait_until_warned(rank *me, wagma_handle *h, void *x, int status) {
    fates *f = me->shared;
    int warned = 0;
    for (const double end = seconds() + WATCHDOG_SECONDS / 2;
         status == WAGMA_INPROGRESS && atomic_load(&f->ready) < me->size - 1 && seconds() < end;) {
        status = wagma_wait(h, x, 0.02, NULL);
        if (!warned && team_warnings(me->team, me->rank,
                                     "for rank 2, which is alive and has not called yet") > 0) {
            warned = 1;
            atomic_fetch_add(&f->ready, 1);
        }
    }
    if (!warned) /* nobody waits for it in vain */
        atomic_fetch_add(&f->ready, 1);
    EXPECT(warned, "rank %d was warned: %s", me->rank, team_warning(me->team, me->rank));
    return status;
}

/* The last rank stays away in the middle of a handle's life; the others say for whom they wait. */
static void wait_for_one(rank *me) {
    fates *f = me->shared;
    double x[3] = {0};
    wagma_handle *h = rank_join(me, NULL);
    const double timeout = h->options.timeout;
    have_patience(h, PATIENCE_SECONDS);
    int status = wagma_allreduce(h, x, 1, NULL);
    EXPECT(status == WAGMA_OK, "%s", wagma_last_error());
    if (me->rank == me->size - 1) {
        while (atomic_load(&f->ready) < 2 * (me->size - 1))
            sleep_ms(1);
    } else {
        status = wagma_post(h, x, 1, f->how);
        status = wait_until_warned(me, h, x, status);
        have_patience(h, timeout);
        note(f, me->rank, status == WAGMA_INPROGRESS ? wagma_finish(h, x, NULL) : status);
        atomic_fetch_add(&f->ready, 1);
    }
    wagma_free(h);
}

static void test_stalls_name_the_missing(void) {
    for (int sync = 0; sync < 2; sync++) {
        fates f = {.how = sync};
        wagma_options o = options_of(3, 0, sync ? 1 : 0, 3);
        o.timeout = 0.5;
        o.stall_warning = 0.2;
        team *t = team_start(MESSAGES, &o, wait_for_one, &f);
        while (atomic_load(&f.ready) < 4)
            sleep_ms(1);
        for (int r = 0; r < 2; r++) {
            EXPECT(team_warnings(t, r, sync ? "(phase sync)" : "(phase quorum)") >= 1,
                   "rank %d was warned: %s", r, team_warning(t, r));
        }
        team_join(t);
        int stalls = 0;
        for (int r = 0; r < 2; r++) {
            stalls += f.status[r] == WAGMA_ESTALL;
            EXPECT(f.status[r] == WAGMA_ESTALL || f.status[r] == WAGMA_EPEER, "rank %d: %d", r,
                   f.status[r]);
            if (f.status[r] == WAGMA_ESTALL)
                expect_fate(&f, r, WAGMA_ESTALL, "for rank 2");
        }
        EXPECT(stalls > 0, "nobody has stalled: %s", f.message[0]);
        CHECK(expectations_failed() == 0, "sync %d", sync);
    }
}

/* The window: rank 0 runs ahead of one that computes. */
static void run_ahead(rank *me) {
    fates *f = me->shared;
    double x[3] = {0};
    wagma_handle *h = rank_join(me, NULL);
    int status = WAGMA_OK;
    if (me->rank == 1) {
        while (atomic_load(&f->ready) < 1)
            sleep_ms(1);
    } else {
        const double timeout = h->options.timeout;
        have_patience(h, PATIENCE_SECONDS);
        while (status == WAGMA_OK && wagma_version(h) < 100) {
            EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
            status = wait_until_said(h, x, "(phase window)");
        }
        have_patience(h, timeout);
        if (status == WAGMA_INPROGRESS)
            status = wagma_finish(h, x, NULL);
        const int64_t window = me->segment->options.window;
        EXPECT(wagma_version(h) <= (window < 2 ? 2 : window), "at %" PRId64, wagma_version(h));
        EXPECT(wagma_version(h) >= 1 + window / 2, "at %" PRId64, wagma_version(h));
        note(f, me->rank, status);
        atomic_fetch_add(&f->ready, 1);
    }
    wagma_free(h);
}

static void test_window(void) {
    for (int64_t window = 1; window <= 5; window++) {
        fates f = {0};
        wagma_options o = options_of(2, 2, 1, 3);
        o.timeout = 0.3;
        o.window = window;
        team_join(team_start(MESSAGES, &o, run_ahead, &f));
        expect_fate(&f, 0, WAGMA_ESTALL, "(phase window)");
        expect_fate(&f, 0, WAGMA_ESTALL, "for rank 1");
        CHECK(expectations_failed() == 0, "window %" PRId64, window);
    }
}

/* ---- looks between calls --------------------------------------------------------------------- */

/* Rank 1 posts, and fails; rank 0, without a thread, looks. */
static void look(rank *me) {
    fates *f = me->shared;
    double x[3] = {0};
    int32_t lost[RANKS_MAX];
    wagma_handle *h = rank_join(me, NULL);
    EXPECT(wagma_allreduce(h, x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
    if (me->rank == 1) {
        EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        wagma_free(h); /* unclosed: fails */
        atomic_store(&f->when, 1);
        return;
    }
    while (atomic_load(&f->when) == 0)
        sleep_ms(1);
    while (f->took[0] < 1000 && wagma_lost(h, lost) == 0)
        f->took[0]++;
    wagma_free(h);
}

static void test_one_look_sees_all_that_came(void) {
    double least = 1000;
    for (int team = 0; team < 2; team++) { /* in one of two, messages take no polls */
        wagma_options o = options_of(2, 0, 0, 3);
        o.progress = WAGMA_PROGRESS_MAIN;
        fates f = {.size = 2};
        team_join(team_start(MESSAGES, &o, look, &f));
        CHECK(expectations_failed() == 0, "team %d", team);
        least = f.took[0] < least ? f.took[0] : least;
    }
    CHECK(least == 0, "%g looks saw nothing", least);
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Rank 0 passes other options, or wrong ones. */
static void create(rank *me) {
    fates *f = me->shared;
    wagma_options o = me->segment->options;
    wagma_handle *h = NULL;
    if (me->rank == 0 && f->how == 0)
        o.count = 4;
    if (me->rank == 0 && f->how == 1)
        o.quorum = 77;
    if (me->rank == 0 && f->how == 2)
        o.progress = WAGMA_PROGRESS_YIELD; /* in which they may differ */
    if (me->rank == 0 && f->how == 3)
        o.progress_cpu = 1023;
    if (me->rank == 0 && f->how == 4)
        o.schedule_part = 1;
    if (me->rank == 0 && f->how == 5)
        o.count = INT64_MAX;
    if (me->rank == 0 && f->how == 6)
        o.count = PTRDIFF_MAX / 8 / (int64_t)sizeof(double) + 1;
    const int status =
        wagma_create_over(sim_transport(me->sim, me->rank), &o, NULL, 1, &me->hooks, &h);
    note(f, me->rank, status);
    EXPECT((h != NULL) == (status == WAGMA_OK), "status %d", status);
    if (status == WAGMA_OK)
        note(f, me->rank, wagma_close(h));
    wagma_free(h);
}

static void test_creation(void) {
    for (int how = 0; how < 7; how++) {
        wagma_options o = options_of(3, 0, 1, 3);
        o.timeout = 20;
        fates f = {.how = how};
        team_join(team_start(MESSAGES, &o, create, &f));
        for (int r = 0; r < 3; r++) {
            if (how == 0 || how == 4)
                expect_fate(&f, r, WAGMA_EMISMATCH, "different options");
            else if (how == 1 && r == 0)
                expect_fate(&f, r, WAGMA_EINVAL, "quorum is 77");
            else if (how == 1)
                expect_fate(&f, r, WAGMA_EPEER, "rank 0 failed");
            else if (how == 2)
                EXPECT(f.status[r] == WAGMA_OK, "rank %d: %s", r, f.message[r]);
            else if (how >= 5 && r == 0)
                expect_fate(&f, r, WAGMA_EINVAL,
                            how == 5 ? "count is 9223372036854775807"
                                     : "count is 144115188075855872 elements of float64: they "
                                       "would not fit");
            else if (r == 0)
                expect_fate(&f, r, WAGMA_EINVAL, "progress_cpu is 1023");
            else
                expect_fate(&f, r, WAGMA_EPEER, "rank 0 failed");
        }
        CHECK(expectations_failed() == 0, "way %d", how);
    }
}

/* Built from other sources than the engine: nothing else of it can be read. */
static void test_other_interface(void) {
    const wagma_options o = options_of(1, 0, 1, 3);
    const uint64_t others[] = {0, (uint64_t)(uintptr_t)&o, TRANSPORT_ABI + 8, ~TRANSPORT_ABI};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        wagma_transport t;
        memset(&t, 0xA5, sizeof t); /* to call or to read it would crash */
        t.abi = others[i];
        const wagma_transport before = t;
        wagma_handle *h = (wagma_handle *)&t;
        const int status = wagma_create_over(&t, &o, NULL, 1, NULL, &h);
        CHECK(status == WAGMA_EINVAL && h == NULL, "status %d", status);
        CHECK(memcmp(&t, &before, sizeof t) == 0, "it was written to");
        CHECK(strstr(wagma_last_error(), "build both from the same sources"), "%s",
              wagma_last_error());
    }
}

int main(void) {
    RUN(test_lost_rank);
    RUN(test_the_first_cause);
    RUN(test_stalls_name_the_missing);
    RUN(test_window);
    RUN(test_one_look_sees_all_that_came);
    RUN(test_creation);
    RUN(test_other_interface);
    return check_summary();
}
