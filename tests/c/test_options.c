/* Options: defaults, and what is refused. */
#include "check.h"
#include "wagma.h"

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
    REFUSED(quorum, -1, WAGMA_EINVAL);
    REFUSED(dtype, 6, WAGMA_EINVAL);
    REFUSED(dtype, -1, WAGMA_EINVAL);
    REFUSED(average, 2, WAGMA_EINVAL);
    REFUSED(count, -1, WAGMA_EINVAL);
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

int main(void) {
    RUN(test_defaults);
    RUN(test_bad_shapes);
    RUN(test_bad_times);
    return check_summary();
}
