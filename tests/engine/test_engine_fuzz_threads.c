/* Trials with a thread for each rank: they run freely, some slowly, some depart early, and the
 * oracle checks every call. In some tests one of them fails, between two calls or with one that it
 * has posted: who needs it gets WAGMA_EPEER within a second, and nobody hangs (I7). */
/* short run: tsan */
#include "check.h"
#include "oracle.h"

#include <inttypes.h>
#include <string.h>

/* Those in which somebody fails wait for that, not for the processor. */
enum { FREE = 80 / SLOWDOWN, FAILING = 24, JUMPS = 40 };

static trial g;
static int victim; /* -1: nobody fails */
static int64_t fails_at;
static int fails_inside; /* with a call that it has posted */
static _Atomic int joined;
static times noticing;           /* since a rank has failed, or since a later call began */
static _Atomic double failed_at; /* seconds(), when the last one did; 0: nobody has */

/* Who fails while others join ends their creation, which is another test's matter. */
static void fail(wagma_handle *h) {
    while (atomic_load(&joined) < g.options.size)
        sleep_ms(0.1);
    atomic_store(&failed_at, seconds());
    wagma_fail(h);
}

static int is_victim(const player *p, int64_t t, int inside) {
    return p->rank == victim && t >= fails_at && fails_inside == inside;
}

/* A call by any of the ways, up to its end; a victim may end it. */
static int call(player *p, wagma_handle *h, wagma_outcome *o) {
    int status = player_contribute(p, h);
    if (status != WAGMA_OK)
        return status;
    const uint32_t how = is_victim(p, p->t, 1) ? 0 : draw(&p->random, 4);
    if (how <= 1)
        status = wagma_post(h, p->array, p->weight, p->sync);
    else if (how == 2)
        status = wagma_start(h, p->array, p->weight, p->sync, o);
    else if (p->sync)
        status = wagma_sync(h, p->array, p->weight, o);
    else
        status = wagma_allreduce(h, p->array, p->weight, o);
    if (status == WAGMA_INPROGRESS && is_victim(p, p->t, 1))
        fail(h);
    while (status == WAGMA_INPROGRESS) {
        const uint32_t next = draw(&p->random, 6);
        status = next == 0   ? wagma_wait(h, p->array, 1e-6 * draw(&p->random, 300), o)
                 : next == 1 ? wagma_finish(h, p->array, o)
                             : wagma_test(h, p->array, o);
    }
    return status;
}

/* Expects a call that began at `began` to end with a status that fits the failures. */
static void expect_end(const player *p, int status, double began) {
    const double now = seconds(), failed = atomic_load(&failed_at);
    if (p->rank == victim && status == WAGMA_ECLOSED)
        return;
    if (!HOLDS(p, status == WAGMA_EPEER && failed > 0, "status %d: %s", status, wagma_last_error()))
        return;
    HOLDS(p, strstr(wagma_last_error(), "failed or left"), "%s", wagma_last_error());
    times_add(&noticing, now - (began > failed ? began : failed));
}

static void run(rank *me) {
    player *p = &g.player[me->rank];
    wagma_handle *h = rank_join(me, p->x);
    me->random = (uint32_t)p->random;
    atomic_fetch_add(&joined, 1);
    const int slow = draw(&p->random, 4) == 0;
    while (h && wagma_version(h) < p->departs) {
        wagma_outcome o;
        jitter(me);
        if (slow && draw(&p->random, 2))
            sleep_ms(0.001 * draw(&p->random, 800));
        if (is_victim(p, wagma_version(h), 0)) {
            fail(h);
            break;
        }
        const double began = seconds();
        const int status = call(p, h, &o);
        if (status != WAGMA_OK) {
            expect_end(p, status, began);
            fail(h);
            break;
        }
        player_check(p, h, &o);
    }
    wagma_close(h);
    wagma_free(h);
}

static void play(uint64_t seed, enum trial_kind kind, int failing) {
    trial_begin(&g, seed, kind);
    g.options.timeout = failing ? 5 : 20;
    atomic_store(&joined, 0);
    atomic_store(&failed_at, 0);
    victim = failing ? (int)draw(&g.random, (uint32_t)g.options.size) : -1;
    fails_at = draw(&g.random, (uint32_t)g.versions);
    fails_inside = (int)draw(&g.random, 2);
    team *t = team_start(THREADS, &g.options, run, NULL);
    if (failing)
        team_join(t);
    else
        team_join_clean(t);
    trial_end(&g);
}

static void test_free_running(void) {
    for (uint64_t seed = 0; seed < FREE; seed++) {
        play(seed, TRIAL_THREADS, 0);
        CHECK(expectations_failed() == 0, "%s", g.name);
    }
}

/* Over messages ranks meet in the simulation only: the thread sanitizer needs few trials. */
static void fail_somebody(enum trial_kind kind, uint64_t trials) {
    const uint64_t fewer = messages_for_threads && SLOWDOWN > 4 ? 4 : 1;
    for (uint64_t seed = 0; seed < trials / fewer; seed++) {
        play(seed, kind, 1);
        CHECK(expectations_failed() == 0, "%s; rank %d failed at %" PRId64 " (%s a call)", g.name,
              victim, fails_at, fails_inside ? "inside" : "outside");
    }
}

static void test_somebody_fails(void) {
    fail_somebody(TRIAL_THREADS, FAILING);
    CHECK(times_are_soon(&noticing, 1, "noticing a rank that has failed"), "see above");
}

static void test_somebody_fails_while_others_jump(void) {
    fail_somebody(TRIAL_JUMPS, JUMPS);
    CHECK(times_are_soon(&noticing, 1, "noticing a rank that has failed"), "see above");
}

int main(void) {
    /* Arrays that change their memory; their owner writes at an address of its own, so that it is
     * the oracle that sees what ThreadSanitizer does not. */
    segment_remap_min = 1024;
    RUN(test_free_running);
    RUN(test_somebody_fails);
    RUN(test_somebody_fails_while_others_jump);
    return check_summary();
}
