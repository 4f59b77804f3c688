/* See device_stage.h. */
#include "device_stage.h"

#include <inttypes.h>
#include <string.h>

static _Thread_local double host[COUNT]; /* ranks may be threads */

void put(int r, void *array, int64_t version) {
    contribute(WAGMA_F64, host, r, version, COUNT);
    place_put(place_of(r), array, host, BYTES);
}

int stage_open(stage *s, const wagma_options *o, uint64_t seed) {
    const void *initial[RANKS_MAX];
    places_begin(o->size, seed, BYTES);
    for (int r = 0; r < o->size; r++) {
        initial[r] = s->x[r] = place_new(place_of(r), BYTES);
        put(r, s->x[r], -1);
    }
    const int made = cast_open(&s->cast, o, initial, NULL);
    for (int r = 0; r < o->size; r++)
        s->me[r] = (rank){.rank = r, .size = o->size, .segment = s->cast.segment};
    return made;
}

void stage_close(stage *s) {
    for (int r = 0; r < s->cast.size; r++)
        place_free(place_of(r), s->x[r]);
    cast_close(&s->cast);
    places_end();
}

void stage_drop(stage *s) {
    cast_drop(&s->cast);
    for (int r = 0; r < s->cast.size; r++)
        place_free(place_of(r), s->x[r]);
    places_end();
}

int publish(stage *s, int r, void *array, int64_t t) {
    put(r, array, t);
    int status = wagma_post(s->cast.handle[r], array, 1, 0);
    while (status == WAGMA_INPROGRESS && published(s->cast.segment, r) < t)
        status = wagma_test(s->cast.handle[r], array, NULL);
    EXPECT(status >= 0, "status %d: %s", status, wagma_last_error());
    return status;
}

void expect_outcome(const stage *s, int r, const void *array, const wagma_outcome *o) {
    expect_result(&s->me[r], place_look(place_of(r), array, BYTES), o);
}

void play_posted_before_x(uint64_t seed) {
    wagma_options options = options_of(3, 3, 1, COUNT);
    wagma_outcome o;
    stage s;
    if (!EXPECT(stage_open(&s, &options, seed), "%s", wagma_last_error()))
        return;
    machine_hold(place_of(0)->device, place_of(0)->stream[0]);
    put(0, s.x[0], 0);
    EXPECT(wagma_post(s.cast.handle[0], s.x[0], 1, 0) == WAGMA_INPROGRESS, "post");
    for (int64_t t = 0; t < 3; t++)
        for (int r = 1; r < 3; r++) {
            put(r, s.x[r], t);
            EXPECT(wagma_allreduce(s.cast.handle[r], s.x[r], 1, &o) == WAGMA_OK, "%s",
                   wagma_last_error());
            expect_outcome(&s, r, s.x[r], &o);
        }
    EXPECT(wagma_test(s.cast.handle[0], s.x[0], &o) == WAGMA_INPROGRESS, "test");
    EXPECT(wagma_wait(s.cast.handle[0], s.x[0], 0.001, &o) == WAGMA_INPROGRESS &&
               strstr(wagma_last_error(), "(phase device) for rank 0"),
           "%s", wagma_last_error());
    EXPECT(messages_for_threads || published(s.cast.segment, 0) == -1, "published %" PRId64,
           published(s.cast.segment, 0));
    machine_release(place_of(0)->device);
    EXPECT(wagma_finish(s.cast.handle[0], s.x[0], &o) == WAGMA_OK && o.late, "late %d: %s", o.late,
           wagma_last_error());
    expect_outcome(&s, 0, s.x[0], &o);
    stage_close(&s);
}
