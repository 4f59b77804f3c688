/* A rank that is stopped (SIGSTOP) or sleeps, outside and inside a call: the others go on until a
 * sync version or the window (I3), then are warned about it, and finish when it is continued (I7).
 */
#define _GNU_SOURCE
#include "check.h"
#include "contribution.h"
#include "support.h"
#include "trap.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 4, WINDOW = 6, VICTIM = 2, COUNT = 100003, AT = 3, VERSIONS = 14 };
enum where { OUTSIDE, BEFORE_PUBLISHING, IN_SLICE, WHERES };
static const char *const where_name[] = {"outside a call", "before publishing", "in a slice"};

typedef struct plan {
    enum where where;
    int64_t count;
    _Atomic int let_go;                /* the others may call version AT */
    _Atomic int64_t called[SIZE];      /* newest version that a rank has called */
    _Atomic int64_t done[SIZE];        /* versions that have returned */
    int64_t of_victim[SIZE][VERSIONS]; /* version of the victim's contribution; -2: not listed */
    int32_t late[SIZE][VERSIONS];
    int64_t redone[SIZE];
} plan;

static void note(plan *p, int rank, const wagma_outcome *o) {
    p->of_victim[rank][o->version] = -2;
    p->late[rank][o->version] = o->late;
    for (int k = 0; k < o->contributors_count; k++)
        if (o->contributors[k] == VICTIM)
            p->of_victim[rank][o->version] = o->versions[k];
}

/* All ranks take versions 0 to VERSIONS - 1. The victim is stopped at version AT: before the call,
 * in the call but before it publishes, or when it has pinned the version alone and claimed a slice.
 */
static void run_with_victim(rank *me) {
    plan *p = me->shared;
    const size_t bytes = (size_t)p->count * 8;
    double *x = trap_memory(bytes);
    contribute(WAGMA_F64, x, me->rank, -1, p->count);
    wagma_handle *h = rank_join(me, x);
    while (h && wagma_version(h) < VERSIONS) {
        const int64_t t = wagma_version(h);
        wagma_outcome o;
        contribute(WAGMA_F64, x, me->rank, t, p->count);
        if (t == AT && me->rank == VICTIM) {
            if (p->where == OUTSIDE)
                raise(SIGSTOP);
            else
                trap_arm(x, bytes, p->where == IN_SLICE ? TRAP_IN_SLICE : TRAP_BEFORE_PUBLISHING,
                         SIGSTOP);
        }
        while (t == AT && me->rank != VICTIM && !atomic_load(&p->let_go))
            sleep_ms(0.2);
        atomic_store(&p->called[me->rank], t);
        if (!EXPECT(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "rank %d: %s", me->rank,
                    wagma_last_error()))
            break;
        atomic_store(&p->done[me->rank], t + 1);
        expect_result(me, x, &o);
        note(p, me->rank, &o);
    }
    wagma_stats stats = {0};
    if (h)
        wagma_get_stats(h, &stats);
    p->redone[me->rank] = stats.redone_slices;
    wagma_close(h);
    wagma_free(h);
}

static int wait_until(_Atomic int64_t *value, int64_t wanted) {
    for (const double end = seconds() + WATCHDOG_SECONDS / 2; seconds() < end; sleep_ms(0.5))
        if (atomic_load(value) >= wanted)
            return 1;
    return 0;
}

/* Others may have come before, about a slow creation. */
static void expect_warning(team *t, int r, const char *version, const char *phase,
                           const char *ranks) {
    const char *text = "";
    int told = 0;
    for (const double end = seconds() + WATCHDOG_SECONDS / 2; !told && seconds() < end;) {
        text = team_warning(t, r);
        told = strstr(text, version) && strstr(text, phase) && strstr(text, ranks);
        sleep_ms(0.5);
    }
    EXPECT(told, "rank %d was told about %s%s%s: %s", r, version, phase, ranks, text);
}

/* Where the others end up while the victim is stopped with `published` as its newest version. */
static void check_others(team *t, plan *p, int64_t published_by_victim, const char *phase) {
    const int64_t stuck = p->where == OUTSIDE || p->where == BEFORE_PUBLISHING
                              ? published_by_victim + WINDOW + 1
                              : AT + WINDOW + 1;
    char version[32];
    snprintf(version, sizeof version, "version %" PRId64 " ", stuck);
    for (int r = 0; r < SIZE; r++) {
        if (r == VICTIM)
            continue;
        EXPECT(wait_until(&p->done[r], stuck), "%s: rank %d has finished %" PRId64 " versions only",
               where_name[p->where], r, atomic_load(&p->done[r]));
        expect_warning(t, r, version, phase, "for rank 2, which is alive and ");
        EXPECT(atomic_load(&p->done[r]) == stuck && published(team_segment(t), r) == stuck - 1,
               "rank %d has published %" PRId64 ", past the window of %d", r,
               published(team_segment(t), r), WINDOW);
    }
    EXPECT(published(team_segment(t), VICTIM) == published_by_victim, "victim at %" PRId64,
           published(team_segment(t), VICTIM));
}

static void check_stopped(enum where where, int64_t count) {
    plan *p = shared_memory(sizeof *p);
    wagma_options o = options_of(SIZE, SIZE, 1, count);
    o.window = WINDOW;
    o.stall_warning = 0.1;
    p->where = where;
    p->count = count;
    team *t = team_start(PROCESSES, &o, run_with_victim, p);
    team_await_stopped(t, VICTIM);
    atomic_store(&p->let_go, 1);
    const int64_t newest = where == IN_SLICE ? AT : AT - 1;
    check_others(t, p, newest, "window");
    team_continue(t, VICTIM);
    team_join_clean(t);
    for (int r = 0; r < SIZE; r++)
        for (int64_t v = AT; r != VICTIM && v < newest + WINDOW + 1; v++)
            EXPECT(p->of_victim[r][v] == (v == AT && p->late[r][v] ? p->of_victim[r][v] : newest) ||
                       p->of_victim[r][v] == -2,
                   "%s: version %" PRId64 " of rank %d holds version %" PRId64 " of the victim",
                   where_name[where], v, r, p->of_victim[r][v]);
    if (where == IN_SLICE) { /* its slice had to be computed by those who needed version AT */
        int64_t redone = 0;
        for (int r = 0; r < SIZE; r++)
            redone += p->redone[r];
        EXPECT(redone > 0, "no slice was redone");
    } else {
        EXPECT(p->late[VICTIM][AT], "the victim is fresh in version %d", AT);
    }
    CHECK(expectations_failed() == 0, "%s", where_name[where]);
}

static void test_stopped_outside(void) {
    check_stopped(OUTSIDE, 3);
}

static void test_stopped_before_publishing(void) {
    check_stopped(BEFORE_PUBLISHING, COUNT);
}

static void test_stopped_in_slice(void) {
    check_stopped(IN_SLICE, COUNT);
}

/* ---- anywhere -------------------------------------------------------------------------------- */

typedef struct flight {
    _Atomic int over;
    _Atomic int64_t done[SIZE];
} flight;

enum { FAR = 1 << 20 };

static void run_until_over(rank *me) {
    flight *f = me->shared;
    static double x[4099];
    contribute(WAGMA_F64, x, me->rank, -1, 4099);
    wagma_handle *h = rank_join(me, x);
    while (h && !atomic_load(&f->over)) {
        wagma_outcome o;
        contribute(WAGMA_F64, x, me->rank, wagma_version(h), 4099);
        if (!EXPECT(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "rank %d: %s", me->rank,
                    wagma_last_error()))
            break;
        expect_result(me, x, &o);
        atomic_store(&f->done[me->rank], o.version + 1);
    }
    wagma_close(h);
    wagma_free(h);
}

/* Whoever is left must finish versions, whatever the moment at which the others were stopped. */
static void test_stopped_anywhere(void) {
    for (int quorum = 1; quorum <= 2; quorum++) {
        flight *f = shared_memory(sizeof *f);
        wagma_options o = options_of(SIZE, SIZE, quorum, 4099);
        o.window = FAR;
        team *t = team_start(PROCESSES, &o, run_until_over, f);
        uint32_t random = 7;
        for (int r = 0; r < SIZE; r++)
            EXPECT(wait_until(&f->done[r], 1), "rank %d has not begun", r);
        for (int round = 0; round < 60 / SLOWDOWN; round++) {
            random = random * 1664525u + 1013904223u;
            const uint32_t running = (random >> 16) % 15 + 1; /* a set of ranks */
            if (__builtin_popcount(running) < quorum)
                continue;
            sleep_ms((random >> 8) % 64 * 0.05);
            for (int r = 0; r < SIZE; r++)
                if (!(running >> r & 1))
                    team_stop(t, r);
            for (int r = 0; r < SIZE; r++)
                if (running >> r & 1)
                    EXPECT(wait_until(&f->done[r], atomic_load(&f->done[r]) + 3),
                           "rank %d stands still while the set %#x runs", r, running);
            for (int r = 0; r < SIZE; r++)
                if (!(running >> r & 1))
                    team_continue(t, r);
        }
        atomic_store(&f->over, 1);
        team_join_clean(t);
        CHECK(expectations_failed() == 0, "quorum %d", quorum);
    }
}

/* ---- sync versions and timeouts -------------------------------------------------------------- */

typedef struct sleeper {
    _Atomic int ended;
    int comes_last[SIZE]; /* before version 1 it waits for the others */
    double timeout;       /* of the others, when they have come to version 2; negative: none */
    int status[SIZE];
    double took[SIZE]; /* s, the longest call */
    char message[SIZE][512];
} sleeper;

/* Waits until the others have failed, or have been warned about version 2 twice. */
static void sleep_until_noticed(rank *me) {
    sleeper *p = me->shared;
    int others = 0;
    for (int r = 0; r < SIZE; r++)
        others += !p->comes_last[r];
    while (p->timeout >= 0 && atomic_load(&p->ended) < others)
        sleep_ms(1);
    for (int r = 0; p->timeout < 0 && r < SIZE; r++)
        while (!p->comes_last[r] && team_warnings(me->team, r, "version 2 ") < 2)
            sleep_ms(1);
}

/* Posts, waits until the others that are not late have come, too, and then loses its patience. */
static int wait_with_timeout(rank *me, wagma_handle *h, double *x, wagma_outcome *o) {
    sleeper *p = me->shared;
    const int status = wagma_post(h, x, 1, 0);
    for (int r = 0; r < SIZE; r++)
        while (!p->comes_last[r] && published(me->segment, r) < 2)
            sleep_ms(0.2);
    have_patience(h, p->timeout);
    return status == WAGMA_INPROGRESS ? wagma_finish(h, x, o) : status;
}

static void run_with_sleeper(rank *me) {
    sleeper *p = me->shared;
    double x[3];
    wagma_outcome o;
    wagma_handle *h = rank_join(me, NULL);
    for (int64_t t = 0; h && t < 6; t++) { /* 2 and 5 are sync versions */
        contribute(WAGMA_F64, x, me->rank, t, 3);
        if (t == 1 && p->comes_last[me->rank])
            sleep_until_noticed(me);
        const double began = seconds();
        const int status = t == 2 && p->timeout >= 0 && !p->comes_last[me->rank]
                               ? wait_with_timeout(me, h, x, &o)
                               : wagma_allreduce(h, x, 1, &o);
        const double took = seconds() - began;
        if (took > p->took[me->rank])
            p->took[me->rank] = took;
        p->status[me->rank] = status;
        if (status != WAGMA_OK) {
            snprintf(p->message[me->rank], sizeof p->message[0], "%s", wagma_last_error());
            break;
        }
        EXPECT(t % 3 != 2 || (!o.late && o.contributors_count == SIZE), "sync holds %d",
               o.contributors_count);
    }
    wagma_close(h);
    wagma_free(h);
    atomic_fetch_add(&p->ended, 1);
}

/* A sync version waits for a rank that sleeps, warns again and again, and is then complete. */
static void test_warnings_repeat(void) {
    sleeper *p = shared_memory(sizeof *p);
    wagma_options o = options_of(SIZE, SIZE, 1, 3);
    o.sync_period = 3;
    o.stall_warning = 0.1;
    p->timeout = -1;
    p->comes_last[3] = 1;
    team *t = team_start(THREADS, &o, run_with_sleeper, p);
    for (int r = 0; r < 3; r++)
        expect_warning(t, r, "version 2 ", "phase sync",
                       "for rank 3, which is alive and has not called yet");
    while (atomic_load(&p->ended) < SIZE)
        sleep_ms(1);
    for (int r = 0; r < 3; r++) {
        const int warnings = team_warnings(t, r, "version 2 ");
        EXPECT(warnings >= 2 && warnings <= p->took[r] / o.stall_warning,
               "rank %d: %d warnings in %g s", r, warnings, p->took[r]);
    }
    team_join_clean(t);
    CHECK(expectations_failed() == 0, "see above");
}

/* With a timeout the ranks that are there give up, naming the missing ones. For those version 2 is
 * complete when they come, everybody has contributed; they fail at the next sync version. */
static void test_timeout(void) {
    sleeper *p = shared_memory(sizeof *p);
    wagma_options o = options_of(SIZE, SIZE, 1, 3);
    o.sync_period = 3;
    o.timeout = PATIENCE_SECONDS;
    p->timeout = 0.2;
    p->comes_last[1] = p->comes_last[3] = 1;
    team_join(team_start(processes_if_seen(), &o, run_with_sleeper, p));
    for (int r = 0; r < SIZE; r += 2) {
        EXPECT(p->status[r] == WAGMA_ESTALL && p->took[r] >= 0.2, "rank %d: %d after %g s", r,
               p->status[r], p->took[r]);
        EXPECT(strstr(p->message[r], "version 2 (phase sync)") &&
                   strstr(p->message[r], "ranks 1, 3") && strstr(p->message[r], "timeout 0.2 s"),
               "rank %d: %s", r, p->message[r]);
    }
    for (int r = 1; r < SIZE; r += 2)
        EXPECT(p->status[r] == WAGMA_EPEER && strstr(p->message[r], "rank 0 failed") &&
                   strstr(p->message[r], "version 5 (phase sync)"),
               "rank %d: %d %s", r, p->status[r], p->message[r]);
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    if (SEES_PROCESSES) {
        RUN(test_stopped_outside);
        RUN(test_stopped_before_publishing);
        RUN(test_stopped_in_slice);
        RUN(test_stopped_anywhere);
    }
    RUN(test_warnings_repeat);
    RUN(test_timeout);
    return check_summary();
}
