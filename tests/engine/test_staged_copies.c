/* Arrays on simulated devices that are staged for messages: which copies the host makes, and how
 * long the executor's memory is theirs. */
/* short run: asan */
#include "check.h"
#include "device_stage.h"
#include "staged/staged.h"

#include <pthread.h>
#include <string.h>

static const reduce_kernels *real;
static _Atomic size_t copied; /* bytes, from one array to another */

static void counted_copy(wagma_dtype dtype, void *out, const void *x, double divisor,
                         size_t count) {
    if (out != x)
        atomic_fetch_add(&copied, count * reduce_dtype_size(dtype));
    real->divided_copy(dtype, out, x, divisor, count);
}

enum way { IN_PLACE, POSTED, OUT_OF_PLACE, WAYS };

/* Rank 0 calls, and is in time. */
static void call_once(stage *s, enum way way, int64_t t, wagma_outcome *o) {
    wagma_handle *h = s->cast.handle[0];
    void *x = s->x[0];
    if (way == OUT_OF_PLACE)
        EXPECT(wagma_next_contribution(h, &x) == WAGMA_OK, "%s", wagma_last_error());
    put(0, x, t);
    if (way == POSTED)
        EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS && wagma_wait(h, x, -1, o) == WAGMA_OK,
               "%s", wagma_last_error());
    else
        EXPECT(wagma_allreduce(h, x, 1, o) == WAGMA_OK, "%s", wagma_last_error());
    const void *result = o->results_count ? o->results[0] : way == OUT_OF_PLACE ? o->result : x;
    EXPECT(!o->late && result, "late %d", o->late);
    expect_result(&s->me[0], place_look(place_of(0), result, BYTES), o);
    if (way != OUT_OF_PLACE)
        expect_result(&s->me[0], place_look(place_of(0), x, BYTES), o);
}

/* The devices copy from and to the executor's memory, unless it cannot be pinned. */
static void test_host_copies_nothing(void) {
    static const int lates[] = {WAGMA_LATE_STALE, WAGMA_LATE_SKIP, WAGMA_LATE_CARRY};
    for (int k = 0; k < 3 * WAYS * 2; k++) {
        const enum way way = (enum way)(k / 2 % WAYS);
        const int refused = k % 2;
        if (refused && (int)way != k / 2 / WAYS) /* each way and each policy once */
            continue;
        wagma_options options = options_of(2, 2, 1, COUNT);
        options.late = lates[k / 2 / WAYS];
        wagma_outcome o;
        stage s;
        CHECK(stage_open(&s, &options, (uint64_t)k), "%s", wagma_last_error());
        wagma_handle *h = s.cast.handle[0];
        real = h->kernels;
        reduce_kernels counting = *real;
        counting.divided_copy = counted_copy;
        h->kernels = &counting;
        machine_fail(place_of(0)->device, MACHINE_PIN, refused);
        for (int64_t t = 0; t < 2; t++) {
            atomic_store(&copied, 0);
            call_once(&s, way, t, &o);
            EXPECT((atomic_load(&copied) == 0) == !refused, "%zu bytes are copied in call %d",
                   atomic_load(&copied), (int)t);
        }
        machine_fail(place_of(0)->device, MACHINE_PIN, 0);
        h->kernels = real;
        stage_close(&s);
        CHECK(expectations_failed() == 0, "late %d, way %d, refused %d", options.late, way,
              refused);
    }
}

struct leaving {
    wagma_handle *h;
    _Atomic int left;
};

static void *leave(void *argument) {
    struct leaving *l = argument;
    EXPECT(wagma_close(l->h) == WAGMA_OK, "%s", wagma_last_error());
    atomic_store(&l->left, 1);
    return NULL;
}

/* A rank that leaves takes part in the versions of the others, in the memory of its results. */
static void test_close_waits_for_copies(void) {
    wagma_options options = options_of(2, 2, 1, COUNT);
    struct leaving leaving[2] = {0};
    pthread_t thread[2];
    wagma_outcome o;
    stage s;
    CHECK(stage_open(&s, &options, 1), "%s", wagma_last_error());
    wagma_handle *h = s.cast.handle[0];
    void *x;
    EXPECT(wagma_next_contribution(h, &x) == WAGMA_OK, "%s", wagma_last_error());
    put(0, x, 0);
    EXPECT(wagma_post(h, x, 1, 0) == WAGMA_INPROGRESS, "post");
    while (!h->call.active && wagma_test(h, x, &o) == WAGMA_INPROGRESS)
        ;
    machine_hold(place_of(0)->device, h->staged->back);
    EXPECT(h->call.active && wagma_wait(h, x, -1, &o) == WAGMA_OK && o.result, "%s",
           wagma_last_error());
    for (int r = 0; r < 2; r++) {
        leaving[r].h = s.cast.handle[r];
        pthread_create(&thread[r], NULL, leave, &leaving[r]);
    }
    sleep_ms(50);
    EXPECT(!atomic_load(&leaving[0].left), "it has left");
    machine_release(place_of(0)->device);
    for (int r = 0; r < 2; r++)
        pthread_join(thread[r], NULL);
    expect_result(&s.me[0], place_look(place_of(0), o.result, BYTES), &o);
    stage_close(&s);
    CHECK(expectations_failed() == 0, "see above");
}

/* The caller's stream is still to read a result, and nothing can be queued behind it any more. */
static void test_freed_while_a_result_is_read(void) {
    static double seen[COUNT];
    for (uint64_t seed = 0; seed < 8; seed++) {
        wagma_options options = options_of(2, 2, 1, COUNT);
        wagma_outcome o;
        stage s;
        CHECK(stage_open(&s, &options, seed), "%s", wagma_last_error());
        call_once(&s, OUT_OF_PLACE, 0, &o);
        const place *p = place_of(0);
        machine_read(p->device, p->stream[p->used], seen, o.result, BYTES);
        machine_fail(p->device, MACHINE_RECORD, 1);
        wagma_free(s.cast.handle[0]);
        s.cast.handle[0] = NULL;
        stage_drop(&s);
        CHECK(expectations_failed() == 0, "seed %d", (int)seed);
    }
}

int main(void) {
    arrays_on_devices = WAGMA_MEMORY_STAGED;
    messages_for_threads = 1;
    RUN(test_host_copies_nothing);
    RUN(test_close_waits_for_copies);
    RUN(test_freed_while_a_result_is_read);
    return check_summary();
}
