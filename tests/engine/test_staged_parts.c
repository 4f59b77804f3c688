/* Arrays on simulated devices that are copied by parts while their call goes on, over messages:
 * what overlaps, and the bits of results. */
/* short run: asan */
#include "check.h"
#include "element.h"
#include "parts_stage.h"
#include "staged/staged.h"

#include <stdlib.h>
#include <string.h>

/* Tests both calls until they are over. */
static void end_calls(stage *s, void *const *x, wagma_outcome *o) {
    int status[2] = {WAGMA_INPROGRESS, WAGMA_INPROGRESS};
    for (int r = 0; status[0] == WAGMA_INPROGRESS || status[1] == WAGMA_INPROGRESS; r = 1 - r)
        if (status[r] == WAGMA_INPROGRESS)
            status[r] = wagma_test(s->cast.handle[r], x[r], &o[r]);
    EXPECT(status[0] == WAGMA_OK && status[1] == WAGMA_OK, "%s", wagma_last_error());
    for (int r = 0; r < 2; r++)
        expect_outcome(s, r, o[r].results_count ? o[r].results[0] : x[r], &o[r]);
}

/* ---- what overlaps --------------------------------------------------------------------------- */

/* The first part of x is sent while the others are still on the device; "stale": also where nothing
 * has come from the other rank. */
static void test_sends_before_x_is_copied(void) {
    for (int k = 0; k < POLICIES * SCHEDULE_ALGORITHMS * 2; k++) {
        const enum kind_of_call policy = (enum kind_of_call)(k % POLICIES);
        const int slow = k / POLICIES % 2; /* each keeps another half of the array */
        const int alone = policy == STALE;
        wagma_options options = options_by_parts(2, policy, (schedule_algorithm)(k / POLICIES / 2));
        wagma_outcome o[2];
        stage s;
        if (alone)
            options.grace = 0;
        CHECK(stage_open(&s, &options, (uint64_t)k), "%s", wagma_last_error());
        const struct staged *staged = s.cast.handle[slow]->staged;
        allow(&s, slow, 1);
        post(&s, slow, s.x[slow], 0);
        if (!alone)
            post(&s, 1 - slow, s.x[1 - slow], 0);
        for (int i = 0; i < MANY && sim_traffic(s.cast.sim, slow).datas == 0; i++)
            for (int r = 0; r < 2; r++)
                if (r == slow || !alone)
                    EXPECT(wagma_test(s.cast.handle[r], s.x[r], NULL) == WAGMA_INPROGRESS, "%s",
                           wagma_last_error());
        EXPECT(sim_traffic(s.cast.sim, slow).datas > 0, "nothing is sent");
        EXPECT(staged->copied_n == 1 && staged->copies > 8, "%d of %d parts are copied",
               staged->copied_n, staged->copies);
        allow(&s, slow, -1);
        if (alone)
            post(&s, 1 - slow, s.x[1 - slow], 0);
        end_calls(&s, s.x, o);
        stage_close(&s);
        CHECK(expectations_failed() == 0, "%s, algorithm %d, rank %d", policies[policy],
              k / POLICIES / 2, slow);
    }
}

/* Expects the first part of rank 0's array to be the sum. */
static void expect_first_part(const void *array, size_t elements) {
    static double mine[COUNT], other[COUNT];
    const double *seen = place_look(place_of(0), array, BYTES);
    contribute(WAGMA_F64, mine, 0, 0, COUNT);
    contribute(WAGMA_F64, other, 1, 0, COUNT);
    size_t same = 0;
    while (same < elements && seen[same] == mine[same] + other[same])
        same++;
    EXPECT(same == elements, "element %zu is %g, not %g", same, seen[same],
           mine[same] + other[same]);
}

/* The first part of the result is on the device while others have not been received, and parts of x
 * not been copied; but not before the call is waited for. */
static void test_result_comes_before_its_end(void) {
    for (int k = 0; k < 5; k++) {
        const int out_of_place = k >= POLICIES;
        const enum kind_of_call policy = (enum kind_of_call)(k % POLICIES + out_of_place);
        wagma_options options = options_by_parts(2, policy, SCHEDULE_DIRECT);
        wagma_outcome o[2];
        stage s;
        CHECK(stage_open(&s, &options, (uint64_t)k), "%s", wagma_last_error());
        wagma_handle *const *h = s.cast.handle;
        void *x[2] = {s.x[0], s.x[1]};
        if (out_of_place)
            EXPECT(wagma_next_contribution(h[0], &x[0]) == WAGMA_OK, "%s", wagma_last_error());
        const struct staged *staged = h[0]->staged, *slow = h[1]->staged;
        allow(&s, 0, 7); /* which begin in the middle */
        allow(&s, 1, 3);
        post(&s, 1, x[1], 0);
        for (int i = 0; i < MANY && !h[1]->call.active; i++)
            (void)wagma_test(h[1], x[1], NULL);
        post(&s, 0, x[0], 0);
        for (int i = 0; i < 2000; i++)
            for (int r = 0; r < 2; r++)
                EXPECT(wagma_test(h[r], x[r], NULL) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        EXPECT(staged->from && staged->missing[0] == 0 && !staged->took,
               "a posted call has changed x");
        machine_allow(place_of(0)->device, staged->back, 0); /* work of the caller waits for it */
        EXPECT(wagma_wait(h[0], x[0], 0.001, NULL) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        EXPECT(staged->took && slow->copied_n == 3 && staged->copied_n < 8, "%d, %d and %d of %d",
               staged->took, slow->copied_n, staged->copied_n, staged->copies);
        machine_allow(place_of(0)->device, staged->back, -1);
        expect_first_part(staged->to, staged->part);
        machine_fail(place_of(0)->device, MACHINE_RECORD, 1);
        EXPECT(wagma_test(h[0], x[0], NULL) == WAGMA_INPROGRESS, "the stream waits again: %s",
               wagma_last_error());
        machine_fail(place_of(0)->device, MACHINE_RECORD, 0);
        allow(&s, 0, -1);
        allow(&s, 1, -1);
        if (!out_of_place) {
            end_calls(&s, x, o);
        } else {
            int status = WAGMA_INPROGRESS;
            while (status == WAGMA_INPROGRESS) {
                status = wagma_wait(h[0], x[0], 0.001, &o[0]);
                if (h[1]->call.pending)
                    (void)wagma_test(h[1], x[1], &o[1]);
            }
            expect_outcome(&s, 0, o[0].results_count ? o[0].results[0] : o[0].result, &o[0]);
            while (h[1]->call.pending)
                (void)wagma_test(h[1], x[1], &o[1]);
        }
        stage_close(&s);
        CHECK(expectations_failed() == 0, "%s, out of place %d", policies[policy], out_of_place);
    }
}

/* ---- what has to be whole -------------------------------------------------------------------- */

/* Polls the calls of ranks that have one, so often that parts would be used that are not there. */
static void poll_often(stage *s) {
    for (int i = 0; i < 2000; i++)
        for (int r = 0; r < 2; r++)
            if (s->cast.handle[r]->call.pending)
                (void)wagma_test(s->cast.handle[r], s->x[r], NULL);
}

static void expect_sum(const void *array, int other_rank, int64_t other_version, double own) {
    static double mine[COUNT], other[COUNT];
    const double *seen = place_look(place_of(0), array, BYTES);
    contribute(WAGMA_F64, mine, 0, 1, COUNT);
    contribute(WAGMA_F64, other, other_rank, other_version, COUNT);
    size_t same = 0;
    while (same < COUNT && seen[same] == own * mine[same] + other[same])
        same++;
    EXPECT(same == COUNT, "element %zu is %g, not %g", same, seen[same],
           own * mine[same] + other[same]);
}

/* The exchange writes where an x of weight 0 is copied to. */
static void test_x_of_weight_0(void) {
    wagma_options options = options_by_parts(2, ALL, SCHEDULE_DIRECT);
    stage s;
    CHECK(stage_open(&s, &options, 1), "%s", wagma_last_error());
    allow(&s, 0, 1);
    put(0, s.x[0], 0);
    EXPECT(wagma_post(s.cast.handle[0], s.x[0], 0, 0) == WAGMA_INPROGRESS, "post");
    post(&s, 1, s.x[1], 0);
    poll_often(&s);
    allow(&s, 0, -1);
    while (s.cast.handle[0]->call.pending || s.cast.handle[1]->call.pending)
        poll_often(&s);
    expect_sum(s.x[0], 1, 0, 0);
    stage_close(&s);
    CHECK(expectations_failed() == 0, "see above");
}

/* What rank 0 carries is added to a whole contribution. */
static void test_carried(void) {
    wagma_options options = options_by_parts(2, SKIP, SCHEDULE_DIRECT);
    wagma_outcome o;
    stage s;
    int32_t lost[2];
    options.late = WAGMA_LATE_CARRY;
    options.grace = 0;
    CHECK(stage_open(&s, &options, 1), "%s", wagma_last_error());
    wagma_handle *h = s.cast.handle[0];
    post(&s, 1, s.x[1], 0);
    for (int64_t t = 0; t < 2; t++) {
        while (t == 0 && !wagma_pinned(h)) /* rank 0 is late */
            (void)wagma_test(s.cast.handle[1], s.x[1], NULL);
        allow(&s, 0, t == 0 ? -1 : 1);
        post(&s, 0, s.x[0], t);
        if (t == 1)
            poll_often(&s);
        allow(&s, 0, -1);
        for (int status = WAGMA_INPROGRESS; status == WAGMA_INPROGRESS;) {
            status = wagma_test(h, s.x[0], &o);
            if (s.cast.handle[1]->call.pending)
                (void)wagma_test(s.cast.handle[1], s.x[1], NULL);
            else
                (void)wagma_lost(s.cast.handle[1], lost); /* takes part in what rank 0 does */
        }
        EXPECT(h->version == t + 1 && o.late == (t == 0), "version %d, late %d", (int)h->version,
               o.late);
    }
    expect_sum(s.x[0], 0, 0, 1);
    while (s.cast.handle[1]->call.pending)
        poll_often(&s);
    stage_close(&s);
    CHECK(expectations_failed() == 0, "see above");
}

/* Another rank activates the next version, which takes what the call in progress contributes. */
static void test_stale_of_the_call_in_progress(void) {
    wagma_options options = options_by_parts(4, STALE, SCHEDULE_DIRECT);
    wagma_outcome o[4];
    stage s;
    options.group_size = 2; /* 0 and 1, 2 and 3; then 0 and 2, 1 and 3 */
    options.grace = 0;
    CHECK(stage_open(&s, &options, 1), "%s", wagma_last_error());
    wagma_handle *const *h = s.cast.handle;
    allow(&s, 0, 1);
    post(&s, 0, s.x[0], 0);
    for (int i = 0; i < MANY && sim_traffic(s.cast.sim, 0).datas == 0; i++)
        (void)wagma_test(h[0], s.x[0], NULL);
    for (int64_t t = 0; t < 2; t++) {
        for (int r = 2; r < 4; r++)
            if (t == 0 || r == 2)
                post(&s, r, s.x[r], t);
        for (int i = 0; t == 1 && i < 2000; i++) {
            EXPECT(wagma_test(h[2], s.x[2], &o[2]) == WAGMA_INPROGRESS, "not what comes: %s",
                   wagma_last_error());
            (void)wagma_test(h[0], s.x[0], &o[0]);
        }
        allow(&s, 0, t == 1 ? -1 : 0);
        while (h[2]->call.pending || h[3]->call.pending)
            for (int r = 0; r < 4; r++)
                if (h[r]->call.pending)
                    EXPECT(wagma_test(h[r], s.x[r], &o[r]) >= 0, "%s", wagma_last_error());
        expect_outcome(&s, 2, s.x[2], &o[2]);
    }
    EXPECT(o[2].contributors_count == 2, "%d contribute", (int)o[2].contributors_count);
    for (int r = 0; r < 4; r++)
        wagma_fail(h[r]); /* nobody waits for rank 1 */
    stage_drop(&s);
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- bits ------------------------------------------------------------------------------------ */

enum { BITS_RANKS = 4, VERSIONS = 3, COUNT_MOST = 9001 };

struct bits {
    unsigned char array[2][BITS_RANKS][VERSIONS][COUNT_MOST * sizeof(double)];
    int staged; /* of which array[] has the results */
};

static struct bits bits;

static void call_for_bits(rank *me) {
    static _Thread_local unsigned char host[COUNT_MOST * sizeof(double)];
    const wagma_options *o = &me->segment->options;
    const wagma_dtype dtype = (wagma_dtype)o->dtype;
    const size_t count = (size_t)o->count, bytes = count * reduce_dtype_size(dtype);
    place *p = place_of(me->rank);
    void *x = place_new(p, bytes);
    memset(host, 0, bytes);
    place_put(p, x, host, bytes);
    wagma_handle *h = rank_join(me, x);
    for (int t = 0; h && t < VERSIONS; t++) {
        wagma_outcome outcome;
        for (size_t i = 0; i < count; i++)
            element_put(dtype, host, i,
                        dtype == WAGMA_I32
                            ? (double)(i * 31 + (size_t)me->rank)
                            : 0.37 * (double)((i * 17 + (size_t)t) % 1009) + 1.0 / (3 + me->rank));
        place_put(p, x, host, bytes);
        const double weight = 1 + me->rank;
        const int status = t == 1 ? wagma_post(h, x, weight, 0) == WAGMA_INPROGRESS
                                        ? wagma_wait(h, x, -1, &outcome)
                                        : WAGMA_ESYS
                                  : wagma_allreduce(h, x, weight, &outcome);
        EXPECT(status == WAGMA_OK && !outcome.late, "%d: %s", status, wagma_last_error());
        memcpy(bits.array[bits.staged][me->rank][t], place_look(p, x, bytes), bytes);
    }
    if (h)
        wagma_close(h);
    wagma_free(h);
    place_free(p, x);
}

static void test_bits(void) {
    static const wagma_dtype dtypes[] = {WAGMA_F32, WAGMA_F16, WAGMA_BF16, WAGMA_F64, WAGMA_I32};
    static const int64_t counts[] = {COUNT_MOST, 4096, 4097};
    for (int k = 0; k < 40; k++) {
        const int size = 1 + k % BITS_RANKS;
        wagma_options o = options_by_parts(size, (enum kind_of_call)(k / 4 % 2),
                                           (schedule_algorithm)(k / 2 % SCHEDULE_ALGORITHMS));
        if (k % 8 == 3)
            o.group_size = o.quorum = 2; /* of 4 ranks, where all are awaited */
        o.schedule_chunk = 256 << k % 3;
        o.dtype = dtypes[k % 5];
        o.average = o.dtype != WAGMA_I32 && k / 5 % 2 == 0;
        o.count = counts[k % 3];
        o.progress = k % 2 ? WAGMA_PROGRESS_MAIN : WAGMA_PROGRESS_SLEEP;
        for (bits.staged = 0; bits.staged < 2; bits.staged++) {
            o.memory = arrays_on_devices = bits.staged ? WAGMA_MEMORY_STAGED : WAGMA_MEMORY_HOST;
            places_begin(size, (uint64_t)k, COUNT_MOST * sizeof(double));
            team_join(team_start(THREADS, &o, call_for_bits, NULL));
            places_end();
        }
        const int differ = memcmp(bits.array[0], bits.array[1], sizeof bits.array[0]);
        CHECK(expectations_failed() == 0 && !differ,
              "%d ranks, dtype %d, average %d, differ %d, %d", size, o.dtype, o.average, differ, k);
    }
}

int main(void) {
    arrays_on_devices = WAGMA_MEMORY_STAGED;
    messages_for_threads = 1;
    RUN(test_sends_before_x_is_copied);
    RUN(test_result_comes_before_its_end);
    RUN(test_x_of_weight_0);
    RUN(test_carried);
    RUN(test_stale_of_the_call_in_progress);
    RUN(test_bits); /* changes where arrays are */
    return check_summary();
}
