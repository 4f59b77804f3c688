/* Options: defaults, and what is refused. */
#include "check.h"
#include "include/wagma.h"

#include <math.h>
#include <string.h>

static wagma_options options_for(int size, int group_size, int quorum) {
    wagma_options o;
    wagma_options_init(&o);
    o.size = size;
    o.group_size = group_size;
    o.quorum = quorum;
    o.count = 10;
    return o;
}

static void test_defaults(void) {
    wagma_options o = options_for(6, 0, 0);
    CHECK(wagma_options_check(&o) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(o.group_size == 6 && o.quorum == 6 && o.window == 64, "%d %d %ld", o.group_size, o.quorum,
          (long)o.window);
    o = options_for(6, 3, 1);
    o.sync_period = 9;
    CHECK(wagma_options_check(&o) == WAGMA_OK && o.window == 9 && o.quorum == 1, "%ld",
          (long)o.window);
    CHECK(wagma_options_check(&o) == WAGMA_OK && o.window == 9, "checking twice changes nothing");
    CHECK(wagma_abi_version() == WAGMA_ABI_VERSION, "%d", wagma_abi_version());
}

#define REFUSED(field, value, expected)                                                            \
    do {                                                                                           \
        wagma_options o_ = options_for(4, 4, 2);                                                   \
        o_.field = (value);                                                                        \
        int status_ = wagma_options_check(&o_);                                                    \
        CHECK(status_ == (expected), #field " = " #value ": %d", status_);                         \
        CHECK(strstr(wagma_last_error(), #field), "\"%s\" does not name " #field,                  \
              wagma_last_error());                                                                 \
    } while (0)

static void test_bad_shapes(void) {
    REFUSED(struct_size, 0, WAGMA_EINVAL);
    REFUSED(size, 0, WAGMA_EINVAL);
    REFUSED(size, WAGMA_MAX_RANKS + 1, WAGMA_EINVAL);
    REFUSED(group_size, 5, WAGMA_EINVAL);
    REFUSED(group_size, -1, WAGMA_EINVAL);
    REFUSED(quorum, 5, WAGMA_EINVAL);
    REFUSED(quorum, -2, WAGMA_EINVAL);
    REFUSED(late, 3, WAGMA_EINVAL);
    REFUSED(missed, -1, WAGMA_EINVAL);
    REFUSED(activation, 2, WAGMA_EINVAL);
    REFUSED(grouping, 3, WAGMA_EINVAL);
    REFUSED(dtype, 6, WAGMA_EINVAL);
    REFUSED(dtype, -1, WAGMA_EINVAL);
    REFUSED(average, 2, WAGMA_EINVAL);
    REFUSED(count, -1, WAGMA_EINVAL);
}

/* options_for(4, 4, 2) with these choices */
static int check_choices(wagma_options *o, int late, int missed, int activation, int group_size) {
    *o = options_for(4, 4, 2);
    o->late = late;
    o->missed = missed;
    o->activation = activation;
    o->group_size = group_size;
    return wagma_options_check(o);
}

static void test_choices_that_contradict_each_other(void) {
    wagma_options o;
    CHECK(check_choices(&o, WAGMA_LATE_STALE, WAGMA_MISSED_FAST_FORWARD, 0, 2) == WAGMA_OK, "%s",
          wagma_last_error());
    for (int late = WAGMA_LATE_SKIP; late <= WAGMA_LATE_CARRY; late++) {
        CHECK(check_choices(&o, late, WAGMA_MISSED_FAST_FORWARD, 0, 2) == WAGMA_EINVAL, "late=%d",
              late);
        CHECK(strstr(wagma_last_error(), "missed"), "%s", wagma_last_error());
        CHECK(check_choices(&o, late, 0, WAGMA_ACTIVATION_WORLD, 2) == WAGMA_EINVAL, "late=%d",
              late);
        CHECK(strstr(wagma_last_error(), "activation"), "%s", wagma_last_error());
        CHECK(check_choices(&o, late, 0, WAGMA_ACTIVATION_WORLD, 4) == WAGMA_OK, "%s",
              wagma_last_error());
        CHECK(o.window == 8, "window %ld", (long)o.window);
    }
    o = options_for(2000, 2000, 1);
    o.late = WAGMA_LATE_SKIP;
    o.window = 8386;
    CHECK(wagma_options_check(&o) == WAGMA_OK, "%s", wagma_last_error());
    o.window = 8387;
    CHECK(wagma_options_check(&o) == WAGMA_EINVAL && strstr(wagma_last_error(), "window"), "%s",
          wagma_last_error());
    o = options_for(4, 2, 0);
    o.grouping = WAGMA_GROUPING_PAIRS;
    o.group_size = 3;
    CHECK(wagma_options_check(&o) == WAGMA_EINVAL && strstr(wagma_last_error(), "group_size"), "%s",
          wagma_last_error());
    o.group_size = 0;
    CHECK(wagma_options_check(&o) == WAGMA_OK && o.group_size == 2, "%d", o.group_size);
}

static void test_activation_by_the_world_is_normalised(void) {
    wagma_options o;
    CHECK(check_choices(&o, 0, 0, WAGMA_ACTIVATION_WORLD, 4) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(o.activation == WAGMA_ACTIVATION_GROUP, "the group is the world");
    o = options_for(4, 2, 3);
    o.activation = WAGMA_ACTIVATION_WORLD;
    CHECK(wagma_options_check(&o) == WAGMA_OK && o.activation == WAGMA_ACTIVATION_WORLD &&
              o.quorum == 3,
          "quorum %d of the world", o.quorum);
    o = options_for(4, 2, 4);
    o.activation = WAGMA_ACTIVATION_WORLD;
    CHECK(wagma_options_check(&o) == WAGMA_OK && o.activation == WAGMA_ACTIVATION_GROUP &&
              o.quorum == 2,
          "nobody is late: quorum %d", o.quorum);
}

static void test_bad_times(void) {
    REFUSED(sync_period, -1, WAGMA_EINVAL);
    REFUSED(window, -1, WAGMA_EINVAL);
    REFUSED(window, (1 << 20) + 1, WAGMA_EINVAL);
    REFUSED(grace, NAN, WAGMA_EINVAL);
    REFUSED(grace, INFINITY, WAGMA_EINVAL);
    REFUSED(timeout, INFINITY, WAGMA_EINVAL);
    REFUSED(timeout, 1e10, WAGMA_EINVAL);
    REFUSED(stall_warning, -INFINITY, WAGMA_EINVAL);
    REFUSED(redo_after, -1, WAGMA_EINVAL);
    wagma_options o = options_for(2, 2, 1);
    o.dtype = WAGMA_I32;
    CHECK(wagma_options_check(&o) == WAGMA_ETYPE, "average of integers");
    o.average = 0;
    CHECK(wagma_options_check(&o) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_options_check(NULL) == WAGMA_EINVAL, "NULL");
}

static void test_schedules(void) {
    REFUSED(schedule_switch, -1, WAGMA_EINVAL);
    REFUSED(schedule_chunk, 255, WAGMA_EINVAL);
    REFUSED(schedule_chunk, (1 << 30) + 1, WAGMA_EINVAL);
    REFUSED(schedule_direct, -1, WAGMA_EINVAL);
    REFUSED(schedule_part, -1, WAGMA_EINVAL);
    wagma_options o = options_for(2, 2, 1);
    CHECK(wagma_options_check(&o) == WAGMA_OK && o.schedule_switch > 0 && o.schedule_chunk > 0 &&
              o.schedule_part > 0 && o.schedule_direct > 0,
          "there are defaults");
    o.schedule_switch = 1, o.schedule_chunk = 256, o.schedule_part = 1, o.schedule_direct = 1;
    CHECK(wagma_options_check(&o) == WAGMA_OK && o.schedule_switch == 1 &&
              o.schedule_chunk == 256 && o.schedule_part == 1 && o.schedule_direct == 1,
          "what was chosen is changed");
}

int main(void) {
    RUN(test_defaults);
    RUN(test_bad_shapes);
    RUN(test_choices_that_contradict_each_other);
    RUN(test_activation_by_the_world_is_normalised);
    RUN(test_bad_times);
    RUN(test_schedules);
    return check_summary();
}
