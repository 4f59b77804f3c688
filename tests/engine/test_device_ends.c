/* Ranks with arrays on simulated devices that sleep, leave, or are killed: the others go on, and
 * read what those have contributed. */
/* short run: c asan tsan */
#include "check.h"
#include "contribution.h"
#include "place.h"
#include "shm/device/executor.h"
#include "support.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>

/* s until a close gives up waiting for ranks that open nothing */
static const double TIMEOUT = 0.3;
enum { COUNT = 20011, BYTES = COUNT * (int)sizeof(double) };

typedef struct plan {
    int sleeper;        /* calls its version SLEEPS when the others have gone on; -1: nobody */
    int leaver, killed; /* ends before version ENDS; -1: nobody */
    int64_t sleeps, ends, versions;
    _Atomic int64_t called[RANKS_MAX]; /* the next version */
    _Atomic int failed, made;
    int64_t late, newest;
} plan;

static int first_kind(void) {
    return places_gpus ? PROCESSES : THREADS; /* place.h */
}

static plan *shared_plan(int64_t versions) {
    plan *p = shared_memory(sizeof *p);
    p->sleeper = p->leaver = p->killed = -1;
    p->versions = versions;
    return p;
}

/* Waits until all others have departed, and gives them the time to do what they must not. */
static void sleep_until_others_end(rank *me) {
    for (int r = 0; r < me->size; r++)
        while (r != me->rank && published(me->segment, r) != INT64_MAX)
            sleep_ms(0.2);
    sleep_ms(20);
}

static int ends_now(rank *me, plan *p, int64_t t) {
    for (int r = 0; p->killed >= 0 && r < me->size && t <= p->ends; r++)
        while (atomic_load(&p->called[r]) < t) /* all have opened what the victim has made */
            sleep_ms(0.2);
    if (t != p->ends)
        return 0;
    if (me->rank == p->killed)
        raise(SIGKILL);
    while (p->killed >= 0 && atomic_load(&p->called[p->killed]) != INT64_MAX)
        sleep_ms(0.2);
    return me->rank == p->leaver;
}

/* A rank whose version is over. */
static void call_on(rank *me, wagma_handle *h, void *x, double *host) {
    plan *p = me->shared;
    place *where = place_of(me->rank);
    wagma_outcome o;
    while (h && wagma_version(h) < p->versions && !ends_now(me, p, wagma_version(h))) {
        const int64_t t = wagma_version(h);
        if (me->rank == p->sleeper && t == p->sleeps)
            sleep_until_others_end(me);
        while (p->sleeper >= 0 && t == p->sleeps && atomic_load(&p->called[p->sleeper]) < t)
            sleep_ms(0.2); /* it has merged nothing newer */
        contribute(WAGMA_F64, host, me->rank, t, COUNT);
        place_put(where, x, host, BYTES);
        const int status = wagma_allreduce(h, x, 1, &o);
        if (!EXPECT(status == WAGMA_OK, "rank %d: %s", me->rank, wagma_last_error())) {
            atomic_store(&p->failed, 1);
            break;
        }
        if (me->rank == p->sleeper && t == p->sleeps) {
            p->late = o.late;
            for (int i = 0; i < o.contributors_count; i++)
                p->newest = o.versions[i] > p->newest ? o.versions[i] : p->newest;
        }
        o.late &= me->segment->options.late == WAGMA_LATE_STALE; /* else its own is in none */
        expect_result(me, place_look(where, x, BYTES), &o);
        atomic_store(&p->called[me->rank], wagma_version(h));
    }
}

static void run(rank *me) {
    plan *p = me->shared;
    place *where = place_of(me->rank);
    double *host = malloc(BYTES);
    void *x = place_new(where, BYTES);
    contribute(WAGMA_F64, host, me->rank, -1, COUNT);
    place_put(where, x, host, BYTES);
    wagma_handle *h = rank_join(me, x);
    atomic_fetch_add(&p->made, 1);
    while (atomic_load(&p->made) < me->size) /* nobody ends while others are made */
        sleep_ms(0.2);
    call_on(me, h, x, host);
    atomic_store(&p->called[me->rank], INT64_MAX); /* from here on nobody waits for it */
    if (h)
        EXPECT(wagma_close(h) == WAGMA_OK, "%s", wagma_last_error());
    wagma_free(h);
    place_free(where, x);
    free(host);
    EXPECT(!places_trouble(), "rank %d: %s", me->rank, places_trouble());
}

static void play(enum kind kind, const wagma_options *o, plan *p, uint64_t seed) {
    places_begin(o->size, seed, BYTES);
    team *t = team_start(kind, o, run, p);
    if (p->killed >= 0)
        team_await_killed(t, p->killed);
    if (p->killed >= 0)
        atomic_store(&p->called[p->killed], INT64_MAX);
    team_join(t);
    places_end();
}

/* The others have the result of every version, and the sleeper merges the newest. */
static void test_one_sleeps(void) {
    for (int size = 2; size <= 5; size++)
        for (int kind = first_kind(); kind <= (int)processes_if_seen(); kind++) {
            wagma_options o = options_of(size, size, 1, COUNT);
            plan *p = shared_plan(12);
            p->sleeper = size - 1;
            p->sleeps = 4;
            play((enum kind)kind, &o, p, (uint64_t)size);
            EXPECT(p->late && p->newest == p->versions - 1, "late %d, newest %d", (int)p->late,
                   (int)p->newest);
            CHECK(expectations_failed() == 0, "P=%d, %s", size, kind_name[kind]);
        }
}

/* The sleeper reads what those that have left made while it slept. */
static void test_all_leave_but_the_sleeper(void) {
    for (int size = 2; size <= 4; size++)
        for (int late = WAGMA_LATE_STALE; late <= WAGMA_LATE_SKIP; late++)
            for (int kind = first_kind(); kind <= (int)processes_if_seen(); kind++) {
                wagma_options o = options_of(size, size, 1, COUNT);
                plan *p = shared_plan(7);
                o.late = late;
                p->sleeper = 0;
                p->sleeps = 1;
                play((enum kind)kind, &o, p, (uint64_t)size);
                CHECK(expectations_failed() == 0, "P=%d late %d, %s", size, late, kind_name[kind]);
            }
}

/* With quorum "all" of those that are left. */
static void test_departure(void) {
    for (int size = 2; size <= 4; size++)
        for (int group = size - 1; group <= size; group++)
            for (int kind = first_kind(); kind <= (int)processes_if_seen(); kind++) {
                wagma_options o = options_of(size, group, group, COUNT);
                plan *p = shared_plan(12);
                p->leaver = size / 2;
                p->ends = 3;
                play((enum kind)kind, &o, p, (uint64_t)size);
                CHECK(expectations_failed() == 0, "P=%d S=%d, %s", size, group, kind_name[kind]);
            }
}

/* A rank that is killed is read from what was opened before. */
static void test_killed(void) {
    for (int size = 2; size <= 4; size++)
        for (int64_t ends = 0; ends < 4; ends++) {
            wagma_options o = options_of(size, size, 1, COUNT);
            plan *p = shared_plan(12);
            p->killed = size - 1;
            p->ends = ends;
            play(PROCESSES, &o, p, (uint64_t)ends);
            CHECK(expectations_failed() == 0, "P=%d, killed before %" PRId64, size, ends);
        }
}

/* Makes as much memory as versions can need: the others open it at their next call. */
static void make_more(rank *me, wagma_handle *h) {
    for (int b = segment_joined_contributions(me->segment); b < me->segment->buffers; b++)
        EXPECT(device_add_contribution(h, b) == 0, "%s", wagma_last_error());
}

/* All that are `leaver` or, if that is -1, all ranks close with memory that nobody has opened. */
static void run_and_grow(rank *me) {
    plan *p = me->shared;
    place *where = place_of(me->rank);
    double *host = calloc(COUNT, sizeof *host);
    void *x = place_new(where, BYTES);
    wagma_outcome o;
    place_put(where, x, host, BYTES);
    wagma_handle *h = rank_join(me, x);
    if (h && (p->leaver < 0 || p->leaver == me->rank))
        make_more(me, h);
    atomic_fetch_add(&p->made, 1);
    while (atomic_load(&p->made) < me->size)
        sleep_ms(0.2);
    if (h && p->leaver >= 0 && p->leaver != me->rank) {
        while (atomic_load(&p->called[p->leaver]) != INT64_MAX)
            sleep_ms(0.2);
        EXPECT(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "rank %d: %s", me->rank,
               wagma_last_error());
    }
    if (h)
        EXPECT(wagma_close(h) == WAGMA_OK, "%s", wagma_last_error());
    wagma_free(h);
    place_free(where, x);
    free(host);
}

/* Ranks that close together do not wait for each other to open what they have made. */
static void test_all_close(void) {
    for (int size = 2; size <= 4; size++) {
        wagma_options o = options_of(size, size, 1, COUNT);
        plan *p = shared_plan(0);
        places_begin(size, (uint64_t)size, BYTES);
        team_join(team_start(PROCESSES, &o, run_and_grow, p));
        places_end();
        CHECK(expectations_failed() == 0, "P=%d", size);
    }
}

/* A rank that waited long enough for the others takes its memory along, which nobody needs. */
static void test_memory_is_gone(void) {
    for (int size = 2; size <= 4; size++) {
        wagma_options o = options_of(size, size, 1, COUNT);
        plan *p = shared_plan(1);
        p->leaver = size - 1;
        o.timeout = TIMEOUT;
        places_begin(size, (uint64_t)size, BYTES);
        team *t = team_start(PROCESSES, &o, run_and_grow, p);
        team_await_exit(t, p->leaver);
        atomic_store(&p->called[p->leaver], INT64_MAX);
        team_join(t);
        places_end();
        CHECK(expectations_failed() == 0, "P=%d", size);
    }
}

int main(void) {
    arrays_on_devices = 1;
    RUN(test_one_sleeps);
    RUN(test_all_leave_but_the_sleeper);
    RUN(test_departure);
    if (SEES_PROCESSES) {
        RUN(test_killed);
        RUN(test_all_close);
        RUN(test_memory_is_gone);
    }
    return check_summary();
}
