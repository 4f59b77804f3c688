/* Random walks, for configurations whose states are too many: ranks run in bursts of random length,
 * each with its own pace, and are stopped for long; every rank is run alone from states on the way.
 * The walk of a seed is the same everywhere. */
#include <string.h>

#include "search.h"

enum { ALONE_EVERY = 61, LONGEST = 100000 };

static uint64_t next_random(uint64_t *s) { /* splitmix64 */
    uint64_t z = *s += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* One in three ranks is stopped, until it is drawn again. */
static uint64_t draw_pace(uint64_t *random) {
    return next_random(random) % 3 ? 1 + next_random(random) % 8 : 0;
}

static void alone(const struct space *g, const uint16_t *cells, int rank, struct result *result,
                  FILE *log) {
    uint16_t state[2][SPACE_CELLS];
    struct outcome *out = &result->outcome;
    memcpy(state[0], cells, (size_t)g->bytes);
    int waits = 0;
    for (int k = 0; g->is_running(g->config, state[k & 1], rank); k++) {
        g->make(g->config, state[k & 1], (struct cursor){.rank = rank, .choice = g->expired},
                state[~k & 1], out, log);
        result->alone++;
        if (!out->invariant && out->action == g->wait) {
            g->check_alone(g->config, state[k & 1], state[~k & 1], rank, out->why, out);
            if (!out->invariant || waits++ > 0)
                return;
            out->invariant = NULL; /* the scan began before the run alone; the next wait counts */
        }
        if (!out->invariant && k == LONGEST) {
            out->invariant = "I3-run-alone";
            snprintf(out->detail, sizeof out->detail, "rank %d does not return", rank);
        }
        if (out->invariant || g->is_return(out->action))
            return;
    }
}

/* One walk to the end of all programs; 1: an invariant was violated. */
static int one_walk(const struct space *g, uint64_t seed, struct result *result, FILE *log) {
    uint16_t state[2][SPACE_CELLS];
    uint64_t pace[SPACE_RANKS], random = seed;
    struct outcome *out = &result->outcome;
    int now = 0, burst = 0, rank = 0;
    g->initial(g->config, state[0]);
    for (int r = 0; r < g->ranks; r++)
        pace[r] = draw_pace(&random);
    for (uint64_t steps = 0;; steps++) {
        if (burst-- == 0) {
            uint64_t sum = 0;
            if (next_random(&random) % 32 == 0)
                pace[next_random(&random) % (uint64_t)g->ranks] = draw_pace(&random);
            for (int r = 0; r < g->ranks; r++)
                sum += pace[r];
            if (sum == 0)
                sum = pace[next_random(&random) % (uint64_t)g->ranks] = 1;
            uint64_t drawn = next_random(&random) % sum;
            for (rank = 0; drawn >= pace[rank]; rank++)
                drawn -= pace[rank];
            burst = (int)(next_random(&random) % (next_random(&random) % 4 ? 4 : 120));
        }
        int running = 0;
        for (int r = 0; r < g->ranks; r++)
            running += g->is_running(g->config, state[now], r);
        if (!running) {
            g->check_terminal(g->config, state[now], out);
            result->terminal++;
            return out->invariant != NULL;
        }
        const struct cursor move = {.rank = rank,
                                    .choice = next_random(&random) % 2 ? g->expired : g->early};
        if (!g->make(g->config, state[now], move, state[!now], out, log)) {
            burst = 0;
            continue;
        }
        now = !now;
        result->transitions++;
        result->depth = steps > result->depth ? steps : result->depth;
        if (!out->invariant && steps % ALONE_EVERY == 0)
            alone(g, state[now], (int)(next_random(&random) % (uint64_t)g->ranks), result, log);
        if (!out->invariant && steps > LONGEST) {
            out->invariant = "no-deadlock";
            snprintf(out->detail, sizeof out->detail, "the ranks do not finish");
        }
        if (out->invariant)
            return 1;
    }
}

void walk(const struct space *g, const struct limits *limits, struct result *result) {
    memset(result, 0, sizeof *result);
    const double began = seconds_now();
    for (uint64_t n = 0; n < limits->walks; n++) {
        const uint64_t seed = limits->seed + n;
        if (one_walk(g, seed, result, NULL)) {
            printf("  walk of seed %llu:\n", (unsigned long long)seed);
            if (limits->trace)
                (void)one_walk(g, seed, result, stdout);
            return;
        }
        if (limits->seconds > 0 && seconds_now() - began > limits->seconds) {
            result->truncated = 1;
            return;
        }
    }
}
