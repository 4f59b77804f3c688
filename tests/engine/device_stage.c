/* See device_stage.h. */
#include "device_stage.h"

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

int publish(stage *s, int r, void *array, int64_t t) {
    put(r, array, t);
    int status = wagma_post(s->cast.handle[r], array, 1, 0);
    while (status == WAGMA_INPROGRESS && published(s->cast.segment, r) < t)
        status = wagma_test(s->cast.handle[r], array, NULL);
    EXPECT(status >= 0, "status %d: %s", status, wagma_last_error());
    return status;
}
