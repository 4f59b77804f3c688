/* Arrays on simulated devices that are staged, in a segment and over messages: the order of copies
 * and calls, waits for a device, what is refused, and what goes wrong. The results of all policies
 * are in test_staged_fuzz*.c. */
/* short run: asan */
#include "check.h"
#include "device_stage.h"
#include "engine/handle.h"
#include "transport_sim.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static double host[BYTES / sizeof(double)];

static const char *over(int messages) {
    messages_for_threads = messages;
    return messages ? "over messages" : "in a segment";
}

/* ---- order ----------------------------------------------------------------------------------- */

static void test_posted_before_x_is_there(void) {
    for (uint64_t seed = 0; seed < 12 / SLOWDOWN + 2; seed++) {
        const char *how = over(seed % 2);
        play_posted_before_x(seed);
        CHECK(expectations_failed() == 0, "seed %" PRIu64 " %s", seed, how);
    }
}

/* A result out of place is looked at late, when its rank has called again. */
static void test_results_stay(void) {
    for (uint64_t seed = 0; seed < 12 / SLOWDOWN + 2; seed++) {
        const char *how = over(seed % 2);
        wagma_options options = options_of(2, 2, 1, COUNT);
        place *p = place_of(0);
        wagma_outcome o;
        void *buffer, *again;
        stage s;
        CHECK(stage_open(&s, &options, seed), "%s", wagma_last_error());
        wagma_handle *h = s.cast.handle[0];
        for (int64_t t = 0; t < 4; t++) {
            EXPECT(wagma_next_contribution(h, &buffer) == WAGMA_OK &&
                       wagma_next_contribution(h, &again) == WAGMA_OK && buffer == again,
                   "%s", wagma_last_error());
            put(0, buffer, t);
            EXPECT(wagma_allreduce(h, buffer, 1, &o) == WAGMA_OK && o.result, "%s",
                   wagma_last_error());
            const void *seen = place_look(p, o.result, BYTES);
            expect_result(&s.me[0], seen, &o);
            machine_hold(p->device, p->stream[p->used]);
            machine_expect(p->device, p->stream[p->used], o.result, seen, BYTES);
            EXPECT(wagma_next_contribution(h, &buffer) == WAGMA_OK, "%s", wagma_last_error());
            EXPECT(wagma_set_stream(h, p->stream[1 - p->used]) == WAGMA_OK, "%s",
                   wagma_last_error());
            p->used = 1 - p->used;
            put(0, s.x[0], ++t);
            EXPECT(wagma_post(h, s.x[0], 1, 0) == WAGMA_INPROGRESS, "post");
            for (int i = 0; i < 100; i++)
                EXPECT(wagma_test(h, s.x[0], &o) == WAGMA_INPROGRESS, "over");
            machine_release(p->device);
            EXPECT(wagma_finish(h, s.x[0], &o) == WAGMA_OK, "%s", wagma_last_error());
            expect_outcome(&s, 0, s.x[0], &o);
        }
        stage_close(&s);
        CHECK(expectations_failed() == 0, "seed %" PRIu64 " %s", seed, how);
    }
}

/* What the caller queues after a failed call comes behind the call's copies to its array: here the
 * result is on its way to x when there is no memory to show it. */
static void test_x_after_an_error(void) {
    for (uint64_t seed = 0; seed < 24 / SLOWDOWN + 8; seed++) {
        const char *how = over(seed % 2);
        wagma_options options = options_of(2, 2, 1, COUNT);
        stage s;
        options.late = WAGMA_LATE_SKIP;
        CHECK(stage_open(&s, &options, seed), "%s", wagma_last_error());
        for (int64_t t = 0; t < 2; t++) {
            put(1, s.x[1], t);
            EXPECT(wagma_allreduce(s.cast.handle[1], s.x[1], 1, NULL) == WAGMA_OK, "%s",
                   wagma_last_error());
        }
        put(0, s.x[0], 0);
        machine_fail(place_of(0)->device, MACHINE_ALLOC, 1);
        EXPECT(wagma_allreduce(s.cast.handle[0], s.x[0], 1, NULL) == WAGMA_ENOMEM, "%s",
               wagma_last_error());
        EXPECT(strstr(wagma_last_error(), "injected") &&
                   strstr(wagma_last_error(), "or a smaller window"),
               "%s", wagma_last_error());
        put(0, s.x[0], 9);
        wagma_free(s.cast.handle[0]);
        s.cast.handle[0] = NULL;
        contribute(WAGMA_F64, host, 0, 9, COUNT);
        EXPECT(memcmp(place_look(place_of(0), s.x[0], BYTES), host, BYTES) == 0,
               "a failed call has written x late");
        wagma_free(s.cast.handle[1]);
        s.cast.handle[1] = NULL;
        stage_drop(&s);
        CHECK(expectations_failed() == 0, "seed %" PRIu64 " %s", seed, how);
    }
}

/* ---- waits for a device ---------------------------------------------------------------------- */

enum way { SERVES, TIMES_OUT, FAILS };

typedef struct wait {
    _Atomic int made, served;
    enum way ends; /* the wait: when x is there, by `timeout`, or by wagma_fail() */
} wait;

struct ending {
    wagma_handle *h;
};

static void *end_soon(void *argument) {
    sleep_ms(20);
    wagma_fail(((struct ending *)argument)->h);
    return NULL;
}

static void await_x(wait *w, wagma_handle *h, void *x) {
    static const int expected[] = {WAGMA_OK, WAGMA_ESTALL, WAGMA_ECLOSED};
    pthread_t thread;
    struct ending ending = {h};
    if (w->ends == FAILS)
        pthread_create(&thread, NULL, end_soon, &ending);
    if (w->ends == TIMES_OUT)
        have_patience(h, 1);
    const int status = wagma_allreduce(h, x, 1, NULL);
    EXPECT(status == expected[w->ends], "rank 0: status %d: %s", status, wagma_last_error());
    if (w->ends == FAILS)
        pthread_join(thread, NULL);
    if (w->ends == TIMES_OUT)
        EXPECT(strstr(wagma_last_error(), "(phase device) for rank 0"), "%s", wagma_last_error());
}

/* Rank 0 waits for its x, and serves the others meanwhile: x is there when they have called. */
static void wait_for_x(rank *me) {
    wait *w = me->shared;
    place *p = place_of(me->rank);
    void *x = place_new(p, BYTES);
    put(me->rank, x, -1);
    wagma_handle *h = rank_join(me, x);
    if (me->rank == 0)
        machine_hold(p->device, p->stream[0]);
    atomic_fetch_add(&w->made, 1);
    while (atomic_load(&w->made) < me->size)
        sleep_ms(0.2);
    int status = WAGMA_OK;
    if (me->rank == 0)
        await_x(w, h, x);
    else
        sleep_ms(20); /* rank 0 waits */
    for (int t = 0; me->rank != 0 && t < 10 && status == WAGMA_OK; t++)
        status = wagma_allreduce(h, x, 1, NULL);
    EXPECT(status == WAGMA_OK || (w->ends != SERVES && status == WAGMA_EPEER), "rank %d: %d %s",
           me->rank, status, wagma_last_error());
    const int last = me->rank != 0 && atomic_fetch_add(&w->served, 1) == me->size - 2;
    if (w->ends == SERVES ? last : me->rank == 0)
        machine_release(place_of(0)->device);
    if (me->rank != 0 || w->ends == SERVES)
        (void)wagma_close(h); /* rank 0 may have failed */
    wagma_free(h);
    place_free(p, x);
}

static void test_waits(void) {
    for (int k = 0; k < 7; k++) {
        const char *how = over(k % 2 || k == 6);
        wagma_options o = options_of(3, 3, 1, COUNT);
        wait w = {.ends = k < 2 || k == 6 ? SERVES : k < 4 ? TIMES_OUT : FAILS};
        o.timeout = PATIENCE_SECONDS;
        o.progress = k == 6 ? WAGMA_PROGRESS_MAIN : WAGMA_PROGRESS_SLEEP;
        places_begin(3, (uint64_t)k, BYTES);
        team_join(team_start(THREADS, &o, wait_for_x, &w));
        places_end();
        CHECK(expectations_failed() == 0, "%d %s", k, how);
    }
}

/* For the others the wait for x is computing: `timeout` and warnings begin behind it. */
static void test_timeout_begins_with_the_executor(void) {
    for (int messages = 0; messages < 2; messages++) {
        const char *how = over(messages);
        wagma_options options = options_of(2, 2, 2, COUNT);
        stage s;
        CHECK(stage_open(&s, &options, 1), "%s", wagma_last_error());
        wagma_handle *const *h = s.cast.handle;
        machine_hold(place_of(0)->device, place_of(0)->stream[0]);
        for (int r = 0; r < 2; r++)
            put(r, s.x[r], 0);
        EXPECT(wagma_post(h[0], s.x[0], 1, 0) == WAGMA_INPROGRESS, "post");
        EXPECT(wagma_wait(h[0], s.x[0], 0.3, NULL) == WAGMA_INPROGRESS, "wait");
        EXPECT(h[0]->call.delay > 0, "no time has passed");
        const uint64_t released = clock_now();
        machine_release(place_of(0)->device);
        while (!h[0]->call.active)
            EXPECT(wagma_test(h[0], s.x[0], NULL) == WAGMA_INPROGRESS, "test");
        EXPECT(h[0]->call.delay <= clock_now() - released, "rank 1 has been waited for %.3f s",
               (double)h[0]->call.delay * 1e-9);
        EXPECT(wagma_post(h[1], s.x[1], 1, 0) == WAGMA_INPROGRESS, "post");
        int status[2] = {WAGMA_INPROGRESS, WAGMA_INPROGRESS};
        for (int r = 0; status[0] == WAGMA_INPROGRESS || status[1] == WAGMA_INPROGRESS; r = 1 - r)
            if (status[r] == WAGMA_INPROGRESS)
                status[r] = wagma_test(h[r], s.x[r], NULL);
        EXPECT(status[0] == WAGMA_OK && status[1] == WAGMA_OK, "%s", wagma_last_error());
        stage_close(&s);
        CHECK(expectations_failed() == 0, "%s", how);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_refused(void) {
    (void)over(0);
    wagma_options options = options_of(1, 1, 1, 10), on_host = options, direct = options;
    wagma_segment *segment;
    wagma_handle *h;
    void *stream, *buffer;
    on_host.memory = WAGMA_MEMORY_HOST;
    direct.memory = WAGMA_MEMORY_DEVICE;
    places_begin(1, 1, 100);
    wagma_device *d = place_of(0)->device;
    stream = place_of(0)->stream[0];
    CHECK(wagma_segment_create(&options, NULL, &segment) == WAGMA_OK, "%s", wagma_last_error());
    REFUSED(wagma_create(segment, 0, NULL, 1, NULL, &h), WAGMA_EINVAL, "wagma_create_on()");
    REFUSED(wagma_create_over_on(NULL, &options, d, stream, NULL, 1, NULL, &h), WAGMA_EINVAL,
            "transport is NULL");
    const struct {
        const wagma_options *options;
        wagma_device *device;
        const char *says;
    } cases[] = {
        {&on_host, d, "WAGMA_MEMORY_STAGED"},
        {&direct, d, "it needs a segment"},
        {&options, NULL, "device is NULL"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sim *sim = sim_create(1, 1, (struct sim_options){0});
        REFUSED(wagma_create_over_on(sim_transport(sim, 0), cases[i].options, cases[i].device,
                                     stream, NULL, 1, NULL, &h),
                WAGMA_EINVAL, cases[i].says);
        sim_free(sim);
    }
    struct sim *sim = sim_create(1, 1, (struct sim_options){0});
    REFUSED(wagma_create_over(sim_transport(sim, 0), &options, NULL, 1, NULL, &h), WAGMA_EINVAL,
            "wagma_create_over_on()");
    sim_free(sim);
    REFUSED(wagma_create_on(segment, 0, d, stream, NULL, 1, NULL, &h), WAGMA_OK, "");
    EXPECT(!wagma_shared_array(h) && strstr(wagma_last_error(), "on a device"), "%s",
           wagma_last_error());
    REFUSED(wagma_next_contribution(h, &buffer), WAGMA_EINVAL, "pass x itself, any array of the ");
    wagma_close(h);
    wagma_free(h);
    wagma_segment_close(segment);
    places_end();
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- failures -------------------------------------------------------------------------------- */

typedef struct attempt {
    enum machine_call call;
    int nth; /* of rank 0, after creation if `later` */
    int later;
    _Atomic int made;
    int status[3];
    char message[3][256];
} attempt;

static void attempt_calls(rank *me) {
    attempt *a = me->shared;
    place *p = place_of(me->rank);
    wagma_handle *h;
    void *x = place_new(p, BYTES);
    put(me->rank, x, -1);
    if (me->rank == 0 && !a->later)
        machine_fail(p->device, a->call, a->nth);
    wagma_transport *transport = me->sim ? sim_transport(me->sim, me->rank) : NULL;
    int status = place_join(me->segment, transport, me->rank, x, NULL, &h);
    atomic_fetch_add(&a->made, 1);
    while (atomic_load(&a->made) < me->size)
        sleep_ms(0.2);
    if (status == WAGMA_OK && me->rank == 0 && a->later)
        machine_fail(p->device, a->call, a->nth);
    for (int64_t t = 0; status == WAGMA_OK && t < 5; t++) {
        machine_write(p->device, p->stream[0], x, host, BYTES);
        status = wagma_allreduce(h, x, 1, NULL);
    }
    a->status[me->rank] = status;
    snprintf(a->message[me->rank], sizeof a->message[0], "%s", wagma_last_error());
    if (status == WAGMA_OK)
        (void)wagma_close(h);
    wagma_free(h);
    machine_fail(p->device, a->call, 0);
    place_free(p, x);
}

/* Whatever fails on one rank, all ranks end, with errors that tell, and all is freed. */
static void test_one_device_fails(void) {
    static const int steps[MACHINE_CALLS] = {
        [MACHINE_RECORD] = 6, [MACHINE_WAIT] = 6, [MACHINE_QUEUE] = 3, [MACHINE_WORK] = 3};
    for (int k = 0; k < 4; k++)
        for (int call = 0; call < MACHINE_CALLS; call++)
            for (int nth = 1, last = 0; !last && nth < 100; nth += 1 + steps[call]) {
                const char *how = over(k % 2);
                attempt a = {.call = (enum machine_call)call, .nth = nth, .later = k / 2};
                wagma_options options = options_of(3, 3, 2, COUNT);
                options.timeout = 20;
                options.late = WAGMA_LATE_SKIP;
                places_begin(3, (uint64_t)nth, BYTES);
                team_join(team_start(THREADS, &options, attempt_calls, &a));
                places_end();
                last = a.status[0] == WAGMA_OK; /* that many calls are not made */
                const int expected =
                    call == MACHINE_ALLOC || call == MACHINE_PIN ? WAGMA_ENOMEM : WAGMA_ESYS;
                EXPECT(last || (a.status[0] == expected && strstr(a.message[0], "injected")) ||
                           strstr(a.message[0], "its work has failed"),
                       "rank 0: status %d: %s", a.status[0], a.message[0]);
                for (int r = 1; r < 3; r++) /* rank 0 may be needed no more */
                    EXPECT(a.status[r] == WAGMA_OK || (!last && a.status[r] == WAGMA_EPEER &&
                                                       strstr(a.message[r], "failed")),
                           "rank %d: status %d: %s", r, a.status[r], a.message[r]);
                if (call == MACHINE_PIN && nth == 1 && !a.later)
                    EXPECT(strstr(a.message[0], "could not pin") && a.status[1] == WAGMA_EPEER &&
                               a.status[2] == WAGMA_EPEER,
                           "%s", a.message[0]);
                CHECK(expectations_failed() == 0, "later %d call %d, number %d %s", a.later, call,
                      nth, how);
            }
}

/* Messages under way read what a rank that has failed has sent. */
static void test_freed_with_messages_under_way(void) {
    (void)over(1);
    for (uint64_t seed = 0; seed < 30 / SLOWDOWN + 6; seed++) {
        wagma_options options = options_of(2, 2, 2, COUNT);
        stage s;
        options.progress = WAGMA_PROGRESS_MAIN;
        CHECK(stage_open(&s, &options, seed), "%s", wagma_last_error());
        for (int r = 0; r < 2; r++) {
            put(r, s.x[r], 0);
            EXPECT(wagma_post(s.cast.handle[r], s.x[r], 1, 0) == WAGMA_INPROGRESS, "post");
        }
        int status = WAGMA_INPROGRESS;
        uint64_t polls = 0; /* while both have begun */
        for (int r = 0; polls < 2 + seed && status == WAGMA_INPROGRESS; r = 1 - r) {
            status = wagma_test(s.cast.handle[r], s.x[r], NULL);
            polls += s.cast.handle[0]->call.active && s.cast.handle[1]->call.active;
        }
        wagma_fail(s.cast.handle[0]);
        wagma_free(s.cast.handle[0]);
        s.cast.handle[0] = NULL;
        status = WAGMA_INPROGRESS;
        while (status == WAGMA_INPROGRESS && wagma_version(s.cast.handle[1]) == 0)
            status = wagma_test(s.cast.handle[1], s.x[1], NULL);
        EXPECT(status == WAGMA_EPEER || wagma_version(s.cast.handle[1]) == 1, "status %d: %s",
               status, wagma_last_error());
        stage_drop(&s);
        CHECK(expectations_failed() == 0, "seed %" PRIu64, seed);
    }
}

int main(void) {
    arrays_on_devices = WAGMA_MEMORY_STAGED;
    RUN(test_posted_before_x_is_there);
    RUN(test_results_stay);
    RUN(test_x_after_an_error);
    RUN(test_waits);
    RUN(test_timeout_begins_with_the_executor);
    RUN(test_refused);
    RUN(test_one_device_fails);
    RUN(test_freed_with_messages_under_way);
    return check_summary();
}
