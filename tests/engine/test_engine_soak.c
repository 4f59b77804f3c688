/* A million tiny versions of 2 and of 4 processes: every sum is right to the end, and no memory is
 * used that was not in use early on (shared, private). */
#define _GNU_SOURCE
#include "check.h"
#include "contribution.h"
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COUNT = 1, VERSIONS = 1000000 / SLOWDOWN, EARLY = VERSIONS / 10 };

typedef struct memory {
    int64_t committed; /* bytes, by the handle's own account */
    int64_t shared;    /* bytes of the segment's file */
    int64_t private;   /* bytes resident, without shared and file pages */
} memory;

typedef struct soak {
    memory early[RANKS_MAX], late[RANKS_MAX];
    double began[RANKS_MAX], ended[RANKS_MAX];
} soak;

static memory measure(const wagma_segment *s, const wagma_handle *h) {
    struct stat file = {0};
    wagma_stats stats;
    long size = 0, resident = 0, shared = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    EXPECT(statm && fscanf(statm, "%ld %ld %ld", &size, &resident, &shared) == 3, "no statm");
    if (statm)
        fclose(statm);
    EXPECT(fstat(s->fd, &file) == 0, "no file");
    wagma_get_stats(h, &stats);
    return (memory){(int64_t)stats.segment_bytes, (int64_t)file.st_blocks * 512,
                    (int64_t)(resident - shared) * sysconf(_SC_PAGESIZE)};
}

static void run_long(rank *me) {
    soak *k = me->shared;
    double x = contribution(WAGMA_F64, me->rank, -1, 0);
    wagma_handle *h = rank_join(me, &x);
    k->began[me->rank] = seconds();
    for (int64_t t = 0; h && t < VERSIONS; t++) {
        wagma_outcome o;
        x = contribution(WAGMA_F64, me->rank, t, 0);
        if (!EXPECT(wagma_allreduce(h, &x, 1, &o) == WAGMA_OK, "rank %d: %s", me->rank,
                    wagma_last_error()) ||
            !expect_result(me, &x, &o))
            break;
        if (t == EARLY)
            k->early[me->rank] = measure(me->segment, h);
        else if (t == VERSIONS - 1)
            k->late[me->rank] = measure(me->segment, h);
    }
    k->ended[me->rank] = seconds();
    wagma_close(h);
    wagma_free(h);
}

static void soak_ranks(int size, int group_size, int64_t sync_period) {
    soak *k = shared_memory(sizeof *k);
    wagma_options o = options_of(size, group_size, 1, COUNT);
    o.sync_period = sync_period;
    team *t = team_start(PROCESSES, &o, run_long, k);
    wagma_segment *s = team_segment(t);
    /* Up to the protocol's bound more can be committed late, when a rank was stopped for long. */
    const int64_t bound = (int64_t)(s->buffers + s->rounds) * (int64_t)s->item_step +
                          (int64_t)s->rounds * (int64_t)s->record_step;
    team_join_clean(t);
    for (int r = 0; r < size; r++) {
        const memory *early = &k->early[r], *late = &k->late[r];
        EXPECT(early->committed > 0 && late->committed <= early->committed + bound,
               "rank %d: %" PRId64 " then %" PRId64 " committed bytes", r, early->committed,
               late->committed);
        EXPECT(late->shared <= early->shared + size * (bound + 4096),
               "rank %d: %" PRId64 " then %" PRId64 " bytes in /dev/shm", r, early->shared,
               late->shared);
        EXPECT(late->private <= early->private + (256 << 10),
               "rank %d: %" PRId64 " then %" PRId64 " private bytes", r, early->private,
               late->private);
        EXPECT(k->ended[r] > k->began[r], "rank %d has not run", r);
    }
    printf("  P=%d: %d versions in %.1f s\n", size, VERSIONS, k->ended[0] - k->began[0]);
    CHECK(expectations_failed() == 0, "P=%d", size);
}

static void test_two_ranks(void) {
    soak_ranks(2, 2, 100);
}

static void test_four_ranks(void) {
    soak_ranks(4, 4, 100);
}

static void test_pairs_of_four(void) {
    soak_ranks(4, 2, 0);
}

int main(void) {
    RUN(test_two_ranks);
    RUN(test_four_ranks);
    RUN(test_pairs_of_four);
    return check_summary();
}
