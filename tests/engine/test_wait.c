/* Waiting and ringing. */
#include "check.h"
#include "expect.h"
#include "shm/wait.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static wagma_segment *make_segment(int size) {
    wagma_options o;
    wagma_segment *s;
    wagma_options_init(&o);
    o.size = size;
    o.count = 1;
    if (wagma_segment_create(&o, NULL, &s) != WAGMA_OK)
        printf("  %s\n", wagma_last_error());
    return s;
}

static uint32_t asleep(const wagma_segment *s, int rank) {
    return atomic_load(&segment_presence_of(s, rank)->asleep);
}

static uint32_t bell(const wagma_segment *s, int rank) {
    return atomic_load(&segment_presence_of(s, rank)->bell);
}

/* Pauses until the rank would sleep next. */
static void pause_until_armed(wait_state *w, wagma_segment *s, int rank) {
    wait_begin(w, s, rank);
    while (!w->armed)
        wait_pause(w, 0);
}

static void test_no_pause(void) {
    wagma_segment *s = make_segment(1);
    wait_state w = {0};
    wait_begin(&w, s, 0);
    CHECK(wait_end(&w) == 0, "waited without a pause");
    wagma_segment_close(s);
}

static void test_ring_reaches_sleepers_only(void) {
    wagma_segment *s = make_segment(4);
    wait_state w[3] = {{0}, {0}, {0}};
    for (int r = 0; r < 3; r++)
        pause_until_armed(&w[r], s, r);
    for (int r = 0; r < 4; r++)
        CHECK(asleep(s, r) == (r < 3), "rank %d: %u", r, asleep(s, r));
    wait_ring(s, (const int32_t[]){0, 1, 3}, 3, 1);
    CHECK(bell(s, 0) == 1 && asleep(s, 0) == 0, "a sleeping member was not rung");
    CHECK(bell(s, 1) == 0 && asleep(s, 1) == 1, "rang itself");
    CHECK(bell(s, 2) == 0 && asleep(s, 2) == 1, "rang one that is no member");
    CHECK(bell(s, 3) == 0, "rang one that was awake");
    wait_ring(s, (const int32_t[]){0}, 1, -1);
    CHECK(bell(s, 0) == 1, "rang twice");
    wait_ring(s, NULL, 0, -1);
    CHECK(bell(s, 0) == 1 && bell(s, 1) == 1 && bell(s, 2) == 1, "all sleepers");
    uint64_t before = clock_now();
    while (wait_pause(&w[1], 0) == WAIT_HEARTBEAT)
        ; /* then it does not sleep: the bell has changed since it was read */
    CHECK(asleep(s, 1) == 1, "armed again");
    for (int r = 0; r < 3; r++)
        CHECK(wait_end(&w[r]) > 0 && asleep(s, r) == 0, "rank %d", r);
    CHECK(clock_now() > before, "the clock stands still");
    wagma_segment_close(s);
}

/* Longer than a thread may be without a core. */
static const uint64_t LONG_NS = UINT64_C(20000000000);

/* Lets the next sleep last so long, if nothing ends it. */
static void sleep_long(wait_state *w) {
    w->sleep = w->heartbeat = LONG_NS + clock_now();
}

/* The condition is evaluated between arming and sleeping, so no ring is lost: a sleep that a ring
 * should have prevented would be long here. */
static void test_ring_between_arming_and_sleep(void) {
    wagma_segment *s = make_segment(2);
    wait_state w = {0};
    for (int i = 0; i < 100; i++) {
        pause_until_armed(&w, s, 0);
        wait_ring(s, NULL, 0, 1);
        const uint64_t began = clock_now();
        sleep_long(&w);
        wait_pause(&w, 0);
        CHECK(clock_now() - began < LONG_NS, "slept through a ring");
        wait_end(&w);
    }
    wagma_segment_close(s);
}

/* ---- two threads hand a token over ----------------------------------------------------------- */

enum { HANDOVERS = 400 };
typedef struct token {
    wagma_segment *s;
    _Atomic int turn;
    int rank;
} token;

static token shared_token;

static void *hand_over(void *argument) {
    int rank = *(int *)argument;
    wait_state w = {0};
    for (int i = 0; i < HANDOVERS; i++) {
        wait_begin(&w, shared_token.s, rank);
        while (atomic_load(&shared_token.turn) % 2 != rank)
            wait_pause(&w, 0);
        wait_end(&w);
        if (i % 8 == 0)
            usleep(400); /* lets the other one fall asleep */
        atomic_fetch_add(&shared_token.turn, 1);
        wait_ring(shared_token.s, NULL, 0, rank);
    }
    return NULL;
}

static void test_hand_over(void) {
    pthread_t threads[2];
    int ranks[2] = {0, 1};
    shared_token = (token){.s = make_segment(2)};
    for (int r = 0; r < 2; r++)
        pthread_create(&threads[r], NULL, hand_over, &ranks[r]);
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    CHECK(atomic_load(&shared_token.turn) == 2 * HANDOVERS, "%d", atomic_load(&shared_token.turn));
    CHECK(bell(shared_token.s, 0) + bell(shared_token.s, 1) > 0, "nobody ever slept");
    wagma_segment_close(shared_token.s);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void test_heartbeat_and_idle(void) {
    wagma_segment *s = make_segment(1);
    wait_state w = {.spin = 1};
    struct timespec cpu[2];
    const uint64_t began = clock_now();
    uint64_t waited, last = began;
    times between = {0};
    int heartbeats = 0;
    atomic_store(&segment_presence_of(s, 0)->bell, 7); /* earlier rings do not keep it awake */
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu[0]);
    wait_begin(&w, s, 0);
    while (heartbeats < 9 && clock_now() - began < LONG_NS) {
        if (wait_pause(&w, 0) != WAIT_HEARTBEAT)
            continue;
        const uint64_t now = clock_now();
        times_add(&between, (double)(now - last));
        last = now;
        heartbeats++;
    }
    waited = wait_end(&w);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu[1]);
    CHECK(heartbeats == 9 && times_median(&between) < 2.0 * WAIT_HEARTBEAT_NS,
          "%d heartbeats, the median between two is %g ns", heartbeats, times_median(&between));
    CHECK(waited >= 9 * (uint64_t)WAIT_HEARTBEAT_NS && waited <= clock_now() - began, "%lu ns",
          (unsigned long)waited);
    double used =
        (double)(cpu[1].tv_sec - cpu[0].tv_sec) * 1e9 + (double)(cpu[1].tv_nsec - cpu[0].tv_nsec);
    CHECK(used < 0.3 * (double)waited, "computed for %.0f ms of %.0f", used / 1e6,
          (double)waited / 1e6);
    wagma_segment_close(s);
}

static void test_not_after(void) {
    wagma_segment *s = make_segment(1);
    wait_state w = {0};
    for (int is_over = 0; is_over <= 1; is_over++) {
        pause_until_armed(&w, s, 0);
        const uint64_t began = clock_now(), until = began + (is_over ? 0 : 5000000);
        do {
            sleep_long(&w);
            wait_pause(&w, until);
        } while (clock_now() < until);
        CHECK(clock_now() - began < LONG_NS, "slept past the limit");
        wait_end(&w);
    }
    uint64_t least = UINT64_MAX; /* another program may keep the core for longer */
    for (int attempt = 0; attempt < 10; attempt++) {
        const uint64_t until = clock_now() + 5000000;
        wait_begin(&w, s, 0);
        while (clock_now() < until)
            wait_pause(&w, until);
        const uint64_t over = clock_now() - until;
        least = over < least ? over : least;
        wait_end(&w);
    }
    CHECK(least < WAIT_HEARTBEAT_NS / 5, "%lu ns after the limit", (unsigned long)least);
    wagma_segment_close(s);
}

int main(void) {
    RUN(test_no_pause);
    RUN(test_ring_reaches_sleepers_only);
    RUN(test_ring_between_arming_and_sleep);
    RUN(test_hand_over);
    RUN(test_heartbeat_and_idle);
    RUN(test_not_after);
    return check_summary();
}
