/* straggler.c for the ranks of MPI_COMM_WORLD, on one node or several.
 *
 *     mpicc straggler_mpi.c $(pkg-config --cflags --libs wagma_mpi) -o straggler_mpi
 *     mpiexec -n 4 ./straggler_mpi
 *
 * wagma_create_auto() shares memory if all ranks are on one node, and sends messages otherwise. The
 * numbers printed are explained in straggler.c. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <wagma_mpi.h>

enum { COUNT = 1 << 18, VERSIONS = 40, WORK_MS = 2, SLEEP_MS = 50, SLEEP_EVERY = 5 };

static void check(int status, const char *(*message)(void)) {
    if (status < 0) {
        fprintf(stderr, "straggler_mpi: %s\n", message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv) {
    int rank, size, level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level); /* see wagma_mpi_transport() */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    float *model = malloc(COUNT * sizeof *model);
    if (!model)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < COUNT; i++)
        model[i] = (float)rank;

    wagma_options options;
    wagma_options_init(&options);
    options.quorum = 1; /* one rank is enough to run a version */
    options.count = COUNT;
    options.dtype = WAGMA_F32;
    options.average = 1;
    options.timeout = 60; /* seconds, after which a wait for a dead rank ends */
    wagma_handle *handle;
    check(wagma_create_auto(MPI_COMM_WORLD, &options, model, 1.0, NULL, &handle),
          wagma_mpi_last_error);

    wagma_outcome outcome;
    while (wagma_version(handle) < VERSIONS) {
        int64_t version = wagma_version(handle), turn = version / SLEEP_EVERY;
        int asleep = version % SLEEP_EVERY == 0 && turn % size == rank;
        usleep(1000 * (asleep ? SLEEP_MS : WORK_MS)); /* in place of a step of training */
        check(wagma_allreduce(handle, model, 1.0, &outcome), wagma_last_error);
    }
    wagma_stats stats;
    wagma_get_stats(handle, &stats);
    check(wagma_sync(handle, model, 1.0, &outcome), wagma_last_error); /* one model everywhere */
    printf("rank %d  late %2lld of %d  waited %6.2f ms  model %.9g\n", rank, (long long)stats.late,
           VERSIONS, 1e3 * stats.waited, model[0]);

    check(wagma_close(handle), wagma_last_error);
    wagma_free(handle);
    free(model);
    MPI_Finalize();
    return 0;
}
