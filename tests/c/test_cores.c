/* Who may spin: by the affinity masks that the ranks have published. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "check.h"
#include "cores.h"
#include "support.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 4 };

/* What cores_suffice() says of ranks with these masks: bit i of a mask is core i, 0: not known. */
static int suffice(int size, const uint64_t *masks) {
    wagma_options o = options_of(size, size, 1, 1);
    wagma_segment *s;
    if (wagma_segment_create(&o, NULL, &s) != WAGMA_OK)
        return -1;
    for (int r = 0; r < size; r++)
        *segment_cores_of(s, r) = (segment_cores){{masks[r]}};
    const int answer = cores_suffice(s);
    wagma_segment_close(s);
    return answer;
}

static void test_masks(void) {
    static const struct {
        int size;
        uint64_t masks[MOST];
        int suffice;
    } rows[] = {
        {1, {1}, 1},
        {2, {1, 2}, 1},          /* each bound to a core of its own */
        {2, {1, 1}, 0},          /* both to the same */
        {2, {3, 3}, 1},          /* not bound */
        {2, {1, 3}, 0},          /* overlapping */
        {2, {0, 0}, 1},          /* not known */
        {2, {0, 2}, 1},          /* */
        {4, {1, 2, 4, 8}, 1},    /* of 4 cores */
        {4, {3, 3, 12, 12}, 1},  /* two sockets */
        {4, {3, 3, 3, 12}, 0},   /* one of them has too many ranks */
        {4, {3, 12, 3, 12}, 1},  /* round-robin */
        {4, {15, 15, 15, 15}, 1} /* not bound */
    };
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK(suffice(rows[i].size, rows[i].masks) == (rows[i].suffice && online >= rows[i].size),
              "row %zu", i);
}

static void test_more_ranks_than_cores(void) {
    const int many = (int)sysconf(_SC_NPROCESSORS_ONLN) + 1;
    wagma_options o = options_of(many, many, 1, 1);
    wagma_segment *s;
    CHECK(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error());
    for (int r = 0; r < many; r++) /* they would suffice if there were so many */
        segment_cores_of(s, r)->mask[r / 64] = UINT64_C(1) << r % 64;
    CHECK(!cores_suffice(s), "%d ranks", many);
    wagma_segment_close(s);
}

/* Two threads, each bound to a core: handles spin. Both to the same one: they do not. */
static void test_handles_of_bound_ranks(void) {
    cpu_set_t before;
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0, "sched_getaffinity");
    int cores[2], n = 0;
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET(i, &before))
            cores[n++] = i;
    for (int apart = 0; apart < n; apart++) {
        wagma_options o = options_of(2, 2, 0, 1);
        cast c;
        cpu_set_t one;
        CHECK(cast_open(&c, &o, NULL, NULL), "%s", wagma_last_error());
        for (int r = 0; r < 2; r++) {
            CPU_ZERO(&one);
            CPU_SET(cores[r * apart], &one);
            CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
            cores_publish(c.segment, r);
        }
        CHECK(cores_suffice(c.segment) == apart, "%d cores", 1 + apart);
        sched_setaffinity(0, sizeof before, &before);
        cast_close(&c);
    }
}

int main(void) {
    RUN(test_masks);
    RUN(test_more_ranks_than_cores);
    RUN(test_handles_of_bound_ranks);
    return check_summary();
}
