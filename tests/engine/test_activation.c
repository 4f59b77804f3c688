/* The activation core, piece by piece: the graph over which versions are activated, coordinators,
 * the window, grace, and how many messages all that takes. */
#include "activation_script.h"
#include "check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 64, DRAWS = 300 };

/* ---- the graph ------------------------------------------------------------------------------- */
static void test_dimensions(void) {
    for (int n = 1; n <= MEMBERS; n++) {
        const int d = activation_dimensions(n);
        CHECK((1 << d) >= n && (d == 0 || 1 << (d - 1) < n), "%d members: %d", n, d);
        for (int e = 0; e < d; e++) {
            int from[MEMBERS] = {0};
            for (int i = 0; i < n; i++) {
                const int to = activation_partner(i, n, e);
                CHECK(to >= 0 && to < n && to != i, "%d members: %d to %d", n, i, to);
                from[to]++;
            }
            for (int i = 0; i < n; i++)
                CHECK(from[i] == 1, "%d members, dimension %d: %d send to %d", n, e, from[i], i);
        }
    }
}

struct graph {
    int n, queued, sent;
    int reached[MEMBERS];
    uint32_t over[MEMBERS];
    struct {
        int to, dimension;
    } queue[MEMBERS * 8];
};

/* The rule of the core: over every dimension above the one it was heard of, once. */
static void forward(struct graph *g, int i, int dimension) {
    g->reached[i] = 1;
    for (int e = dimension + 1; e < activation_dimensions(g->n); e++) {
        if (g->over[i] >> e & 1)
            continue;
        g->over[i] |= UINT32_C(1) << e;
        g->queue[g->queued].to = activation_partner(i, g->n, e);
        g->queue[g->queued++].dimension = e;
        g->sent++;
    }
}

/* Members `roots` activate by themselves, each at some time; messages come in any order. 1: all are
 * reached. */
static int spread(struct graph *g, int n, int roots, uint32_t random) {
    int reached = 0;
    memset(g, 0, sizeof *g);
    g->n = n;
    for (int left = roots; left > 0 || g->queued > 0;) {
        random = random * 1664525 + 1013904223;
        const int k = (int)((random >> 8) % (uint32_t)(g->queued + left));
        if (k >= g->queued) {
            const int root = (int)((random >> 4) % (uint32_t)n);
            forward(g, root, -1);
            left--;
            continue;
        }
        const int to = g->queue[k].to, dimension = g->queue[k].dimension;
        g->queue[k] = g->queue[--g->queued];
        forward(g, to, dimension);
    }
    for (int i = 0; i < n; i++)
        reached += g->reached[i];
    return reached == n;
}

static void test_everybody_is_reached(void) {
    static struct graph g;
    for (int n = 1; n <= MEMBERS; n++)
        for (uint32_t draw = 0; draw < DRAWS; draw++)
            for (int roots = 1; roots <= 3; roots++) {
                CHECK(spread(&g, n, roots, draw), "%d members, %d roots, draw %u", n, roots, draw);
                CHECK(g.sent <= n * activation_dimensions(n), "%d members: %d messages", n, g.sent);
            }
}

static void test_messages_of_one_root(void) {
    static struct graph g;
    for (int n = 1; n <= MEMBERS; n++)
        for (uint32_t draw = 0; draw < DRAWS; draw++) {
            spread(&g, n, 1, draw);
            if ((n & (n - 1)) == 0)
                CHECK(g.sent == n - 1, "%d members: %d messages", n, g.sent);
            else
                CHECK(g.sent < 1 << activation_dimensions(n), "%d members: %d messages", n, g.sent);
        }
}

/* ---- coordinators ---------------------------------------------------------------------------- */
static void test_coordinators(void) {
    for (int n = 1; n <= 6; n++) {
        int32_t members[6];
        int times[6] = {0};
        for (int i = 0; i < n; i++)
            members[i] = 3 * i + 1;
        for (int64_t v = 0; v < 6000; v++) {
            const int rank = activation_coordinator(5, v, members, n);
            CHECK(rank % 3 == 1 && rank / 3 < n, "%d members, version %" PRId64 ": %d", n, v, rank);
            times[rank / 3]++;
        }
        for (int i = 0; i < n; i++)
            CHECK(times[i] * n > 5000 && times[i] * n < 7000, "%d of %d members: %d times", i, n,
                  times[i]);
    }
    const int32_t groups[2][2] = {{0, 1}, {2, 3}};
    int same = 0;
    for (int64_t v = 0; v < 1000; v++)
        same += activation_coordinator(5, v, groups[0], 2) + 2 ==
                activation_coordinator(5, v, groups[1], 2);
    CHECK(same > 300 && same < 700, "groups draw alike: %d of 1000", same);
}

/* ---- messages of a version ------------------------------------------------------------------- */
static struct script *open_script(const char *format, int size, int number) {
    char line[128];
    snprintf(line, sizeof line, format, size, size, number);
    struct script *s = script_open(line, NULL);
    if (!s)
        abort();
    return s;
}

static int say(struct script *s, const char *what, int a, int b) {
    char line[64];
    snprintf(line, sizeof line, "%s %d %d", what, a, b);
    return script_do(s, line);
}

/* One rank starts a version; everybody else is late. */
static void test_messages_of_a_version(void) {
    for (int n = 1; n <= MEMBERS; n++)
        for (int root = 0; root < n; root += 1 + n / 5) {
            struct script *s = open_script("ranks %d group %d", n, 0);
            CHECK(say(s, "call", root, 0) && say(s, "arrive", root, 0) && script_do(s, "deliver"),
                  "%s", script_violation(s));
            const int64_t sent = script_sent(s);
            if ((n & (n - 1)) == 0)
                CHECK(sent == n - 1, "%d ranks: %" PRId64 " messages", n, sent);
            else
                CHECK(sent < 1 << activation_dimensions(n), "%d ranks: %" PRId64, n, sent);
            for (int r = 0; r < n; r++)
                CHECK(activation_active(script_core(s, r)) == 1, "%d ranks: rank %d", n, r);
            script_close(s);
        }
}

/* Everybody comes to a version with a quorum: a notice, and one message that says so of the next.
 */
static void test_messages_of_a_quorum(void) {
    for (int n = 2; n <= 16; n++) {
        struct script *s = open_script("ranks %d group %d quorum %d", n, n);
        for (int r = 0; r < n; r++)
            CHECK(say(s, "call", r, 0) && say(s, "arrive", r, 0), "%s", script_violation(s));
        const int64_t notices = script_sent(s);
        CHECK(notices >= 2 * (n - 2) && notices <= 2 * (n - 1), "%d ranks: %" PRId64, n, notices);
        CHECK(script_do(s, "deliver"), "%s", script_violation(s));
        const int64_t activations = script_sent(s) - notices;
        CHECK(activations >= n - 1 && activations < 2 << activation_dimensions(n),
              "%d ranks: %" PRId64, n, activations);
        script_close(s);
    }
}

static void test_messages_of_all_at_once(void) {
    for (int n = 1; n <= MEMBERS; n++) {
        struct script *s = open_script("ranks %d group %d", n, 0);
        for (int r = 0; r < n; r++)
            CHECK(say(s, "call", r, 0) && say(s, "arrive", r, 0), "%s", script_violation(s));
        CHECK(script_do(s, "deliver"), "%s", script_violation(s));
        CHECK(script_sent(s) == n * activation_dimensions(n), "%d ranks: %" PRId64, n,
              script_sent(s));
        script_close(s);
    }
}

/* Where everybody has to come nobody is told, but those who have departed and have said so. */
static void test_messages_of_a_sync_version(void) {
    for (int n = 2; n <= 16; n++)
        for (int gone = 0; gone <= 1; gone++) {
            struct script *s = open_script("ranks %d group %d period 1", n, 0);
            for (int r = 0; r < gone; r++)
                CHECK(say(s, "depart", r, 0) && script_do(s, "deliver"), "%s", script_violation(s));
            CHECK(script_sent(s) == gone * (n - 1), "%d ranks: %" PRId64, n, script_sent(s));
            for (int r = gone; r < n; r++)
                CHECK(say(s, "call", r, 0) && say(s, "arrive", r, 0), "%s", script_violation(s));
            CHECK(script_do(s, "deliver"), "%s", script_violation(s));
            CHECK(script_sent(s) == 2 * gone * (n - 1), "%d ranks: %" PRId64, n, script_sent(s));
            script_close(s);
        }
}

/* ---- the window ------------------------------------------------------------------------------ */
/* Calls versions alone, in groups of one, until the window is used up; that version. */
static int run_ahead(struct script *s, int rank) {
    for (int v = 0;; v++) {
        say(s, "call", rank, 0);
        if (!activation_may_arrive(script_core(s, rank)))
            return v;
        say(s, "arrive", rank, 0);
        say(s, "over", rank, v);
        say(s, "return", rank, 0);
        script_do(s, "deliver");
    }
}

/* No further than the window, and not much less. */
static void test_window(void) {
    for (int window = 1; window <= 20; window++)
        for (int n = 2; n <= 5; n++) {
            char line[128];
            snprintf(line, sizeof line, "ranks %d group 1 versions 60 window %d", n, window);
            struct script *s = script_open(line, NULL);
            const int first = run_ahead(s, 0);
            CHECK(first >= window - 1 && first <= window + 1 && first >= 1, "window %d: %d", window,
                  first);
            for (int r = 1; r < n; r++) { /* the others follow by half a window */
                for (int v = 0; v < (window > 3 ? window / 2 : 1); v++)
                    CHECK(say(s, "call", r, 0) && say(s, "arrive", r, 0) && say(s, "over", r, v) &&
                              say(s, "return", r, 0),
                          "%s", script_violation(s));
                CHECK(!activation_may_arrive(script_core(s, 0)), "window %d: too early", window);
                script_do(s, "deliver");
            }
            CHECK(activation_may_arrive(script_core(s, 0)), "window %d, %d ranks", window, n);
            CHECK(!script_violation(s), "%s", script_violation(s));
            script_close(s);
        }
}

static void test_messages_of_a_barrier(void) {
    for (int n = 2; n <= MEMBERS; n++) {
        struct script *s = open_script("ranks %d group 1 window 8 versions 20", n, 0);
        for (int v = 0; v < 4; v++)
            for (int r = 0; r < n; r++)
                CHECK(say(s, "call", r, 0) && say(s, "arrive", r, 0) && say(s, "over", r, v) &&
                          say(s, "return", r, 0),
                      "%s", script_violation(s));
        CHECK(script_do(s, "deliver"), "%s", script_violation(s));
        CHECK(script_sent(s) == (int64_t)n * activation_dimensions(n), "%d ranks: %" PRId64, n,
              script_sent(s));
        script_close(s);
    }
}

/* ---- grace ----------------------------------------------------------------------------------- */
/* Three ranks; the coordinator of version 0 is found out. */
static int coordinator_of(int version) {
    const int32_t members[3] = {0, 1, 2};
    return activation_coordinator(0, version, members, 3);
}

#define DO(line) CHECK(script_do(s, line), "%s: %s", line, script_violation(s))

/* Version 0 is over on all, who were in time; it is 1000. Who is awaited at version 1: all. */
static struct script *after_first(const char *options) {
    char line[128];
    snprintf(line, sizeof line, "ranks 3 group 3 %s", options);
    struct script *s = script_open(line, NULL);
    script_do(s, "time 0");
    for (int r = 0; r < 3; r++)
        say(s, "call", r, 0), say(s, "arrive", r, 0);
    script_do(s, "deliver");
    for (int r = 0; r < 3; r++)
        say(s, "over", r, 0), say(s, "return", r, 0);
    script_do(s, "time 1000");
    return s;
}

static void test_grace_runs_from_the_quorum(void) {
    struct script *s = after_first("quorum 2 grace 100");
    const struct activation *a = script_core(s, coordinator_of(1));
    DO("call 0");
    DO("arrive 0");
    DO("deliver");
    CHECK(activation_deadline(a) == 0, "there is no quorum");
    DO("time 1050");
    DO("call 1");
    DO("arrive 1");
    DO("deliver");
    CHECK(activation_deadline(a) == 1150, "%" PRIu64, activation_deadline(a));
    DO("time 1149");
    CHECK(say(s, "tick", coordinator_of(1), 0), "tick");
    CHECK(activation_active(a) == 0 && activation_deadline(a) == 1150, "it is too early");
    DO("time 1150");
    CHECK(say(s, "tick", coordinator_of(1), 0), "tick");
    CHECK(activation_active(a) == 1 && activation_deadline(a) == 0, "it is time");
    script_close(s);
}

static void test_grace_ends_when_all_are_in(void) {
    struct script *s = after_first("quorum 1 grace 100");
    const struct activation *a = script_core(s, coordinator_of(1));
    DO("call 2");
    DO("arrive 2");
    DO("deliver");
    DO("call 1");
    DO("arrive 1");
    DO("deliver");
    CHECK(activation_deadline(a) == 1100 && activation_active(a) == 0, "rank 0 is awaited");
    DO("call 0");
    DO("arrive 0");
    DO("deliver");
    CHECK(activation_deadline(a) == 0 && activation_active(a) == 1, "all are in");
    script_close(s);
}

/* Rank 0 has not come to version 0: at version 1 it is further behind than one version. */
static void test_grace_does_not_await_those_further_behind(void) {
    struct script *s = script_open("ranks 3 group 3 quorum 2 grace 100", NULL);
    const struct activation *a = script_core(s, coordinator_of(1));
    for (int r = 1; r < 3; r++)
        say(s, "call", r, 0), say(s, "arrive", r, 0);
    DO("deliver");
    DO("time 100");
    CHECK(say(s, "tick", coordinator_of(0), 0), "tick");
    DO("deliver");
    for (int r = 1; r < 3; r++)
        say(s, "over", r, 0), say(s, "return", r, 0), say(s, "call", r, 0), say(s, "arrive", r, 0);
    DO("deliver");
    CHECK(activation_deadline(a) == 0 && activation_active(a) >= 1, "rank 0 is awaited");
    script_close(s);
}

static void test_grace_does_not_await_the_departed(void) {
    struct script *s = after_first("quorum 2 grace 100");
    const struct activation *a = script_core(s, coordinator_of(1));
    DO("call 0");
    DO("arrive 0");
    DO("call 1");
    DO("arrive 1");
    DO("deliver");
    CHECK(activation_deadline(a) == 1100, "%" PRIu64, activation_deadline(a));
    DO("depart 2");
    DO("deliver");
    CHECK(activation_active(a) == 1, "rank 2 is awaited");
    script_close(s);
}

/* The coordinator of version 0 arrives last, and so starts it. It sends EXPECT(1) before it pins:
 * the data of version 0 may be there sooner than a message that is sent after them. */
static void test_grace_awaits_who_starts_the_version_before(void) {
    int32_t members[MEMBERS];
    int n = 2;
    for (int i = 0; i < MEMBERS; i++)
        members[i] = i;
    while (activation_coordinator(0, 0, members, n) == activation_coordinator(0, 1, members, n))
        n++;
    const int last = activation_coordinator(0, 0, members, n);
    char line[128], *log = NULL;
    size_t bytes;
    FILE *file = open_memstream(&log, &bytes);
    snprintf(line, sizeof line, "ranks %d group %d quorum 1 grace 100", n, n);
    struct script *s = script_open(line, file);
    for (int r = 0; r < n; r++)
        CHECK(r == last || (say(s, "call", r, 0) && say(s, "arrive", r, 0)), "rank %d", r);
    DO("deliver");
    fflush(file);
    const size_t before = bytes;
    CHECK(say(s, "call", last, 0) && say(s, "arrive", last, 0), "%s", script_violation(s));
    fflush(file);
    const char *const expect = strstr(log + before, "sends EXPECT v1");
    const char *const pin = strstr(log + before, "pins v0");
    CHECK(expect && pin && expect < pin, "EXPECT comes after the pin: %s", log + before);
    script_close(s);
    fclose(file);
    free(log);
}

static void test_grace_can_change(void) {
    struct script *s = after_first("quorum 1 grace 100");
    struct activation *a = script_core(s, coordinator_of(1));
    activation_grace(a, 30);
    DO("call 1");
    DO("arrive 1");
    DO("deliver");
    CHECK(activation_deadline(a) == 1030, "%" PRIu64, activation_deadline(a));
    script_close(s);
}

/* ---- questions ------------------------------------------------------------------------------- */
static void test_missing(void) {
    struct script *s = script_open("ranks 4 group 4 quorum 3", NULL);
    int32_t ranks[4];
    int needed;
    for (int r = 1; r < 3; r++)
        say(s, "call", r, 0), say(s, "arrive", r, 0);
    DO("deliver");
    DO("inquire 1");
    DO("deliver");
    CHECK(activation_missing(script_core(s, 1), ranks, &needed) == 2 && needed == 1, "%d", needed);
    CHECK(ranks[0] == 0 && ranks[1] == 3, "%d %d", ranks[0], ranks[1]);
    DO("depart 3");
    DO("deliver");
    CHECK(activation_missing(script_core(s, 1), ranks, &needed) == 1 && ranks[0] == 0, "%d",
          needed);
    CHECK(activation_has_departed(script_core(s, 1), 3), "rank 3 has departed");
    script_close(s);
}

int main(void) {
    RUN(test_dimensions);
    RUN(test_everybody_is_reached);
    RUN(test_messages_of_one_root);
    RUN(test_coordinators);
    RUN(test_messages_of_a_version);
    RUN(test_messages_of_a_quorum);
    RUN(test_messages_of_all_at_once);
    RUN(test_messages_of_a_sync_version);
    RUN(test_window);
    RUN(test_messages_of_a_barrier);
    RUN(test_grace_runs_from_the_quorum);
    RUN(test_grace_ends_when_all_are_in);
    RUN(test_grace_does_not_await_those_further_behind);
    RUN(test_grace_does_not_await_the_departed);
    RUN(test_grace_awaits_who_starts_the_version_before);
    RUN(test_grace_can_change);
    RUN(test_missing);
    return check_summary();
}
