/* How far ranks run ahead (window), what happens when shm_limit is small, and what is left behind.
 */
#define _GNU_SOURCE
#include "check.h"
#include "contribution.h"
#include "support.h"
#include "trap.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* ---- window ---------------------------------------------------------------------------------- */

/* Rank 0 publishes the versions up to `window` past the newest of rank 1, and not one more. */
static void test_window_by_hand(void) {
    for (int64_t window = 1; window <= 5; window++) {
        wagma_options options = options_of(2, 2, 1, 1);
        double x = 1, y = 1;
        wagma_outcome o;
        cast c;
        options.window = window;
        CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
        for (int64_t behind = -1; behind < 3; behind++) {
            while (wagma_version(c.handle[0]) <= behind + window)
                CHECK(wagma_start(c.handle[0], &x, 1, 0, &o) == WAGMA_OK,
                      "window %" PRId64 ": it waits at %" PRId64 " for a rank at %" PRId64, window,
                      wagma_version(c.handle[0]), behind);
            CHECK(wagma_start(c.handle[0], &x, 1, 0, &o) == WAGMA_INPROGRESS,
                  "window %" PRId64 ": not held back at %" PRId64 " by a rank at %" PRId64, window,
                  wagma_version(c.handle[0]), behind);
            CHECK(published(c.segment, 0) == behind + window, "published %" PRId64,
                  published(c.segment, 0));
            CHECK(wagma_start(c.handle[1], &y, 1, 0, &o) == WAGMA_OK, "%s", wagma_last_error());
            CHECK(wagma_finish(c.handle[0], &x, &o) == WAGMA_OK, "%s", wagma_last_error());
        }
        cast_close(&c);
    }
    CHECK(expectations_failed() == 0, "see above");
}

typedef struct race {
    int64_t versions;
    _Atomic int64_t most; /* distance that was seen */
} race;

/* The faster word is read first: had it been past the window then, it would be now. */
static void run_observed(rank *me) {
    race *g = me->shared;
    const int64_t window = me->segment->options.window;
    double x[3];
    contribute(WAGMA_F64, x, me->rank, -1, 3);
    wagma_handle *h = rank_join(me, x);
    while (h && wagma_version(h) < g->versions) {
        wagma_outcome o;
        contribute(WAGMA_F64, x, me->rank, wagma_version(h), 3);
        if (me->rank == wagma_version(h) / 64 % me->size) /* takes turns at being slow */
            jitter(me);
        if (!EXPECT(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "rank %d: %s", me->rank,
                    wagma_last_error()))
            break;
        expect_result(me, x, &o);
        for (int q = 0; q < me->size; q++)
            for (int p = 0; p < me->size; p++) {
                const int64_t fast = published(me->segment, q), slow = published(me->segment, p);
                if (fast == INT64_MAX || slow == INT64_MAX)
                    continue;
                EXPECT(fast - slow <= window,
                       "rank %d is at %" PRId64 ", rank %d at %" PRId64 ", window %" PRId64, q,
                       fast, p, slow, window);
                if (fast - slow > atomic_load(&g->most))
                    atomic_store(&g->most, fast - slow);
            }
    }
    wagma_close(h);
    wagma_free(h);
}

static void test_window_in_a_race(void) {
    for (int64_t window = 1; window <= 4; window++) {
        race *g = shared_memory(sizeof *g);
        wagma_options o = options_of(4, 4, 1, 3);
        o.window = window;
        g->versions = 3000 / SLOWDOWN;
        team_join_clean(
            team_start(window % 2 ? THREADS : processes_if_seen(), &o, run_observed, g));
        CHECK(expectations_failed() == 0, "window %" PRId64, window);
        CHECK(g->most == window, "window %" PRId64 ", but never more than %" PRId64 " apart",
              window, g->most);
    }
}

/* ---- shm_limit ------------------------------------------------------------------------------- */

enum { COUNT = 40009 };

typedef struct limited {
    _Atomic int may_take[RANKS_MAX], taken[RANKS_MAX]; /* versions */
    int64_t versions;
    int64_t buffer_waits[RANKS_MAX];
    uint64_t bytes[RANKS_MAX];
    int status[RANKS_MAX];
    char message[RANKS_MAX][512];
} limited;

/* As little as joining needs. */
static uint64_t least_limit(wagma_options o) {
    wagma_segment *s;
    uint64_t bytes = 0;
    if (EXPECT(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error())) {
        bytes = segment_joined_bytes(s);
        wagma_segment_close(s);
    }
    return bytes;
}

static void note_stats(limited *l, int r, const wagma_handle *h) {
    wagma_stats stats;
    wagma_get_stats(h, &stats);
    l->buffer_waits[r] = stats.buffer_waits;
    l->bytes[r] = stats.segment_bytes;
}

static void run_limited(rank *me) {
    limited *l = me->shared;
    static _Thread_local double x[COUNT];
    contribute(WAGMA_F64, x, me->rank, -1, COUNT);
    wagma_handle *h = rank_join(me, x);
    while (h && wagma_version(h) < l->versions) {
        wagma_outcome o;
        contribute(WAGMA_F64, x, me->rank, wagma_version(h), COUNT);
        jitter(me);
        if (!EXPECT(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "rank %d: %s", me->rank,
                    wagma_last_error()))
            break;
        expect_result(me, x, &o);
    }
    if (h)
        note_stats(l, me->rank, h);
    wagma_close(h);
    wagma_free(h);
}

/* 8 ranks with the memory for a few go on; every rank stays within the limit. */
static void test_limit_does_not_deadlock(void) {
    for (int extra = 0; extra <= 1; extra++) {
        limited *l = shared_memory(sizeof *l);
        wagma_options o = options_of(8, 8, 1, COUNT);
        o.shm_limit = least_limit(o) + (uint64_t)extra * 3 * COUNT * 8;
        l->versions = 60 / SLOWDOWN + 5;
        team_join_clean(team_start(extra ? processes_if_seen() : THREADS, &o, run_limited, l));
        for (int r = 0; r < o.size; r++)
            EXPECT(l->bytes[r] <= o.shm_limit, "rank %d: %" PRIu64 " bytes of %" PRIu64, r,
                   l->bytes[r], o.shm_limit);
        CHECK(expectations_failed() == 0, "see above");
    }
}

/* Ranks 1 and 2 are stopped with a slice of version 0 and 1, in which contributions of rank 0 are
 * pinned: with another one published, three buffers of rank 0 are used up. */
static void run_pinning(rank *me) {
    limited *l = me->shared;
    const size_t bytes = COUNT * 8;
    double *x = trap_memory(bytes);
    wagma_outcome o;
    wagma_handle *h = rank_join(me, NULL);
    for (int t = 0; h && t < 6; t++) {
        contribute(WAGMA_F64, x, me->rank, t, COUNT);
        while (atomic_load(&l->may_take[me->rank]) <= t)
            sleep_ms(0.2);
        if (me->rank > 0 && t == me->rank - 1)
            trap_arm(x, bytes, TRAP_IN_SLICE, SIGSTOP);
        l->status[me->rank] = wagma_allreduce(h, x, 1, &o);
        snprintf(l->message[me->rank], sizeof l->message[0], "%s", wagma_last_error());
        if (l->status[me->rank] != WAGMA_OK)
            break;
        atomic_store(&l->taken[me->rank], t + 1);
    }
    if (h)
        note_stats(l, me->rank, h);
    wagma_close(h);
    wagma_free(h);
}

/* Rank 0 goes on with more memory, or waits for a buffer until the others are continued. */
static void test_buffer_wait(void) {
    for (int unlimited = 0; unlimited <= 1; unlimited++) {
        limited *l = shared_memory(sizeof *l);
        wagma_options o = options_of(3, 3, 1, COUNT);
        o.window = 30;
        o.shm_limit = unlimited ? 0 : least_limit(o);
        o.stall_warning = 0.1;
        team *t = team_start(PROCESSES, &o, run_pinning, l);
        atomic_store(&l->may_take[1], 1); /* version 0 with the first contribution of rank 0 */
        team_await_stopped(t, 1);
        atomic_store(&l->may_take[0], 1);
        while (atomic_load(&l->taken[0]) < 1)
            sleep_ms(0.2);
        atomic_store(&l->may_take[2], 2); /* version 1 with the second one */
        team_await_stopped(t, 2);
        for (int r = 0; r < 3; r++)
            atomic_store(&l->may_take[r], 6);
        for (const double end = seconds() + 20; seconds() < end; sleep_ms(1))
            if (atomic_load(&l->taken[0]) == 6 || team_warnings(t, 0, "phase buffer") > 0)
                break;
        if (unlimited)
            EXPECT(atomic_load(&l->taken[0]) == 6, "rank 0 has taken %d versions", l->taken[0]);
        else
            EXPECT(team_warnings(t, 0, "phase buffer") > 0, "%d versions, told: %s", l->taken[0],
                   team_warning(t, 0));
        team_continue(t, 1);
        team_continue(t, 2);
        team_join_clean(t);
        for (int r = 0; r < 3; r++)
            EXPECT(l->status[r] == WAGMA_OK, "rank %d: %s", r, l->message[r]);
        EXPECT(unlimited ? l->buffer_waits[0] == 0 : l->buffer_waits[0] > 0,
               "limit %" PRIu64 ": %" PRId64 " calls have waited for memory", o.shm_limit,
               l->buffer_waits[0]);
        CHECK(expectations_failed() == 0, "limit %" PRIu64, o.shm_limit);
    }
}

/* ---- what is left behind --------------------------------------------------------------------- */

static int files_of_ours(void) {
    DIR *dir = opendir("/dev/shm");
    char prefix[32];
    int n = 0;
    snprintf(prefix, sizeof prefix, "wagma-%ld-", (long)getpid());
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        n += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    if (dir)
        closedir(dir);
    return dir ? n : -1;
}

static void test_nothing_in_dev_shm(void) {
    wagma_options options = options_of(2, 2, 1, 1);
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    CHECK(files_of_ours() == 0, "%d files during the run", files_of_ours());
    cast_close(&c);
    CHECK(files_of_ours() == 0, "%d files after it", files_of_ours());
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    RUN(test_window_by_hand);
    RUN(test_window_in_a_race);
    RUN(test_limit_does_not_deadlock);
    if (SEES_PROCESSES)
        RUN(test_buffer_wait);
    RUN(test_nothing_in_dev_shm);
    return check_summary();
}
