/* Arrays on simulated devices: the order of streams and calls, what is refused, and what goes wrong
 * at creation. test_device_busy.c has devices that are full or busy, test_device_fuzz.c and
 * test_device_fuzz_threads.c have the results of all policies, test_device_ends.c has ranks that
 * leave. */
/* short run: c asan tsan */
#include "check.h"
#include "device_stage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static double host[BYTES / sizeof(double)];

/* ---- order ----------------------------------------------------------------------------------- */

static void test_posted_before_x_is_there(void) {
    for (uint64_t seed = 0; seed < 10 / SLOWDOWN + 1; seed++) {
        play_posted_before_x(seed);
        CHECK(expectations_failed() == 0, "seed %" PRIu64, seed);
    }
}

/* Out of place: the buffer is filled late; the results are looked at late, too. */
static void test_out_of_place(void) {
    for (uint64_t seed = 0; seed < 16 / SLOWDOWN + 1; seed++) {
        wagma_options options = options_of(2, 2, 1 + (int)(seed % 2), COUNT);
        stage s;
        CHECK(stage_open(&s, &options, seed), "%s", wagma_last_error());
        for (int64_t t = 0; t < 6; t++) {
            void *buffer[2];
            wagma_outcome o[2];
            for (int r = 0; r < 2; r++) {
                EXPECT(wagma_next_contribution(s.cast.handle[r], &buffer[r]) == WAGMA_OK, "%s",
                       wagma_last_error());
                put(r, buffer[r], t);
                EXPECT(wagma_post(s.cast.handle[r], buffer[r], 1, 0) == WAGMA_INPROGRESS, "post");
            }
            int done = 0;
            while (done != 3 && expectations_failed() == 0)
                for (int r = 0; r < 2; r++) {
                    const int status = done & 1 << r
                                           ? WAGMA_INPROGRESS
                                           : wagma_test(s.cast.handle[r], buffer[r], &o[r]);
                    EXPECT(status == WAGMA_OK || status == WAGMA_INPROGRESS, "%s",
                           wagma_last_error());
                    done |= (status == WAGMA_OK) << r;
                }
            for (int r = 0; r < 2 && done == 3; r++) {
                const void *seen = place_look(place_of(r), o[r].result, BYTES);
                expect_result(&s.me[r], seen, &o[r]);
            }
        }
        stage_close(&s);
        CHECK(expectations_failed() == 0, "seed %" PRIu64, seed);
    }
}

/* The caller's stream, and nothing else, waits for the result. */
static void test_result_on_the_callers_stream(void) {
    wagma_options options = options_of(1, 1, 1, COUNT);
    for (uint64_t seed = 0; seed < 40 / SLOWDOWN + 1; seed++) {
        wagma_outcome o;
        stage s;
        options.late = seed % 2 ? WAGMA_LATE_SKIP : WAGMA_LATE_STALE;
        CHECK(stage_open(&s, &options, seed), "%s", wagma_last_error());
        for (int64_t t = 0; t < 4; t++) {
            put(0, s.x[0], t);
            EXPECT(wagma_allreduce(s.cast.handle[0], s.x[0], 2, &o) == WAGMA_OK, "%s",
                   wagma_last_error());
            const double *seen = place_look(place_of(0), s.x[0], BYTES);
            for (int64_t i = 0; i < COUNT; i += 997)
                EXPECT(seen[i] == 2 * contribution(WAGMA_F64, 0, t, i), "x[%" PRId64 "] is %g", i,
                       seen[i]);
        }
        stage_close(&s);
        CHECK(expectations_failed() == 0, "seed %" PRIu64, seed);
    }
}

/* A call of ranks 1 and 2, of which rank 2 pins the version. */
static void call_both(stage *s, int64_t t) {
    EXPECT(publish(s, 1, s->x[1], t) == WAGMA_INPROGRESS, "it is over");
    put(2, s->x[2], t);
    for (int r = 2; r > 0; r--) {
        wagma_handle *h = s->cast.handle[r];
        const int status =
            r == 2 ? wagma_allreduce(h, s->x[r], 1, NULL) : wagma_finish(h, s->x[r], NULL);
        EXPECT(status == WAGMA_OK, "rank %d: %s", r, wagma_last_error());
    }
}

/* A result that lies with rank 2 stays while it is looked at, though its rank has called again. */
static void test_view_of_another_rank(void) {
    for (uint64_t seed = 0; seed < 10 / SLOWDOWN + 1; seed++) {
        wagma_options options = options_of(3, 3, 2, COUNT);
        place *p = place_of(0);
        wagma_outcome o;
        void *buffer;
        stage s;
        CHECK(stage_open(&s, &options, seed), "%s", wagma_last_error());
        wagma_handle *h = s.cast.handle[0];
        EXPECT(wagma_next_contribution(h, &buffer) == WAGMA_OK, "%s", wagma_last_error());
        EXPECT(publish(&s, 0, buffer, 0) == WAGMA_INPROGRESS, "it is over");
        put(2, s.x[2], 0);
        EXPECT(wagma_allreduce(s.cast.handle[2], s.x[2], 1, NULL) == WAGMA_OK, "%s",
               wagma_last_error());
        put(1, s.x[1], 0);
        EXPECT(wagma_allreduce(s.cast.handle[1], s.x[1], 1, NULL) == WAGMA_OK, "%s",
               wagma_last_error());
        EXPECT(wagma_finish(h, buffer, &o) == WAGMA_OK && !o.late, "%s", wagma_last_error());
        const void *seen = place_look(p, o.result, BYTES);
        expect_result(&s.me[0], seen, &o);
        machine_hold(p->device, p->stream[0]);
        machine_expect(p->device, p->stream[0], o.result, seen, BYTES);
        put(0, s.x[0], 1);
        EXPECT(wagma_post(h, s.x[0], 1, 0) == WAGMA_INPROGRESS, "post");
        for (int64_t t = 1; t < 5; t++)
            call_both(&s, t);
        machine_release(p->device);
        EXPECT(wagma_finish(h, s.x[0], &o) == WAGMA_OK, "%s", wagma_last_error());
        expect_outcome(&s, 0, s.x[0], &o);
        stage_close(&s);
        CHECK(expectations_failed() == 0, "seed %" PRIu64, seed);
    }
}

/* Calls on another stream: a result that is looked at on the last one is not given up before. */
static void test_stream_changes(void) {
    wagma_options options = options_of(2, 2, 1, COUNT);
    for (uint64_t seed = 0; seed < 10 / SLOWDOWN + 1; seed++) {
        place *p = place_of(0);
        wagma_outcome o;
        void *buffer;
        stage s;
        CHECK(stage_open(&s, &options, seed), "%s", wagma_last_error());
        wagma_handle *h = s.cast.handle[0];
        EXPECT(wagma_next_contribution(h, &buffer) == WAGMA_OK, "%s", wagma_last_error());
        put(0, buffer, 0);
        EXPECT(wagma_allreduce(h, buffer, 1, &o) == WAGMA_OK, "%s", wagma_last_error());
        const void *seen = place_look(p, o.result, BYTES);
        machine_hold(p->device, p->stream[0]);
        machine_expect(p->device, p->stream[0], o.result, seen, BYTES);
        EXPECT(wagma_set_stream(h, p->stream[1]) == WAGMA_OK, "%s", wagma_last_error());
        p->used = 1;
        put(0, s.x[0], 1);
        EXPECT(wagma_post(h, s.x[0], 1, 0) == WAGMA_INPROGRESS, "post");
        int left = 100;
        while (left > 0 && wagma_test(h, s.x[0], &o) == WAGMA_INPROGRESS)
            left--;
        EXPECT(left == 0, "over while a result of the last call is looked at, %d", left);
        EXPECT(published(s.cast.segment, 0) == 0, "published %" PRId64,
               published(s.cast.segment, 0));
        machine_release(p->device);
        EXPECT(wagma_finish(h, s.x[0], &o) == WAGMA_OK, "%s", wagma_last_error());
        expect_outcome(&s, 0, s.x[0], &o);
        stage_close(&s);
        CHECK(expectations_failed() == 0, "seed %" PRIu64, seed);
    }
}

/* The last stream stays the caller's. */
static void test_stream_change_fails(void) {
    wagma_options options = options_of(1, 1, 1, COUNT);
    place *p = place_of(0);
    wagma_outcome o;
    stage s;
    CHECK(stage_open(&s, &options, 1), "%s", wagma_last_error());
    wagma_handle *h = s.cast.handle[0];
    machine_fail(p->device, MACHINE_RECORD, 1);
    EXPECT(wagma_set_stream(h, p->stream[1]) == WAGMA_ESYS, "it did not fail");
    machine_hold(p->device, p->stream[0]);
    put(0, s.x[0], 0);
    EXPECT(wagma_post(h, s.x[0], 1, 0) == WAGMA_INPROGRESS, "post");
    for (int left = 100; left > 0 && published(s.cast.segment, 0) < 0; left--)
        (void)wagma_test(h, s.x[0], &o);
    EXPECT(published(s.cast.segment, 0) == -1, "published before x is produced");
    machine_release(p->device);
    EXPECT(wagma_finish(h, s.x[0], &o) == WAGMA_OK, "%s", wagma_last_error());
    expect_outcome(&s, 0, s.x[0], &o);
    stage_close(&s);
    CHECK(expectations_failed() == 0, "see above");
}

/* Calls without elements need no x, wherever arrays are. */
static void test_no_elements(void) {
    for (int late = WAGMA_LATE_STALE; late <= WAGMA_LATE_CARRY; late++)
        for (int size = 1; size <= 3; size++)
            for (int device = 0; device < 2; device++) {
                cast c;
                arrays_on_devices = device;
                wagma_options o = options_of(size, size, 1, 0);
                o.late = late;
                places_begin(size, 1, 0);
                CHECK(cast_open(&c, &o, NULL, NULL), "%s", wagma_last_error());
                for (int t = 0; t < 3; t++)
                    for (int r = 0; r < size; r++)
                        EXPECT(wagma_allreduce(c.handle[r], NULL, 1, NULL) == WAGMA_OK, "%s",
                               wagma_last_error());
                cast_drop(&c);
                places_end();
                CHECK(expectations_failed() == 0, "P=%d late %d device %d", size, late, device);
            }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_nothing_in_shared_memory(void) {
    wagma_options options = options_of(2, 2, 1, COUNT);
    uint64_t first, most;
    stage s;
    CHECK(wagma_segment_memory(&options, &first, &most) == WAGMA_OK, "%s", wagma_last_error());
    EXPECT(first == UINT64_C(5) * BYTES && most > first, "%" PRIu64 " to %" PRIu64, first, most);
    CHECK(stage_open(&s, &options, 1), "%s", wagma_last_error());
    EXPECT(file_bytes(s.cast.segment) < BYTES, "%" PRIu64 " bytes in /dev/shm",
           file_bytes(s.cast.segment));
    wagma_stats stats;
    wagma_get_stats(s.cast.handle[0], &stats);
    EXPECT(stats.segment_bytes >= first, "%" PRIu64, stats.segment_bytes);
    EXPECT(!wagma_shared_array(s.cast.handle[0]) && strstr(wagma_last_error(), "on a device"), "%s",
           wagma_last_error());
    stage_close(&s);
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_refused(void) {
    wagma_options options = options_of(1, 1, 1, 10), other = options;
    wagma_segment *on_device, *on_host;
    wagma_handle *h;
    other.memory = 3;
    REFUSED(wagma_options_check(&other), WAGMA_EINVAL, "memory is 3");
    other = options_of(3, 0, 0, 10);
    other.graph = WAGMA_GRAPH_RING;
    REFUSED(wagma_options_check(&other), WAGMA_EINVAL, "WAGMA_GRAPH_RING", "WAGMA_MEMORY_STAGED");
    other = options;
    other.memory = WAGMA_MEMORY_HOST;
    CHECK(wagma_segment_create(&options, "/wagma-test-device", &on_device) == WAGMA_OK, "%s",
          wagma_last_error());
    REFUSED(wagma_segment_open(&other, "/wagma-test-device", &on_host), WAGMA_EMISMATCH, "memory");
    CHECK(wagma_segment_create(&other, NULL, &on_host) == WAGMA_OK, "%s", wagma_last_error());
    places_begin(1, 1, 100);
    wagma_device *d = place_of(0)->device, wrong = *d;
    wrong.abi++;
    REFUSED(wagma_create(on_device, 0, NULL, 1, NULL, &h), WAGMA_EINVAL, "wagma_create_on()");
    REFUSED(wagma_create_on(on_host, 0, d, NULL, NULL, 1, NULL, &h), WAGMA_EINVAL,
            "WAGMA_MEMORY_HOST");
    REFUSED(wagma_create_on(on_device, 0, NULL, NULL, NULL, 1, NULL, &h), WAGMA_EINVAL,
            "device is NULL");
    REFUSED(wagma_create_on(on_device, 0, &wrong, NULL, NULL, 1, NULL, &h), WAGMA_EINVAL,
            "was built for interface");
    REFUSED(wagma_create(on_host, 0, NULL, 1, NULL, &h), WAGMA_OK, "");
    REFUSED(wagma_set_stream(h, NULL), WAGMA_EINVAL, "host memory");
    wagma_close(h);
    wagma_free(h);
    wagma_segment_close(on_host);
    wagma_segment_close(on_device);
    places_end();
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- failures -------------------------------------------------------------------------------- */

typedef struct attempt {
    enum machine_call call;
    int nth; /* of rank 0, after creation if `later` */
    int later;
    int status[3], failed[3];
    char message[3][256];
} attempt;

static void attempt_calls(rank *me) {
    attempt *a = me->shared;
    place *p = place_of(me->rank);
    wagma_handle *h;
    const int fails = me->rank == 0 && !a->later;
    int status;
    void *x = place_new(p, BYTES);
    if (fails)
        machine_fail(p->device, a->call, a->nth);
    status = wagma_create_on(me->segment, me->rank, p->device, p->stream[0], NULL, 1, NULL, &h);
    if (status == WAGMA_OK && me->rank == 0 && a->later)
        machine_fail(p->device, a->call, a->nth);
    for (int64_t t = 0; status == WAGMA_OK && t < 5; t++) {
        machine_write(p->device, p->stream[0], x, host, BYTES);
        status = wagma_allreduce(h, x, 1, NULL);
    }
    a->status[me->rank] = status;
    snprintf(a->message[me->rank], sizeof a->message[0], "%s", wagma_last_error());
    if (status == WAGMA_OK)
        wagma_close(h);
    wagma_free(h);
    machine_fail(p->device, a->call, 0);
    place_free(p, x);
}

/* Whatever fails on one rank, all ranks end, with errors that tell, and all is freed. */
static void test_one_device_fails(void) {
    static const int status[] = {[MACHINE_ALLOC] = WAGMA_ENOMEM};
    static const int steps[MACHINE_CALLS] = {
        [MACHINE_ALLOC] = 1, [MACHINE_EXPORT] = 1, [MACHINE_OPEN] = 2, [MACHINE_RECORD] = 5,
        [MACHINE_WAIT] = 4,  [MACHINE_QUEUE] = 3,  [MACHINE_WORK] = 2};
    for (int later = 0; later < 2; later++)
        for (int call = 0; call < MACHINE_CALLS; call++)
            for (int nth = 1, last = 0; !last && nth < 100; nth += 1 + steps[call]) {
                wagma_options options = options_of(3, 3, 3, COUNT);
                attempt a = {.call = (enum machine_call)call, .nth = nth, .later = later};
                options.timeout = 20;
                places_begin(3, (uint64_t)nth, BYTES);
                team_join(team_start(THREADS, &options, attempt_calls, &a));
                places_end();
                last = a.status[0] == WAGMA_OK; /* that many calls are not made */
                const int expected =
                    (size_t)call < sizeof status / sizeof *status ? status[call] : WAGMA_ESYS;
                EXPECT(last || (a.status[0] == expected && strstr(a.message[0], "device")),
                       "rank 0: status %d: %s", a.status[0], a.message[0]);
                for (int r = 1; r < 3; r++) /* rank 0 may be needed no more */
                    EXPECT(a.status[r] == WAGMA_OK || (!last && a.status[r] == WAGMA_EPEER &&
                                                       strstr(a.message[r], "failed")),
                           "rank %d: status %d: %s", r, a.status[r], a.message[r]);
                CHECK(expectations_failed() == 0, "later %d call %d, number %d", later, call, nth);
            }
}

int main(void) {
    arrays_on_devices = 1;
    RUN(test_posted_before_x_is_there);
    RUN(test_out_of_place);
    RUN(test_result_on_the_callers_stream);
    RUN(test_view_of_another_rank);
    RUN(test_stream_changes);
    RUN(test_stream_change_fails);
    RUN(test_no_elements);
    RUN(test_nothing_in_shared_memory);
    RUN(test_refused);
    RUN(test_one_device_fails);
    return check_summary();
}
