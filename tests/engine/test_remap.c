/* remap.c: a place that shows one buffer of a rank or another, and keeps its address. */
#include "check.h"
#include "remapped.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static void test_shows_one_buffer_after_the_other(void) {
    static const int shown[] = {0, 2, 1, 3, 0, 0, 3, 2, 1};
    const wagma_options o = choose(2, 1);
    wagma_segment *s;
    CHECK(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(segment_join(s, 1) == WAGMA_OK, "%s", wagma_last_error());
    struct remap *array = remap_new(s, 1);
    CHECK(array != NULL, "%s", wagma_last_error());
    double *x = remap_array(array);
    for (int b = 0; b < 4; b++)
        fill((double *)segment_contribution(s, 1, b), b);
    CHECK(remap_shown(array) == 1 && holds(x, 1), "%g at first", x[0]);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const int b = shown[i];
        CHECK(remap_show(array, b) == WAGMA_OK && remap_shown(array) == b, "%s",
              wagma_last_error());
        CHECK(remap_array(array) == x && holds(x, b), "%g instead of %d", x[0], b);
        fill(x, 10 + b); /* it is the same memory */
        for (int other = 0; other < 4; other++)
            CHECK(holds((double *)segment_contribution(s, 1, other), other + (other == b ? 10 : 0)),
                  "buffer %d when %d is shown", other, b);
        fill(x, b);
    }
    remap_free(array);
    wagma_segment_close(s);
}

/* Bytes of address space that this process uses. */
static rlim_t address_space(void) {
    char text[64] = {0};
    const int fd = open("/proc/self/statm", O_RDONLY);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        text[0] = 0;
    close(fd);
    return (rlim_t)strtoull(text, NULL, 10) * 4096;
}

/* Without room for a moment the kernel moves nothing, and may have emptied the place by then. */
static void test_what_cannot_be_moved_is_mapped_anew(void) {
    const wagma_options o = choose(2, 1);
    wagma_segment *s;
    struct rlimit before, least;
    CHECK(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(segment_join(s, 0) == WAGMA_OK, "%s", wagma_last_error());
    struct remap *array = remap_new(s, 0);
    CHECK(array != NULL && getrlimit(RLIMIT_AS, &before) == 0, "%s", wagma_last_error());
    double *x = remap_array(array);
    for (int b = 0; b < 4; b++)
        fill((double *)segment_contribution(s, 0, b), b);
    least = before;
    least.rlim_cur = address_space() - 4096;
    CHECK(setrlimit(RLIMIT_AS, &least) == 0, "no limit");
    const int shown = remap_show(array, 0);
    CHECK(setrlimit(RLIMIT_AS, &before) == 0, "the limit stays");
    CHECK(shown == 0 && remap_shown(array) == 0 && holds(x, 0), "%d", shown);
    for (int b = 3; b >= 0; b--) {
        CHECK(remap_show(array, b) == 0 && holds(x, b), "%g instead of %d", x[0], b);
        fill(x, 10 + b);
        CHECK(holds((double *)segment_contribution(s, 0, b), 10 + b), "buffer %d", b);
    }
    remap_free(array);
    wagma_segment_close(s);
}

static void test_says_where_it_cannot(void) {
    const wagma_options o = choose(2, 1);
    wagma_segment *s;
    CHECK(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(segment_join(s, 0) == WAGMA_OK, "%s", wagma_last_error());
    wagma_segment other = *s;
    other.fd = -1;
    CHECK(remap_new(&other, 0) == NULL, "mapped without a file");
    remap_free(NULL);
    wagma_segment_close(s);
}

int main(void) {
    segment_remap_min = 1024;
    RUN(test_says_where_it_cannot);
    if (is_supported()) {
        RUN(test_shows_one_buffer_after_the_other);
        RUN(test_what_cannot_be_moved_is_mapped_anew);
    }
    return check_summary();
}
