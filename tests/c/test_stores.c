/* Which stores are taken, given how long both ways took (pure); and contributions that are written
 * by either. */
#include "check.h"
#include "executor_shm.h"
#include "stores.h"
#include "support.h"

enum { BYTES = 65536 };

/* What is chosen in each of n turns, when the two ways take so many ns: how many are streamed. */
static int run(struct stores *s, int n, uint64_t ordinary_ns, uint64_t streamed_ns) {
    int streamed = 0;
    for (int i = 0; i < n; i++) {
        const int way = stores_choose(s);
        stores_note(s, way, way ? streamed_ns : ordinary_ns, BYTES);
        streamed += way;
    }
    return streamed;
}

static void test_near_readers(void) {
    struct stores s = {0};
    const int streamed = run(&s, 32 * STORES_TURNS, 5000, 6000);
    CHECK(streamed == 32, "%d streamed: one in %d tries", streamed, STORES_TURNS);
    CHECK(!s.streamed, "ordinary ones are faster");
}

static void test_far_readers(void) {
    struct stores s = {0};
    run(&s, STORES_TURNS, 50000, 7000);
    CHECK(s.streamed, "as soon as both were tried");
    const int streamed = run(&s, 32 * STORES_TURNS, 50000, 7000);
    CHECK(streamed == 32 * (STORES_TURNS - 1), "%d streamed: one in %d is ordinary", streamed,
          STORES_TURNS);
}

/* The writer does not see what streaming stores cost its readers. */
static void test_a_small_gain_is_none(void) {
    struct stores s = {0};
    run(&s, 8 * STORES_TURNS, 11000, 7000);
    CHECK(!s.streamed, "less than twice as fast");
}

static void test_cores_that_move(void) {
    struct stores s = {0};
    run(&s, 4 * STORES_TURNS, 5000, 6000);
    CHECK(!s.streamed, "near");
    run(&s, STORES_TURNS, 50000, 6000);
    CHECK(s.streamed, "far, within %d turns", STORES_TURNS);
    run(&s, STORES_TURNS, 5000, 6000);
    CHECK(!s.streamed, "near again, after the next one that was tried");
}

/* A store during which the thread was off its core. */
static void test_an_interruption(void) {
    struct stores s = {0};
    run(&s, 4 * STORES_TURNS, 5000, 6000);
    stores_note(&s, 0, 4000000, BYTES);
    CHECK(!s.streamed, "one that took long");
    stores_note(&s, 1, 4000000, BYTES);
    CHECK(!s.streamed, "and one of the other kind");
    run(&s, 1, 5000, 6000);
    CHECK(s.cost[0] == 1 + 5000 * 1000 / BYTES, "forgotten at once: %lu", (unsigned long)s.cost[0]);
}

/* Of the first store of its kind nothing else is known: the next one mends it. */
static void test_an_interrupted_beginning(void) {
    struct stores s = {0};
    stores_note(&s, 0, 4000000, BYTES);
    run(&s, STORES_TURNS, 5000, 6000);
    CHECK(!s.streamed, "near");
    struct stores far = {0};
    run(&far, STORES_TURNS - 1, 50000, 7000);
    stores_note(&far, 1, 4000000, BYTES);
    CHECK(!far.streamed, "the only one that was streamed took long");
    run(&far, 2 * STORES_TURNS, 50000, 7000);
    CHECK(far.streamed, "the next one did not");
}

static void test_a_clock_that_stands_still(void) {
    struct stores s = {0};
    const int streamed = run(&s, 8 * STORES_TURNS, 0, 0);
    CHECK(!s.streamed && streamed == 8, "%d streamed", streamed);
}

/* Both ways are tried, whatever is faster here, and each contribution is whole. */
static void test_contributions_by_either(void) {
    enum { COUNT = 4096 };
    static double x[2][COUNT];
    const wagma_options options = options_of(2, 2, 1, COUNT);
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    for (int t = 0; t < 2 * STORES_TURNS; t++) {
        wagma_outcome o;
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < COUNT; i++)
                x[r][i] = COUNT * (2 * t + r) + i;
        EXPECT(wagma_allreduce(c.handle[0], x[0], 1, &o) == WAGMA_OK, "%s", wagma_last_error());
        const double others = t == 0 ? 0 : COUNT * (2 * t - 1); /* rank 1's of the version before */
        for (int i = 0; i < COUNT; i++)
            if (!EXPECT(x[0][i] == COUNT * 2 * t + i + others + (t == 0 ? 0 : i),
                        "version %d: %g at %d", t, x[0][i], i))
                break;
        EXPECT(wagma_allreduce(c.handle[1], x[1], 1, &o) == WAGMA_OK, "%s", wagma_last_error());
    }
    for (int r = 0; r < 2; r++) {
        const struct stores *s = &c.handle[r]->shm->stores;
        EXPECT(s->cost[0] > 0 && s->cost[1] > 0, "rank %d: %lu and %lu ps", r,
               (unsigned long)s->cost[0], (unsigned long)s->cost[1]);
    }
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    RUN(test_contributions_by_either);
    RUN(test_near_readers);
    RUN(test_far_readers);
    RUN(test_a_small_gain_is_none);
    RUN(test_cores_that_move);
    RUN(test_an_interruption);
    RUN(test_an_interrupted_beginning);
    RUN(test_a_clock_that_stands_still);
    return check_summary();
}
