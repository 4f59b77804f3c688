/* The progress thread by itself: how long it pauses, who wakes it, and how it shares a core. */
#define _GNU_SOURCE /* RUSAGE_THREAD */
#include "check.h"
#include "messages/progress.h"
#include "support.h"
#include "shm/wait.h"

#include <inttypes.h>
#include <sys/resource.h>

/* ---- pauses (pure) --------------------------------------------------------------------------- */

static void test_pauses(void) {
    const uint64_t ms = 1000000;
    CHECK(progress_pause(PROGRESS_MOVED, 0, ms) == 0, "something moves");
    CHECK(progress_pause(PROGRESS_MOVED, 1000 * ms, ms) == 0, "something moves again");
    CHECK(progress_pause(PROGRESS_IDLE, 0, ms) == ms, "nothing in flight");
    CHECK(progress_pause(PROGRESS_STILL, 0, ms) == 0, "in flight");
    uint64_t last = 0;
    for (uint64_t still = 0; still < 200 * ms; still += 10000) {
        const uint64_t pause = progress_pause(PROGRESS_STILL, still, ms);
        CHECK(pause >= last && pause <= ms, "%" PRIu64 " ns after %" PRIu64, pause, still);
        CHECK(64 * pause <= still, "%" PRIu64 " ns after %" PRIu64, pause, still);
        last = pause;
    }
    CHECK(last == ms, "in flight for long: %" PRIu64, last);
}

/* ---- who has the core ------------------------------------------------------------------------ */

static void test_turns(void) {
    const uint64_t long_ago = 1000000;
    struct progress_turns t = {0};
    sleep_ms(1); /* somebody else had the core */
    struct rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage) == 0 && usage.ru_nvcsw + usage.ru_nivcsw == 0)
        return; /* a kernel that does not count: it is always given away */
    CHECK(!progress_take_turns(&t, clock_now()), "gave the core away a second time");
    CHECK(progress_take_turns(&t, t.resumed), "kept the core after a short poll");
    t = (struct progress_turns){0};
    for (int attempt = 0; attempt < 100 && !progress_take_turns(&t, t.resumed + long_ago);)
        attempt++; /* whoever else needs the core has had it */
    CHECK(t.yields == 1, "kept the core, although nobody else had it");
    sleep_ms(1);
    sleep_ms(1); /* once more than by its own yield */
    CHECK(!progress_take_turns(&t, t.resumed + long_ago), "gave it away a second time");
    CHECK(t.yields == 0, "counts %d yields", t.yields);
}

/* ---- when the thread is woken ---------------------------------------------------------------- */

static enum progress_found find_nothing(void *polls, uint64_t *deadline) {
    (void)deadline;
    atomic_fetch_add((_Atomic int *)polls, 1);
    return PROGRESS_IDLE;
}

/* A thread that is not to be woken has so many ms to do it all the same, and one that is woken may
 * be without a core for some seconds. */
enum { ASLEEP_MS = 100, AWAKE_MS = 30000 };

static int polls_within(const _Atomic int *polls, int before, int ms) {
    for (const double end = seconds() + 1e-3 * ms; atomic_load(polls) == before && seconds() < end;)
        sleep_ms(1);
    return atomic_load(polls) != before;
}

/* Whether the thread polls in that time after the owner, back from a break, left like that. */
static int wakes(struct progress *p, _Atomic int *polls, enum progress_left left, int ms) {
    sleep_ms(2);
    progress_enter(p);
    const int before = atomic_load(polls);
    progress_leave(p, left);
    return polls_within(polls, before, ms);
}

static void test_who_wakes_the_thread(void) {
    _Atomic int polls = 0;
    wagma_options o = options_of(2, 2, 0, 7);
    struct progress p;
    o.progress = WAGMA_PROGRESS_SLEEP;
    o.progress_sleep = 60; /* it wakes up if it is rung, and else not in this test */
    CHECK(progress_create(&p, &o, find_nothing, &polls) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(progress_start(&p, -1) == WAGMA_OK, "%s", wagma_last_error());
    while (atomic_load(&polls) == 0)
        sleep_ms(1);
    sleep_ms(20);
    CHECK(!wakes(&p, &polls, PROGRESS_NOTHING_LEFT, ASLEEP_MS), "with nothing left");
    CHECK(wakes(&p, &polls, PROGRESS_WORK_LEFT, AWAKE_MS), "with work left, after a break");
    CHECK(!wakes(&p, &polls, PROGRESS_BACK_AT_ONCE, ASLEEP_MS), "by one that is coming back");
    CHECK(wakes(&p, &polls, PROGRESS_WORK_LEFT, AWAKE_MS), "in two parts");
    int calls, woken = 0;
    for (int attempt = 0; attempt < 100; attempt++) {
        sleep_ms(20);
        const int before = atomic_load(&polls);
        progress_enter(&p);
        progress_leave(&p, PROGRESS_NOTHING_LEFT);
        for (calls = 0; calls < 1000; calls++) {
            progress_enter(&p);
            progress_leave(&p, PROGRESS_WORK_LEFT);
            if (p.away > 100000) /* this thread was off its core */
                break;
        }
        sleep_ms(2);
        woken = atomic_load(&polls) != before;
        if (calls == 1000)
            break;
    }
    CHECK(calls == 1000 && !woken, "after %d calls without a break", calls);
    const int before = atomic_load(&polls);
    for (int i = 0; i < 2; i++) {
        progress_enter(&p);
        progress_leave(&p, i == 0 ? PROGRESS_NOTHING_LEFT : PROGRESS_POSTED);
    }
    CHECK(polls_within(&polls, before, AWAKE_MS), "with a call posted, without a break");
    progress_destroy(&p);
}

static enum progress_found find_more(void *polls, uint64_t *deadline) {
    (void)find_nothing(polls, deadline);
    return PROGRESS_MOVED;
}

/* An owner that looks every few milliseconds has been away since its last call all the same. */
static void test_a_look_is_no_call(void) {
    enum { LOOKS = 5 };
    _Atomic int polls = 0;
    wagma_options o = options_of(2, 2, 0, 7);
    struct progress p;
    o.progress = WAGMA_PROGRESS_MAIN;
    CHECK(progress_create(&p, &o, find_more, &polls) == WAGMA_OK, "%s", wagma_last_error());
    progress_enter(&p);
    progress_leave(&p, PROGRESS_NOTHING_LEFT);
    const uint64_t left = clock_now();
    for (int i = 0; i < LOOKS; i++) {
        sleep_ms(4);
        progress_peek(&p);
    }
    const uint64_t least = clock_now() - left;
    progress_enter(&p);
    CHECK(p.away >= least, "away for %" PRIu64 " ns, not %" PRIu64, p.away, least);
    progress_leave(&p, PROGRESS_NOTHING_LEFT);
    CHECK(polls == LOOKS, "%d polls", polls);
    progress_end(&p);
    progress_peek(&p);
    CHECK(polls == LOOKS, "it polls after its end");
    progress_destroy(&p);
}

int main(void) {
    RUN(test_pauses);
    RUN(test_turns);
    RUN(test_who_wakes_the_thread);
    RUN(test_a_look_is_no_call);
    return check_summary();
}
