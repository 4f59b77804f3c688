/* Arrays on simulated devices that are copied by parts while their call goes on, over messages:
 * parts that do not come, failures in the middle, and the end with parts under way. */
/* short run: asan */
#include "check.h"
#include "engine/handle.h"
#include "parts_stage.h"

#include <string.h>

/* ---- waits ----------------------------------------------------------------------------------- */

/* A rank's device stops in the middle of x: the other ranks' errors name that rank, although all
 * lack data of others that cannot go on. */
static void test_names_rank_whose_parts_do_not_come(void) {
    for (int k = 0; k < 6; k++) {
        const int slow = k % 3;
        wagma_options options =
            options_by_parts(4, ALL, k < 3 ? SCHEDULE_DIRECT : SCHEDULE_HALVING);
        stage s;
        char named[64];
        int32_t lost[4];
        options.timeout = 0.8; /* a lost core counts for half a second at most */
        options.schedule_chunk = 256;
        CHECK(stage_open(&s, &options, (uint64_t)slow), "%s", wagma_last_error());
        allow(&s, slow, 1);
        for (int r = 0; r < 4; r++)
            post(&s, r, s.x[r], 0);
        int status = WAGMA_INPROGRESS;
        for (int r = 0; r < 4; r++)
            while (!s.cast.handle[r]->call.active)
                (void)wagma_test(s.cast.handle[r], s.x[r], NULL);
        while (status == WAGMA_INPROGRESS) {
            for (int r = 0; r < 3; r++)
                (void)wagma_lost(s.cast.handle[r], lost); /* goes on, and has no timeout */
            status = wagma_test(s.cast.handle[3], s.x[3], NULL);
        }
        snprintf(named, sizeof named, "for rank %d", slow);
        EXPECT(status == WAGMA_ESTALL && strstr(wagma_last_error(), named), "%s",
               wagma_last_error());
        allow(&s, slow, -1);
        stage_drop(&s);
        CHECK(expectations_failed() == 0, "rank %d is slow, %d", slow, k);
    }
}

/* A rank that needs a lost one does not wait for parts of its own x, which may never come. */
static void test_peer_is_lost_while_parts_do_not_come(void) {
    for (int is_killed = 0; is_killed < 2; is_killed++) {
        wagma_options options = options_by_parts(2, ALL, SCHEDULE_DIRECT);
        stage s;
        options.timeout = -1;
        CHECK(stage_open(&s, &options, 1), "%s", wagma_last_error());
        wagma_handle *const *h = s.cast.handle;
        allow(&s, 0, 1);
        for (int r = 0; r < 2; r++)
            post(&s, r, s.x[r], 0);
        for (int i = 0; i < MANY && sim_traffic(s.cast.sim, 0).datas == 0; i++)
            for (int r = 0; r < 2; r++)
                (void)wagma_test(h[r], s.x[r], NULL);
        if (is_killed)
            sim_kill(s.cast.sim, 1, 1);
        else
            wagma_fail(h[1]);
        const int status = wagma_wait(h[0], s.x[0], 10, NULL);
        EXPECT(status == WAGMA_EPEER && strstr(wagma_last_error(), "rank 1"), "status %d: %s",
               status, wagma_last_error());
        allow(&s, 0, -1);
        stage_drop(&s);
        CHECK(expectations_failed() == 0, "killed %d", is_killed);
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

typedef struct attempt {
    enum machine_call call;
    int nth;
    _Atomic int made;
    int status[3];
    char message[256];
} attempt;

static void attempt_calls(rank *me) {
    attempt *a = me->shared;
    place *p = place_of(me->rank);
    void *x = place_new(p, BYTES);
    put(me->rank, x, -1);
    wagma_handle *h = rank_join(me, x);
    atomic_fetch_add(&a->made, 1);
    while (atomic_load(&a->made) < me->size)
        sleep_ms(0.2);
    if (me->rank == 0)
        machine_fail(p->device, a->call, a->nth);
    int status = WAGMA_OK;
    for (int64_t t = 0; status == WAGMA_OK && t < 2; t++) {
        put(me->rank, x, t);
        status = wagma_allreduce(h, x, 1, NULL);
    }
    a->status[me->rank] = status;
    if (me->rank == 0)
        snprintf(a->message, sizeof a->message, "%s", wagma_last_error());
    if (status == WAGMA_OK)
        (void)wagma_close(h);
    wagma_free(h);
    machine_fail(p->device, a->call, 0);
    place_free(p, x);
}

/* Whichever part fails on one rank, all ranks end, with errors that tell. */
static void test_a_part_fails(void) {
    static const enum machine_call calls[] = {MACHINE_WORK, MACHINE_QUEUE, MACHINE_RECORD};
    for (int k = 0; k < 3 * POLICIES; k++)
        for (int nth = 1 + k % 4, last = 0; !last && nth < 100; nth += 9) {
            const enum kind_of_call policy = (enum kind_of_call)(k % POLICIES);
            attempt a = {.call = calls[k / POLICIES], .nth = nth};
            wagma_options options = options_by_parts(3, policy, SCHEDULE_DIRECT);
            options.progress = nth % 2 ? WAGMA_PROGRESS_MAIN : WAGMA_PROGRESS_SLEEP;
            places_begin(3, (uint64_t)nth, BYTES);
            team_join(team_start(THREADS, &options, attempt_calls, &a));
            places_end();
            last = a.status[0] == WAGMA_OK; /* so much is not done */
            EXPECT(last || (a.status[0] == WAGMA_ESYS &&
                            (strstr(a.message, "injected") || strstr(a.message, "has failed"))),
                   "rank 0: status %d: %s", a.status[0], a.message);
            for (int r = 1; r < 3; r++) /* rank 0 may be needed no more */
                EXPECT(a.status[r] == WAGMA_OK || (!last && a.status[r] == WAGMA_EPEER),
                       "rank %d: status %d", r, a.status[r]);
            CHECK(expectations_failed() == 0, "%s, call %d, number %d", policies[policy],
                  (int)a.call, nth);
        }
}

/* Whether one of the next calls of rank 0's device is still to fail. */
static int is_to_fail(enum machine_call call) {
    const place *p = place_of(0);
    const device_calls *calls = p->device->calls;
    int failed = 0;
    for (int i = 0; i < 10; i++)
        failed |= call == MACHINE_RECORD ? calls->record(p->device, p->event, p->stream[0])
                                         : calls->wait(p->device, p->stream[0], p->event);
    return failed != WAGMA_OK;
}

/* x is the caller's when a call has failed, also where streams could not be ordered. */
static void test_x_is_free_after_an_error(void) {
    static const struct {
        enum machine_call call;
        int nth; /* after those of the copies of four parts */
    } orders[] = {{MACHINE_RECORD, 6}, {MACHINE_RECORD, 7}, {MACHINE_WAIT, 2}, {MACHINE_WAIT, 3}};
    for (int k = 0; k < 4; k++) {
        wagma_options options = options_by_parts(2, ALL, SCHEDULE_DIRECT);
        stage s;
        CHECK(stage_open(&s, &options, (uint64_t)k), "%s", wagma_last_error());
        wagma_device *d = place_of(0)->device;
        put(0, s.x[0], 0);
        machine_fail(d, MACHINE_QUEUE, 5);
        machine_fail(d, orders[k].call, orders[k].nth);
        const int status = wagma_post(s.cast.handle[0], s.x[0], 1, 0);
        EXPECT(status == WAGMA_ESYS && strstr(wagma_last_error(), "injected"), "status %d: %s",
               status, wagma_last_error());
        put(0, s.x[0], 1);
        EXPECT(!is_to_fail(orders[k].call), "streams could be ordered");
        stage_drop(&s);
        CHECK(expectations_failed() == 0, "order %d", k);
    }
}

/* A rank is freed with parts of x and of the result under way, and messages too. */
static void test_freed_with_parts_under_way(void) {
    for (int k = 0; k < 12; k++) {
        const enum kind_of_call policy = (enum kind_of_call)(k % POLICIES);
        wagma_options options = options_by_parts(2, policy, SCHEDULE_DIRECT);
        stage s;
        CHECK(stage_open(&s, &options, (uint64_t)k), "%s", wagma_last_error());
        wagma_handle **h = s.cast.handle;
        allow(&s, 0, 1 + k % 8);
        for (int r = 0; r < 2; r++)
            post(&s, r, s.x[r], 0);
        for (int i = 0; i < MANY && sim_traffic(s.cast.sim, 0).datas == 0; i++)
            for (int r = 0; r < 2; r++)
                (void)wagma_test(h[r], s.x[r], NULL);
        EXPECT(wagma_wait(h[0], s.x[0], 0.001, NULL) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        wagma_fail(h[0]);
        allow(&s, 0, -1);
        wagma_free(h[0]);
        h[0] = NULL;
        const int status = wagma_wait(h[1], s.x[1], -1, NULL);
        EXPECT(status == WAGMA_EPEER, "status %d: %s", status, wagma_last_error());
        stage_drop(&s);
        CHECK(expectations_failed() == 0, "%s, %d", policies[policy], k);
    }
}

int main(void) {
    arrays_on_devices = WAGMA_MEMORY_STAGED;
    messages_for_threads = 1;
    RUN(test_names_rank_whose_parts_do_not_come);
    RUN(test_peer_is_lost_while_parts_do_not_come);
    RUN(test_a_part_fails);
    RUN(test_x_is_free_after_an_error);
    RUN(test_freed_with_parts_under_way);
    return check_summary();
}
