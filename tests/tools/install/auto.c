/* wagma_create_auto(): errors are every rank's, and afterwards a handle works. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <wagma_mpi.h>

static int rank, size, failures;

static void expect(const char *what, int status, int expected, const char *words) {
    if (status == expected && (!words || strstr(wagma_mpi_last_error(), words)))
        return;
    printf("rank %d: %s: status %d, %s\n", rank, what, status, wagma_mpi_last_error());
    failures++;
}

static int make(wagma_options options, double weight, wagma_handle **handle) {
    const double began = MPI_Wtime();
    const int status = wagma_create_auto(MPI_COMM_WORLD, &options, NULL, weight, NULL, handle);
    if ((status == WAGMA_OK) != (*handle != NULL)) {
        printf("rank %d: status %d, handle %p\n", rank, status, (void *)*handle);
        failures++;
    }
    if (MPI_Wtime() - began > 10) { /* the timeout is 20 s: ranks waited for one that had failed */
        printf("rank %d: waited %.1f s\n", rank, MPI_Wtime() - began);
        failures++;
    }
    return status;
}

int main(int argc, char **argv) {
    int level;
    wagma_options good, other;
    wagma_handle *handle;
    wagma_outcome outcome;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    wagma_options_init(&good);
    good.count = 4;
    good.dtype = WAGMA_F64;
    good.average = 0;
    good.timeout = 20;

    expect("one rank's weight", make(good, rank == 1 ? -1 : 1, &handle), WAGMA_EINVAL, "weight=-1");
    other = good;
    other.size = rank == 1 ? 7 : 0;
    expect("one rank's size", make(other, 1, &handle), WAGMA_EINVAL, "options.size is 7");
    other = good;
    other.count = rank == 1 ? -4 : 4;
    expect("one rank's count", make(other, 1, &handle), WAGMA_EINVAL, "count is -4");
    other.count = rank == 1 ? 8 : 4;
    expect("another count", make(other, 1, &handle), WAGMA_EMISMATCH, NULL);
    other = good;
    other.struct_size = 8;
    expect("another struct", make(other, 1, &handle), WAGMA_EINVAL, "struct_size");

    expect("creation", make(good, 1, &handle), WAGMA_OK, NULL);
    double x[4] = {rank + 1, rank + 1, rank + 1, rank + 1};
    if (handle && wagma_allreduce(handle, x, 1, &outcome) == WAGMA_OK)
        failures += x[3] != size * (size + 1) / 2;
    else
        failures++;
    if (handle && wagma_close(handle) != WAGMA_OK)
        failures++;
    wagma_free(handle);
    MPI_Finalize();
    printf("rank %d: %d failures\n", rank, failures);
    return 0;
}
