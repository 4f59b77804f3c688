/* See parts_stage.h. */
#include "parts_stage.h"

#include "check.h"
#include "staged/staged.h"

const char *const policies[POLICIES] = {"all", "stale", "skip"};

wagma_options options_by_parts(int size, enum kind_of_call policy, schedule_algorithm algorithm) {
    wagma_options o = options_of(size, size, size, COUNT);
    o.schedule_chunk = CHUNK;
    o.schedule_direct = algorithm == SCHEDULE_DIRECT ? 16 : 1;
    o.schedule_switch = algorithm == SCHEDULE_DOUBLING ? 1 << 30 : 0;
    o.progress = WAGMA_PROGRESS_MAIN;
    o.timeout = 20;
    if (policy != ALL) {
        o.quorum = 1;
        o.grace = 10;
        o.late = policy == SKIP ? WAGMA_LATE_SKIP : WAGMA_LATE_STALE;
    }
    return o;
}

void post(stage *s, int r, void *x, int64_t t) {
    put(r, x, t);
    EXPECT(wagma_post(s->cast.handle[r], x, 1, 0) == WAGMA_INPROGRESS, "%s", wagma_last_error());
}

void allow(const stage *s, int r, int n) {
    machine_allow(place_of(r)->device, s->cast.handle[r]->staged->stream, n);
}
