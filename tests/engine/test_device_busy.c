/* Simulated devices that are full, slow, or busy with the caller's work. */
/* short run: c asan */
#include "check.h"
#include "device_stage.h"
#include "element.h"
#include "shm/device/executor.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- a slice that does not come -------------------------------------------------------------- */

static uint64_t slice_began; /* no later than rank 1 began to wait for it */

/* Ranks 0 and 1 have published version 0 and reduce a slice each, of which rank 0's does not come.
 * Returns 0 if the seed's order of work is another. */
static int hold_a_slice(stage *s, uint64_t seed) {
    const wagma_options o = options_of(3, 3, 2, COUNT);
    if (!EXPECT(stage_open(s, &o, seed), "%s", wagma_last_error()))
        return 0;
    (void)publish(s, 0, s->x[0], 0);
    slice_began = clock_now();
    machine_hold(place_of(0)->device, device_of(s->cast.handle[0])->stream);
    if (publish(s, 1, s->x[1], 0) != WAGMA_INPROGRESS || !device_of(s->cast.handle[1])->pending)
        return 0;
    EXPECT(wagma_test(s->cast.handle[0], s->x[0], NULL) == WAGMA_INPROGRESS, "rank 0");
    return device_of(s->cast.handle[0])->pending;
}

static void release_slice(stage *s) {
    machine_release(place_of(0)->device);
    for (int r = 0; r < 2; r++)
        if (s->cast.handle[r]->call.active)
            EXPECT(wagma_finish(s->cast.handle[r], s->x[r], NULL) == WAGMA_OK, "rank %d: %s", r,
                   wagma_last_error());
    stage_close(s);
}

static int redone(stage *s) {
    return s->cast.handle[1]->stats.redone_slices > 0;
}

/* Plays it until rank 1 has redone the slice for three seeds. With other seeds rank 0 waits for
 * something else. */
static void play_held(void (*act)(stage *s)) {
    int played = 0;
    for (uint64_t seed = 0; seed < 300 && played < 3; seed++) {
        stage s;
        const int held = hold_a_slice(&s, seed);
        if (held)
            act(&s);
        played += held && redone(&s);
        release_slice(&s);
        CHECK(expectations_failed() == 0, "seed %d", (int)seed);
    }
    CHECK(played == 3, "played %d times", played);
}

static times slices; /* of rank 1, the longest of a play */

static void be_away(stage *s) {
    sleep_ms(100);
    EXPECT(wagma_finish(s->cast.handle[1], s->x[1], NULL) == WAGMA_OK, "%s", wagma_last_error());
    if (redone(s))
        times_add(&slices, (double)device_of(s->cast.handle[1])->avoiding.slice_ns * 1e-9);
}

/* The time that the caller is away is no time of a slice. */
static void test_caller_is_away(void) {
    play_held(be_away);
    CHECK(times_median(&slices) < 0.05, "slices took %g s", times_median(&slices));
}

static void await_slice(stage *s) {
    EXPECT(wagma_finish(s->cast.handle[1], s->x[1], NULL) == WAGMA_OK, "%s", wagma_last_error());
    const uint64_t ended = clock_now();
    EXPECT(!redone(s) || ended - slice_began >= 1000000, "redone after %d us",
           (int)((ended - slice_began) / 1000));
}

/* A slice costs the start of a kernel and naps: it is not redone after 200 us, as on the host. */
static void test_slice_has_its_time(void) {
    play_held(await_slice);
}

static void redo_on_a_full_device(stage *s) {
    wagma_device *d = place_of(1)->device;
    machine_fail(d, MACHINE_ALLOC, 1);
    EXPECT(wagma_finish(s->cast.handle[1], s->x[1], NULL) == WAGMA_OK, "%s", wagma_last_error());
    machine_fail(d, MACHINE_ALLOC, 0);
}

static void test_redo_on_a_full_device(void) {
    play_held(redo_on_a_full_device);
}

/* ---- an x that does not come ------------------------------------------------------------------
 */

/* For the others the wait for x is computing: `timeout` and warnings begin behind it. */
static void test_timeout_begins_with_the_publication(void) {
    const wagma_options options = options_of(2, 2, 2, COUNT);
    stage s;
    CHECK(stage_open(&s, &options, 1), "%s", wagma_last_error());
    wagma_handle *const *h = s.cast.handle;
    machine_hold(place_of(0)->device, place_of(0)->stream[0]);
    put(0, s.x[0], 0);
    EXPECT(wagma_post(h[0], s.x[0], 1, 0) == WAGMA_INPROGRESS, "post");
    EXPECT(wagma_wait(h[0], s.x[0], 0.3, NULL) == WAGMA_INPROGRESS, "wait");
    EXPECT(h[0]->call.delay > 0, "no time has passed");
    const uint64_t released = clock_now();
    machine_release(place_of(0)->device);
    while (published(s.cast.segment, 0) < 0)
        EXPECT(wagma_test(h[0], s.x[0], NULL) == WAGMA_INPROGRESS, "test");
    EXPECT(h[0]->call.delay <= clock_now() - released, "rank 1 has been waited for %.3f s",
           (double)h[0]->call.delay * 1e-9);
    put(1, s.x[1], 0);
    EXPECT(wagma_allreduce(h[1], s.x[1], 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
    EXPECT(wagma_finish(h[0], s.x[0], NULL) == WAGMA_OK, "%s", wagma_last_error());
    stage_close(&s);
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Contributions of 16 bits: 3 and 5 at creation, 4 and 6 of version 0. */
static void fill(wagma_dtype dtype, void *host, int r, int64_t version, int64_t count) {
    if (dtype != WAGMA_F16)
        contribute(dtype, host, r, version, count);
    for (int64_t i = 0; dtype == WAGMA_F16 && i < count; i++)
        element_put(dtype, host, (size_t)i, 4 + 2 * r + (double)version);
}

static void expect_filled(const rank *me, const void *seen, const wagma_outcome *o) {
    const wagma_options *options = &me->segment->options;
    const double sum = 4 + 5 + (me->rank == 1 ? 6 : 0);
    const double want = options->average ? sum / (2 + me->rank) : sum;
    if (options->dtype != WAGMA_F16)
        expect_result(me, seen, o);
    for (int64_t i = 0; options->dtype == WAGMA_F16 && i < options->count; i += 113)
        EXPECT(element_get(WAGMA_F16, seen, (size_t)i) == want, "rank %d: x[%d] is %g, not %g",
               me->rank, (int)i, element_get(WAGMA_F16, seen, (size_t)i), want);
}

/* A late rank needs no memory: 16-bit results are rounded by slices, of which there are two. */
static void test_late_on_a_full_device(void) {
    static const wagma_dtype dtypes[] = {WAGMA_F64, WAGMA_F16, WAGMA_F32};
    static double host[COUNT];
    for (int k = 0; k < 6; k++) {
        const wagma_dtype dtype = dtypes[k / 2];
        const int64_t count = dtype == WAGMA_F16 ? 40000 : COUNT;
        const size_t bytes = (size_t)count * reduce_dtype_size(dtype);
        wagma_options options = options_of(2, 2, 1, count);
        const void *initial[2];
        void *x[2];
        cast c;
        options.dtype = dtype;
        options.average = k % 2;
        options.activation = WAGMA_ACTIVATION_WORLD;
        places_begin(2, (uint64_t)k, bytes);
        for (int r = 0; r < 2; r++) {
            initial[r] = x[r] = place_new(place_of(r), bytes);
            fill(dtype, host, r, -1, count);
            place_put(place_of(r), x[r], host, bytes);
        }
        CHECK(cast_open(&c, &options, initial, NULL), "%s", wagma_last_error());
        for (int r = 0; r < 2; r++) {
            const rank me = {.rank = r, .size = 2, .segment = c.segment};
            wagma_outcome o = {0};
            fill(dtype, host, r, 0, count);
            place_put(place_of(r), x[r], host, bytes);
            machine_fail(place_of(r)->device, MACHINE_ALLOC, r);
            EXPECT(wagma_allreduce(c.handle[r], x[r], 1, &o) == WAGMA_OK && o.late == r,
                   "late %d: %s", o.late, wagma_last_error());
            expect_filled(&me, place_look(place_of(r), x[r], bytes), &o);
            machine_fail(place_of(r)->device, MACHINE_ALLOC, 0);
            place_free(place_of(r), x[r]);
        }
        cast_close(&c);
        places_end();
        CHECK(expectations_failed() == 0, "dtype %d average %d", (int)dtype, k % 2);
    }
}

/* A device that has refused memory is asked again. */
static void test_refused_once(void) {
    wagma_options options = options_of(2, 2, 1, COUNT);
    void *buffer;
    stage s;
    options.window = 8;
    options.timeout = 10;
    CHECK(stage_open(&s, &options, 1), "%s", wagma_last_error());
    wagma_handle *h = s.cast.handle[0];
    for (int b = 0; b < 3; b++)
        atomic_store(segment_cref(s.cast.segment, 0, b), 1);
    machine_fail(place_of(0)->device, MACHINE_ALLOC, 1);
    EXPECT(wagma_next_contribution(h, &buffer) == WAGMA_OK, "%s", wagma_last_error());
    for (int b = 0; b < 3; b++)
        atomic_store(segment_cref(s.cast.segment, 0, b), 0);
    stage_drop(&s);
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- the caller's work ----------------------------------------------------------------------- */

typedef struct closing {
    wagma_handle *handle;
    int status;
} closing;

static void *close_it(void *argument) {
    closing *c = argument;
    c->status = wagma_close(c->handle);
    return NULL;
}

/* A close behind work that does not end: the timeout ends it, or wagma_fail() of another thread. */
static void test_close_ends(void) {
    for (int fails = 0; fails < 2; fails++) {
        wagma_options o = options_of(1, 1, 1, COUNT);
        pthread_t thread;
        stage s;
        o.timeout = fails ? -1 : 0.2;
        CHECK(stage_open(&s, &o, 1), "%s", wagma_last_error());
        closing c = {s.cast.handle[0], 0};
        machine_hold(place_of(0)->device, place_of(0)->stream[0]);
        pthread_create(&thread, NULL, close_it, &c);
        if (fails) {
            while (!atomic_load(&segment_presence_of(s.cast.segment, 0)->asleep))
                sleep_ms(0.2);
            wagma_fail(c.handle);
        }
        pthread_join(thread, NULL);
        EXPECT(c.status == (fails ? WAGMA_ECLOSED : WAGMA_ESTALL), "status %d", c.status);
        EXPECT(atomic_load(&segment_presence_of(s.cast.segment, 0)->state) == SEGMENT_FAILED,
               "the others do not know");
        machine_release(place_of(0)->device);
        place_free(place_of(0), s.x[0]);
        cast_drop(&s.cast);
        places_end();
        CHECK(expectations_failed() == 0, "fails %d", fails);
    }
}

typedef struct late_x {
    const place *place;
    wagma_segment *segment;
    uint64_t released;
} late_x;

/* Lets x come when the rank has waited for it for some time. */
static void *release_later(void *argument) {
    late_x *l = argument;
    while (!atomic_load(&segment_presence_of(l->segment, 0)->asleep))
        sleep_ms(0.2);
    sleep_ms(20);
    l->released = clock_now();
    machine_release(l->place->device);
    return NULL;
}

/* What produces x is computing, and no waiting for others. */
static void test_computes_x(void) {
    wagma_options options = options_of(1, 1, 1, COUNT);
    place *p = place_of(0);
    wagma_stats stats;
    stage s;
    options.grace = -1;
    CHECK(stage_open(&s, &options, 1), "%s", wagma_last_error());
    wagma_handle *h = s.cast.handle[0];
    double since = 0; /* s, after x was there */
    for (int64_t t = 0; t < 8; t++) {
        pthread_t thread;
        late_x late = {p, s.cast.segment, 0};
        machine_hold(p->device, p->stream[0]);
        pthread_create(&thread, NULL, release_later, &late);
        put(0, s.x[0], t);
        EXPECT(wagma_allreduce(h, s.x[0], 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
        const uint64_t returned = clock_now();
        pthread_join(thread, NULL);
        since += (double)(returned - late.released) * 1e-9;
    }
    wagma_get_stats(h, &stats);
    const double computes = grace_quantile(&avoiding_of(h)->grace.computes, 0.01);
    EXPECT(computes >= 19e6, "computes %.0f us", computes / 1e3);
    EXPECT(stats.waited <= since, "waited %g s, %g since x was there", stats.waited, since);
    stage_close(&s);
    CHECK(expectations_failed() == 0, "see above");
}

/* Whoever publishes in wagma_test() may stay away: the members that sleep are woken. */
static void test_rings_when_published(void) {
    wagma_options options = options_of(3, 3, 2, COUNT);
    stage s;
    CHECK(stage_open(&s, &options, 1), "%s", wagma_last_error());
    machine_hold(place_of(1)->device, place_of(1)->stream[0]);
    put(1, s.x[1], 0);
    EXPECT(wagma_post(s.cast.handle[1], s.x[1], 1, 0) == WAGMA_INPROGRESS, "post");
    machine_release(place_of(1)->device);
    _Atomic uint32_t *asleep = &segment_presence_of(s.cast.segment, 0)->asleep;
    atomic_store(asleep, 1);
    while (published(s.cast.segment, 1) < 0)
        EXPECT(wagma_test(s.cast.handle[1], s.x[1], NULL) == WAGMA_INPROGRESS, "%s",
               wagma_last_error());
    EXPECT(!atomic_load(asleep), "rank 0 sleeps");
    put(2, s.x[2], 0);
    for (int r = 2; r > 0; r--)
        EXPECT((r == 2 ? wagma_allreduce(s.cast.handle[r], s.x[r], 1, NULL)
                       : wagma_finish(s.cast.handle[r], s.x[r], NULL)) == WAGMA_OK,
               "rank %d: %s", r, wagma_last_error());
    stage_close(&s);
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    arrays_on_devices = 1;
    RUN(test_caller_is_away);
    RUN(test_slice_has_its_time);
    RUN(test_redo_on_a_full_device);
    RUN(test_timeout_begins_with_the_publication);
    RUN(test_late_on_a_full_device);
    RUN(test_refused_once);
    RUN(test_close_ends);
    RUN(test_computes_x);
    RUN(test_rings_when_published);
    return check_summary();
}
