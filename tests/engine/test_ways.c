/* Which stores are taken, given how long both ways took (pure); and contributions that are written
 * by either. */
#include "check.h"
#include "shm/avoiding/executor.h"
#include "shm/ways.h"
#include "support.h"

enum { BYTES = 65536 };

/* What is chosen in each of n turns, when the two ways take so many ns: how many are streamed. */
static int run(struct ways *s, int n, uint64_t ordinary_ns, uint64_t streamed_ns) {
    int streamed = 0;
    for (int i = 0; i < n; i++) {
        const int way = ways_choose(s);
        ways_note(s, way, way ? streamed_ns : ordinary_ns, BYTES, WAYS_OF_STORES);
        streamed += way;
    }
    return streamed;
}

static void test_near_readers(void) {
    struct ways s = {0};
    const int streamed = run(&s, 32 * WAYS_TURNS, 5000, 6000);
    CHECK(streamed == 32, "%d streamed: one in %d tries", streamed, WAYS_TURNS);
    CHECK(!s.second, "ordinary ones are faster");
}

static void test_far_readers(void) {
    struct ways s = {0};
    run(&s, WAYS_TURNS, 50000, 7000);
    CHECK(s.second, "as soon as both were tried");
    const int streamed = run(&s, 32 * WAYS_TURNS, 50000, 7000);
    CHECK(streamed == 32 * (WAYS_TURNS - 1), "%d streamed: one in %d is ordinary", streamed,
          WAYS_TURNS);
}

/* The writer does not see what streaming stores cost its readers. */
static void test_a_small_gain_is_none(void) {
    struct ways s = {0};
    run(&s, 8 * WAYS_TURNS, 11000, 7000);
    CHECK(!s.second, "less than twice as fast");
}

static void test_cores_that_move(void) {
    struct ways s = {0};
    run(&s, 4 * WAYS_TURNS, 5000, 6000);
    CHECK(!s.second, "near");
    run(&s, WAYS_TURNS, 50000, 6000);
    CHECK(s.second, "far, within %d turns", WAYS_TURNS);
    run(&s, WAYS_TURNS, 5000, 6000);
    CHECK(!s.second, "near again, after the next one that was tried");
}

/* A store during which the thread was off its core. */
static void test_an_interruption(void) {
    struct ways s = {0};
    run(&s, 4 * WAYS_TURNS, 5000, 6000);
    ways_note(&s, 0, 4000000, BYTES, WAYS_OF_STORES);
    CHECK(!s.second, "one that took long");
    ways_note(&s, 1, 4000000, BYTES, WAYS_OF_STORES);
    CHECK(!s.second, "and one of the other kind");
    run(&s, 1, 5000, 6000);
    CHECK(s.cost[0] == 1 + 5000 * 1000 / BYTES, "forgotten at once: %lu", (unsigned long)s.cost[0]);
}

/* An interrupted first store is the only measurement of its kind: the next store corrects it. */
static void test_an_interrupted_beginning(void) {
    struct ways s = {0};
    ways_note(&s, 0, 4000000, BYTES, WAYS_OF_STORES);
    run(&s, WAYS_TURNS, 5000, 6000);
    CHECK(!s.second, "near");
    struct ways far = {0};
    run(&far, WAYS_TURNS - 1, 50000, 7000);
    ways_note(&far, 1, 4000000, BYTES, WAYS_OF_STORES);
    CHECK(!far.second, "the only one that was streamed took long");
    run(&far, 2 * WAYS_TURNS, 50000, 7000);
    CHECK(far.second, "the next one did not");
}

static void test_a_clock_that_stands_still(void) {
    struct ways s = {0};
    const int streamed = run(&s, 8 * WAYS_TURNS, 0, 0);
    CHECK(!s.second && streamed == 8, "%d streamed", streamed);
}

/* Both ways are tried, whatever is faster here, and each contribution is whole. */
static void test_contributions_by_either(void) {
    enum { COUNT = 4096 };
    static double x[2][COUNT];
    const wagma_options options = options_of(2, 2, 1, COUNT);
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    for (int t = 0; t < 2 * WAYS_TURNS; t++) {
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
        const struct ways *s = &avoiding_of(c.handle[r])->stores;
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
