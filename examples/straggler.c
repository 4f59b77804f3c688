/* Four processes average a vector forty times; every fifth time another of them sleeps. The others
 * do not wait for it: each version runs with whoever is there.
 *
 *     cc straggler.c $(pkg-config --cflags --libs wagma) -o straggler && ./straggler
 *
 * Each rank prints
 *   late    how many of its 40 calls came after their version had run
 *   waited  how long it waited for others in all of them
 *   model   element 0 of its vector after the last version, in which all take part: equal on all
 *           ranks. Rank r starts with r everywhere. If no rank were ever late this would be the
 *           mean, 1.5. But a late rank is counted with what it had before: rank 0 sleeps first,
 *           and its 0 counts in every version that the others run meanwhile. The number is
 *           therefore smaller, and another one in every run. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <wagma.h>

enum { RANKS = 4, COUNT = 1 << 18, VERSIONS = 40, WORK_MS = 2, SLEEP_MS = 50, SLEEP_EVERY = 5 };

static void check(int status) {
    if (status < 0) {
        fprintf(stderr, "straggler: %s\n", wagma_last_error());
        exit(1);
    }
}

static void train(wagma_segment *segment, int rank) {
    float *model = malloc(COUNT * sizeof *model);
    if (!model)
        exit(1);
    for (int i = 0; i < COUNT; i++)
        model[i] = (float)rank;

    wagma_handle *handle;
    wagma_outcome outcome;
    check(wagma_create(segment, rank, model, 1.0, NULL, &handle));
    while (wagma_version(handle) < VERSIONS) {
        int64_t version = wagma_version(handle), turn = version / SLEEP_EVERY;
        int asleep = version % SLEEP_EVERY == 0 && turn % RANKS == rank;
        usleep(1000 * (asleep ? SLEEP_MS : WORK_MS)); /* in place of a step of training */
        check(wagma_allreduce(handle, model, 1.0, &outcome));
    }

    wagma_stats stats;
    wagma_get_stats(handle, &stats);
    check(wagma_sync(handle, model, 1.0, &outcome)); /* everybody: one model */
    printf("rank %d  late %2lld of %d  waited %6.2f ms  model %.9g\n", rank, (long long)stats.late,
           VERSIONS, 1e3 * stats.waited, model[0]);
    check(wagma_close(handle));
    wagma_free(handle);
    free(model);
}

int main(void) {
    wagma_options options;
    wagma_options_init(&options);
    options.size = RANKS;
    options.quorum = 1; /* one rank is enough to run a version */
    options.count = COUNT;
    options.dtype = WAGMA_F32;
    options.average = 1;
    wagma_segment *segment;
    check(wagma_segment_create(&options, NULL, &segment));

    for (int rank = 0; rank < RANKS; rank++) {
        pid_t child = fork();
        if (child < 0) {
            perror("straggler: fork");
            return 1;
        }
        if (child == 0) {
            train(segment, rank);
            wagma_segment_close(segment);
            return 0;
        }
    }
    int failed = 0, status;
    while (wait(&status) > 0)
        failed |= status != 0;
    wagma_segment_close(segment);
    return failed;
}
