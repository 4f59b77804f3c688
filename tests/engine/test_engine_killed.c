/* A rank that is killed, between versions and inside a call: what the survivors take is correct,
 * and the first version that needs the dead rank ends in WAGMA_EPEER within a second (I7). */
/* short run: c */
#define _GNU_SOURCE
#include "check.h"
#include "contribution.h"
#include "support.h"
#include "trap.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 6, COUNT = 100003, AT = 3, VERSIONS = 40 };
enum where { OUTSIDE, EXIT, BEFORE_PUBLISHING, IN_SLICE, WHERES };
static const char *const where_name[] = {"outside a call", "by exit", "before publishing",
                                         "in a slice"};

typedef struct plan {
    enum where where;
    int victims; /* the last ranks */
    _Atomic int let_go;
    _Atomic int joined;      /* a rank that fails before all have spoils the creation */
    int64_t done[RANKS_MAX]; /* versions that have returned */
    int status[RANKS_MAX];
    double took[RANKS_MAX]; /* s, the call that failed */
    char message[RANKS_MAX][512];
} plan;

static times noticing; /* of survivors: how long the call took that failed */

static void die(plan *p, void *x, size_t bytes) {
    if (p->where == OUTSIDE)
        raise(SIGKILL);
    else if (p->where == EXIT)
        _exit(0);
    else
        trap_arm(x, bytes, p->where == IN_SLICE ? TRAP_IN_SLICE : TRAP_BEFORE_PUBLISHING, SIGKILL);
}

/* The victims end at version AT; the others call it when they have. */
static void run_with_victims(rank *me) {
    plan *p = me->shared;
    const int64_t count = me->segment->options.count;
    const size_t bytes = (size_t)count * 8;
    const int victim = me->rank >= me->size - p->victims;
    double *x = trap_memory(bytes);
    contribute(WAGMA_F64, x, me->rank, -1, count);
    wagma_handle *h = rank_join(me, x);
    atomic_fetch_add(&p->joined, 1);
    while (atomic_load(&p->joined) < me->size)
        sleep_ms(0.2);
    while (h && wagma_version(h) < VERSIONS) {
        const int64_t t = wagma_version(h);
        wagma_outcome o;
        contribute(WAGMA_F64, x, me->rank, t, count);
        if (t == AT && victim)
            die(p, x, bytes);
        while (t == AT && !victim && !atomic_load(&p->let_go))
            sleep_ms(0.2);
        const double began = seconds();
        const int status = wagma_allreduce(h, x, 1, &o);
        p->took[me->rank] = seconds() - began;
        p->status[me->rank] = status;
        if (status != WAGMA_OK) {
            snprintf(p->message[me->rank], sizeof p->message[0], "%s", wagma_last_error());
            break;
        }
        p->done[me->rank] = t + 1;
        expect_result(me, x, &o);
    }
    wagma_free(h);
}

/* `last`: the version that fails; `phase`: what it waits for then. */
static void check_killed(const wagma_options *o, enum where where, int victims, int64_t last,
                         const char *phase) {
    plan *p = shared_memory(sizeof *p);
    char dead[32], version[32];
    p->where = where;
    p->victims = victims;
    team *t = team_start(PROCESSES, o, run_with_victims, p);
    for (int v = o->size - victims; v < o->size; v++) {
        if (where == EXIT)
            team_await_exit(t, v);
        else
            team_await_killed(t, v);
    }
    atomic_store(&p->let_go, 1);
    team_join(t);
    snprintf(version, sizeof version, "version %" PRId64 " (", last);
    snprintf(dead, sizeof dead, "rank %d ", o->size - victims);
    int named = 0;
    for (int r = 0; r < o->size - victims; r++) {
        EXPECT(p->done[r] == last && p->status[r] == WAGMA_EPEER,
               "rank %d: status %d after %" PRId64 " instead of %" PRId64 " versions", r,
               p->status[r], p->done[r], last);
        times_add(&noticing, p->took[r]);
        EXPECT(strstr(p->message[r], version) && strstr(p->message[r], phase), "rank %d: %s", r,
               p->message[r]);
        named += strstr(p->message[r], dead) != NULL;
    }
    /* The first to find out fails, and others can be told of it instead. */
    EXPECT(named > 0, "nobody names %s: %s", dead, p->message[0]);
    CHECK(expectations_failed() == 0, "P=%d, killed %s", o->size, where_name[where]);
}

/* With quorum 1 the others go on until the window is used up. */
static void test_window(void) {
    for (int size = 2; size <= 4; size++)
        for (int where = 0; where < WHERES; where++) {
            wagma_options o = options_of(size, size, 1, COUNT);
            o.window = WINDOW;
            const int64_t newest = where == IN_SLICE ? AT : AT - 1;
            check_killed(&o, (enum where)where, 1, newest + WINDOW + 1, "window");
        }
    CHECK(times_are_soon(&noticing, 1, "noticing a rank that has died"), "see above");
}

static void test_sync_version(void) {
    for (int where = 0; where < WHERES; where++) {
        wagma_options o = options_of(4, 2, 1, COUNT);
        o.sync_period = 6;
        o.window = 20;
        check_killed(&o, (enum where)where, 1, 5, "sync");
    }
    CHECK(times_are_soon(&noticing, 1, "noticing a rank that has died"), "see above");
}

/* As long as the quorum is alive the versions go on, and then not one more. */
static void test_quorum(void) {
    wagma_options o = options_of(4, 4, 3, 1000);
    o.window = 20;
    check_killed(&o, OUTSIDE, 1, AT - 1 + 20 + 1, "window");
    check_killed(&o, OUTSIDE, 2, AT, "quorum");
    CHECK(times_are_soon(&noticing, 1, "noticing a rank that has died"), "see above");
}

/* ---- at any moment --------------------------------------------------------------------------- */

static void run_until_error(rank *me) {
    plan *p = me->shared;
    static double x[COUNT];
    const int64_t count = me->segment->options.count;
    contribute(WAGMA_F64, x, me->rank, -1, count);
    wagma_handle *h = rank_join(me, x);
    int status = WAGMA_OK;
    atomic_fetch_add(&p->let_go, 1);
    while (h && status == WAGMA_OK) {
        wagma_outcome o;
        contribute(WAGMA_F64, x, me->rank, wagma_version(h), count);
        status = wagma_allreduce(h, x, 1, &o);
        if (status == WAGMA_OK)
            expect_result(me, x, &o);
    }
    p->status[me->rank] = status;
    wagma_free(h);
}

static void test_any_moment(void) {
    uint32_t random = 3;
    for (int i = 0; i < 40 / SLOWDOWN; i++) {
        plan *p = shared_memory(sizeof *p);
        wagma_options o = options_of(4, i % 3 ? 4 : 2, 1, i % 2 ? 20011 : 5);
        o.window = 1 + i % 8;
        o.sync_period = i % 5 == 0 ? 10 : 0;
        team *t = team_start(PROCESSES, &o, run_until_error, p);
        while (atomic_load(&p->let_go) < 4) /* all have joined */
            sleep_ms(0.2);
        random = random * 1664525u + 1013904223u;
        sleep_ms((random >> 16) % 128 * 0.1);
        team_kill(t, 3);
        const double killed = seconds();
        team_join(t);
        times_add(&noticing, seconds() - killed);
        for (int r = 0; r < 3; r++)
            EXPECT(p->status[r] == WAGMA_EPEER, "rank %d: %d", r, p->status[r]);
    }
    CHECK(times_are_soon(&noticing, 1, "noticing a rank that has died"), "see above");
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- without dying --------------------------------------------------------------------------- */

static void *leave_soon(void *handle) {
    sleep_ms(20);
    wagma_free(handle);
    return NULL;
}

/* A handle that is freed without close() is a failed rank: whoever needs it is told. */
static void test_freed_without_close(void) {
    for (int waiting = 0; waiting <= 1; waiting++) { /* 1: it fails while the other one waits */
        wagma_options options = options_of(2, 2, 1, 1);
        double x = 1;
        pthread_t thread;
        cast c;
        CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
        if (waiting) {
            pthread_create(&thread, NULL, leave_soon, c.handle[1]);
        } else {
            wagma_free(c.handle[1]);
        }
        EXPECT(wagma_sync(c.handle[0], &x, 1, NULL) == WAGMA_EPEER &&
                   strstr(wagma_last_error(), "rank 1 failed or left without close"),
               "%s", wagma_last_error());
        if (waiting)
            pthread_join(thread, NULL);
        c.handle[1] = NULL;
        cast_drop(&c);
    }
    CHECK(expectations_failed() == 0, "see above");
}

typedef struct arrival {
    wagma_handle *handle[2];
    double x[2];
} arrival;

static void *arrive_later(void *argument) {
    arrival *a = argument;
    sleep_ms(200);
    int status[2];
    for (int i = 0; i < 2; i++)
        status[i] = wagma_start(a->handle[i], &a->x[i], 1, 0, NULL);
    EXPECT(status[0] == WAGMA_INPROGRESS, "%d", status[0]);
    /* With the last one they are enough; the one that waits may be about to reduce. */
    EXPECT(status[1] == WAGMA_OK || status[1] == WAGMA_INPROGRESS, "%d", status[1]);
    for (int i = 0; i < 2; i++) {
        if (status[i] == WAGMA_INPROGRESS)
            status[i] = wagma_finish(a->handle[i], &a->x[i], NULL);
        EXPECT(status[i] == WAGMA_OK, "%s", wagma_last_error());
    }
    return NULL;
}

/* One that waits long for a quorum of living ranks does not care that another one has failed. */
static void test_enough_are_alive(void) {
    wagma_options options = options_of(4, 4, 3, 1);
    double x = 1;
    pthread_t thread;
    cast c;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    wagma_fail(c.handle[3]);
    arrival a = {.handle = {c.handle[1], c.handle[2]}, .x = {10, 100}};
    pthread_create(&thread, NULL, arrive_later, &a);
    EXPECT(wagma_allreduce(c.handle[0], &x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
    pthread_join(thread, NULL);
    EXPECT(x == 111 && a.x[0] == 111 && a.x[1] == 111, "%g %g %g", x, a.x[0], a.x[1]);
    cast_drop(&c);
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    if (SEES_PROCESSES) {
        RUN(test_window);
        RUN(test_sync_version);
        RUN(test_quorum);
        RUN(test_any_moment);
    }
    RUN(test_freed_without_close);
    RUN(test_enough_are_alive);
    return check_summary();
}
