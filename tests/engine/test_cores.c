/* Who may spin: by the affinity masks that the ranks have published. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "check.h"
#include "shm/cores.h"
#include "shm/handle.h"
#include "support.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

enum { MOST = 4 };

/* What cores_suffice() says of ranks with these masks: bit i of a mask is core i, 0: not known. */
static int suffice(int size, const uint64_t *masks) {
    wagma_options o = options_of(size, size, 1, 1);
    wagma_segment *s;
    if (wagma_segment_create(&o, NULL, &s) != WAGMA_OK)
        return -1;
    for (int r = 0; r < size; r++)
        *segment_cores_of(s, r) = (cores_mask){{masks[r]}};
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
        {4, {1, 2, 4, 8}, 1},    /* of 4 cores */
        {4, {3, 3, 12, 12}, 1},  /* two sockets */
        {4, {3, 3, 3, 12}, 0},   /* one of them has too many ranks */
        {4, {3, 12, 3, 12}, 1},  /* round-robin */
        {4, {15, 15, 15, 15}, 1} /* not bound */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK(suffice(rows[i].size, rows[i].masks) == rows[i].suffice, "row %zu", i);
}

/* Where masks are not known, the system's number of processors decides. */
static void test_more_ranks_than_processors(void) {
    const int many = (int)sysconf(_SC_NPROCESSORS_ONLN) + 1;
    wagma_options o = options_of(many, many, 1, 1);
    wagma_segment *s;
    CHECK(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(!cores_suffice(s), "%d ranks", many);
    wagma_segment_close(s);
}

typedef struct bound {
    wagma_segment *segment;
    int rank, core;
    int spin; /* of its handle */
} bound;

static void *join_bound(void *argument) {
    bound *b = argument;
    wagma_handle *h;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(b->core, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0 ||
        wagma_create(b->segment, b->rank, NULL, 1, NULL, &h) != WAGMA_OK)
        return NULL;
    b->spin = handle_wait(h)->spin;
    wagma_close(h);
    wagma_free(h);
    return NULL;
}

/* Two ranks, each bound to a core: their handles spin. Both to the same one: they do not. */
static void test_handles_of_bound_ranks(void) {
    cpu_set_t mask;
    int cores[2], n = 0;
    CHECK(sched_getaffinity(0, sizeof mask, &mask) == 0, "sched_getaffinity");
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET(i, &mask))
            cores[n++] = i;
    for (int apart = 0; apart < n; apart++) {
        wagma_options o = options_of(2, 2, 0, 1);
        wagma_segment *s;
        pthread_t threads[2];
        bound ranks[2];
        CHECK(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error());
        for (int r = 0; r < 2; r++) {
            ranks[r] = (bound){s, r, cores[r * apart], 0};
            CHECK(pthread_create(&threads[r], NULL, join_bound, &ranks[r]) == 0, "pthread_create");
        }
        for (int r = 0; r < 2; r++)
            pthread_join(threads[r], NULL);
        wagma_segment_close(s);
        for (int r = 0; r < 2; r++)
            CHECK(ranks[r].spin == (apart ? 1 : -1), "rank %d of 2 on %d cores: %d", r, 1 + apart,
                  ranks[r].spin);
    }
}

int main(void) {
    RUN(test_masks);
    RUN(test_more_ranks_than_processors);
    RUN(test_handles_of_bound_ranks);
    return check_summary();
}
