/* Quorum "all" with private arrays that are read from their owners' memory: what is chosen, and a
 * rank that gives up while others read its array. (Sums: test_private.c.) */
#define _GNU_SOURCE /* syscall */
#include "check.h"
#include "shm/quorum_all/executor.h"
#include "ranks.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { COUNT = 20011 }; /* floats */

/* Every rank of the cast contributes its number plus 1, and its call is under way. */
static void start_all(cast *c, float *const *x, int *status) {
    for (int r = 0; r < c->size; r++) {
        wagma_outcome out;
        for (int i = 0; i < COUNT; i++)
            x[r][i] = (float)(r + 1);
        status[r] = wagma_start(c->handle[r], x[r], 1, 0, &out);
    }
}

/* Rank 1 of three gives up in a version, before or after rank 0 has read it for its sum, and writes
 * into its array, or it is gone. Rank 2 passes its shared array: others write there what they read.
 */
static void check_given_up(int stage, int gone) {
    static float zero[COUNT];
    float *one =
        mmap(NULL, sizeof zero, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    wagma_options o = ranks_options(3, 0, WAGMA_F32, COUNT);
    wagma_outcome out;
    cast c;
    chunks_default = CHUNKS_DIRECT;
    CHECK(cast_open(&c, &o, NULL, NULL), "%s", wagma_last_error());
    chunks_default = CHUNKS_FASTER;
    float *x[3] = {zero, one, wagma_shared_array(c.handle[2])};
    for (int t = 0; t < 2; t++) {
        int status[3], left = 3;
        start_all(&c, x, status);
        for (int turn = 0; t == 0 && left > 0 && turn < 100; turn++)
            for (int r = 0; r < 3; r++)
                if (status[r] == WAGMA_INPROGRESS) {
                    status[r] = wagma_test(c.handle[r], x[r], &out);
                    left -= status[r] == WAGMA_OK;
                }
        EXPECT(t != 0 || (left == 0 && x[0][0] == 2 && x[2][COUNT - 1] == 2), "%d left", left);
    }
    /* 0: before rank 0 has read anything of it; 1: when it has summed up, and not collected */
    for (int turn = 0; turn < stage; turn++)
        EXPECT(wagma_test(c.handle[0], x[0], &out) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    EXPECT(wagma_test(c.handle[1], x[1], &out) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    EXPECT(quorum_all_of(c.handle[1])->chunks.direct, "not read directly");
    wagma_fail(c.handle[1]);
    for (int i = 0; i < COUNT; i++)
        one[i] = -1;
    if (gone)
        munmap(one, sizeof zero);
    for (int r = 0; r < 3; r += 2) {
        int status = wagma_test(c.handle[r], x[r], &out);
        if (status == WAGMA_INPROGRESS)
            status = wagma_finish(c.handle[r], x[r], &out);
        EXPECT(status == WAGMA_EPEER, "rank %d: %g from one that gave up", r, (double)x[r][0]);
    }
    cast_drop(&c);
    munmap(one, sizeof zero);
    CHECK(expectations_failed() == 0, "stage %d, gone %d", stage, gone);
}

static void test_given_up(void) {
    for (int stage = 0; stage <= 1; stage++)
        for (int gone = 0; gone <= 1; gone++)
            check_given_up(stage, gone);
}

/* By itself a rank tries both early, in versions that it decides, and then goes on with one way. */
static int repeat(wagma_handle *h, int rank, void *context) {
    struct ways *ways = context;
    float *x = calloc(COUNT, sizeof *x);
    for (int t = 0; t < 40; t++)
        REQUIRE(wagma_allreduce(h, x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
    ways[rank] = quorum_all_of(h)->chunks.way;
    free(x);
    return 0;
}

/* In pairs that change: ranks 0 to 2 decide, each in some versions. */
static void test_both_ways_are_timed(void) {
    const wagma_options o = ranks_options(4, 2, WAGMA_F32, COUNT);
    struct ways ways[4] = {0};
    CHECK(ranks_run(THREADS, &o, repeat, ways) == 0, "see above");
    for (int r = 0; r < 3; r++)
        CHECK(ways[r].cost[0] > 0 && ways[r].cost[1] > 0, "rank %d: %lu and %lu ps per byte", r,
              (unsigned long)ways[r].cost[0], (unsigned long)ways[r].cost[1]);
}

/* Memory that the system does not read for others, such as that of a device: it is passed. */
static int pass_unreadable(wagma_handle *h, int rank, void *context) {
    float *x = *(float **)context;
    float own[3000];
    if (rank == 1)
        x = own;
    for (int t = 0; t < 6; t++) {
        wagma_outcome o;
        for (int i = 0; i < 3000; i++)
            x[i] = (float)(1 + rank);
        REQUIRE(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "%s", wagma_last_error());
        REQUIRE(x[0] == 1.5f && x[2999] == 1.5f, "%g", (double)x[0]);
    }
    REQUIRE(h->stats.direct == 0, "%d calls", (int)h->stats.direct);
    return 0;
}

static void test_unreadable(void) {
    const wagma_options o = ranks_options(2, 0, WAGMA_F32, 3000);
    const int fd = (int)syscall(SYS_memfd_secret, 0);
    float *x = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, 3000 * sizeof *x) == 0)
        x = mmap(NULL, 3000 * sizeof *x, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (x == MAP_FAILED) {
        printf("skipped   this system has no secret memory\n");
        return;
    }
    CHECK(ranks_run(THREADS, &o, pass_unreadable, &x) == 0, "see above");
    munmap(x, 3000 * sizeof *x);
    close(fd);
}

/* A rank that has finished the version, and fails after it, takes nothing from the others. */
static void test_failed_later(void) {
    static float zero[COUNT], one[COUNT];
    float *x[2] = {zero, one};
    wagma_options o = ranks_options(2, 0, WAGMA_F32, COUNT);
    wagma_outcome out;
    cast c;
    chunks_default = CHUNKS_DIRECT;
    CHECK(cast_open(&c, &o, NULL, NULL), "%s", wagma_last_error());
    chunks_default = CHUNKS_FASTER;
    for (int t = 0; t < 2; t++) {
        int status[2];
        start_all(&c, x, status);
        for (int turn = 0; status[0] == WAGMA_INPROGRESS && turn < 100; turn++)
            for (int r = 0; r < 2 && status[0] == WAGMA_INPROGRESS; r++)
                status[r] = wagma_test(c.handle[r], x[r], &out);
        EXPECT(status[0] == WAGMA_OK, "%d: %s", status[0], wagma_last_error());
        EXPECT(status[1] == WAGMA_INPROGRESS, "rank 1 was the first: %d", status[1]);
        if (t == 1)
            wagma_fail(c.handle[0]);
        status[1] = wagma_finish(c.handle[1], x[1], &out);
        EXPECT(status[1] == WAGMA_OK && x[1][0] == 1.5f, "%d: %s", status[1], wagma_last_error());
    }
    EXPECT(quorum_all_of(c.handle[0])->chunks.direct, "not read directly");
    cast_drop(&c);
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    if (!peers_may_read()) {
        printf("skipped   this system does not let memory be read so\n");
        return check_summary();
    }
    RUN(test_given_up);
    RUN(test_failed_later);
    RUN(test_both_ways_are_timed);
    RUN(test_unreadable);
    return check_summary();
}
