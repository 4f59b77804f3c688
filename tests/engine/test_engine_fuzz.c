/* Trials in the hands of one thread: a few ranks start, post, test and wait in an order drawn at
 * random, one of them slower than the others, and some depart early. The oracle checks every call,
 * and at the end nothing is referenced any more. */
/* short run: c */
#include "check.h"
#include "oracle.h"

#include <inttypes.h>

enum { TRIALS = 200 / SLOWDOWN };

static trial g;
static cast c;
static int playing, pending[TRIAL_RANKS], gone[TRIAL_RANKS];

/* Begins a call, or goes on with the one that is pending. */
static int step(player *p, wagma_outcome *o) {
    wagma_handle *h = c.handle[p->rank];
    if (pending[p->rank])
        return draw(&g.random, 8) ? wagma_test(h, p->array, o)
                                  : wagma_wait(h, p->array, 1e-6 * draw(&g.random, 50), o);
    const int status = player_contribute(p, h);
    if (status != WAGMA_OK)
        return status;
    return draw(&g.random, 2) ? wagma_post(h, p->array, p->weight, p->sync)
                              : wagma_start(h, p->array, p->weight, p->sync, o);
}

static void depart(player *p) {
    HOLDS(p, wagma_close(c.handle[p->rank]) == WAGMA_OK, "%s", wagma_last_error());
    gone[p->rank] = 1;
    playing--;
}

/* 0: an error has ended it. */
static int play_on(void) {
    const uint32_t size = (uint32_t)g.options.size, slow = draw(&g.random, size),
                   slowness = 1 + draw(&g.random, 100);
    for (playing = (int)size; playing > 0;) {
        const uint32_t r = draw(&g.random, size);
        player *p = &g.player[r];
        wagma_outcome o;
        if (gone[r] || (r == slow && !pending[r] && draw(&g.random, slowness) != 0))
            continue;
        if (!pending[r] && wagma_version(c.handle[r]) >= p->departs) {
            depart(p);
            continue;
        }
        const int status = step(p, &o);
        pending[r] = status == WAGMA_INPROGRESS;
        if (pending[r])
            continue;
        if (!HOLDS(p, status == WAGMA_OK, "status %d: %s", status, wagma_last_error()))
            return 0;
        player_check(p, c.handle[r], &o);
    }
    return 1;
}

static void play(uint64_t seed) {
    const void *initial[TRIAL_RANKS];
    trial_begin(&g, seed, TRIAL_ONE_THREAD);
    for (int r = 0; r < g.options.size; r++) {
        initial[r] = g.player[r].x;
        pending[r] = gone[r] = 0;
    }
    if (cast_open(&c, &g.options, initial, NULL)) {
        if (play_on())
            cast_close(&c);
        else
            cast_drop(&c);
    }
    trial_end(&g);
}

static void test_random_orders(void) {
    for (uint64_t seed = 0; seed < TRIALS; seed += SLOWDOWN_ALONE / SLOWDOWN) {
        play(seed);
        CHECK(expectations_failed() == 0, "%s", g.name);
    }
}

int main(void) {
    /* Arrays that change their memory; their owner writes at an address of its own, so that it is
     * the oracle that sees what ThreadSanitizer does not. */
    segment_remap_min = 1024;
    RUN(test_random_orders);
    return check_summary();
}
