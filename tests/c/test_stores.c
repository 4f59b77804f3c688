/* Which stores are taken, given how long both ways took (pure). */
#include "check.h"
#include "stores.h"

enum { BYTES = 65536 };

/* What is chosen in each of n turns, when the two ways take so many ns: how many go past. */
static int run(struct stores *s, int n, uint64_t kept_ns, uint64_t past_ns) {
    int past = 0;
    for (int i = 0; i < n; i++) {
        const int way = stores_choose(s);
        stores_note(s, way, way ? past_ns : kept_ns, BYTES);
        past += way;
    }
    return past;
}

static void test_near_readers(void) {
    struct stores s = {0};
    const int past = run(&s, 32 * STORES_TURNS, 5000, 6000);
    CHECK(past == 32, "%d past the caches: one in %d tries", past, STORES_TURNS);
    CHECK(!s.past, "kept is faster");
}

static void test_far_readers(void) {
    struct stores s = {0};
    run(&s, STORES_TURNS, 50000, 7000);
    CHECK(s.past, "as soon as both were tried");
    const int past = run(&s, 32 * STORES_TURNS, 50000, 7000);
    CHECK(past == 32 * (STORES_TURNS - 1), "%d past the caches: one in %d is kept", past,
          STORES_TURNS);
}

/* The writer does not see what going past costs its readers. */
static void test_a_small_gain_is_none(void) {
    struct stores s = {0};
    run(&s, 8 * STORES_TURNS, 11000, 7000);
    CHECK(!s.past, "less than twice as fast");
}

static void test_cores_that_move(void) {
    struct stores s = {0};
    run(&s, 4 * STORES_TURNS, 5000, 6000);
    CHECK(!s.past, "near");
    run(&s, STORES_TURNS, 50000, 6000);
    CHECK(s.past, "far, within %d turns", STORES_TURNS);
    run(&s, STORES_TURNS, 5000, 6000);
    CHECK(!s.past, "near again, after the next one that was tried");
}

/* A store during which the thread was off its core. */
static void test_an_interruption(void) {
    struct stores s = {0};
    run(&s, 4 * STORES_TURNS, 5000, 6000);
    stores_note(&s, 0, 4000000, BYTES);
    CHECK(!s.past, "one that took long");
    stores_note(&s, 1, 4000000, BYTES);
    CHECK(!s.past, "and one of the other kind");
    run(&s, 1, 5000, 6000);
    CHECK(s.cost[0] == 1 + 5000 * 1000 / BYTES, "forgotten at once: %lu", (long)s.cost[0]);
}

static void test_a_clock_that_stands_still(void) {
    struct stores s = {0};
    const int past = run(&s, 8 * STORES_TURNS, 0, 0);
    CHECK(!s.past && past == 8, "%d past the caches", past);
}

int main(void) {
    RUN(test_near_readers);
    RUN(test_far_readers);
    RUN(test_a_small_gain_is_none);
    RUN(test_cores_that_move);
    RUN(test_an_interruption);
    RUN(test_a_clock_that_stands_still);
    return check_summary();
}
