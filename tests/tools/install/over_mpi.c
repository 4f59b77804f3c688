/* The installed libraries at work over MPI: two versions of a sum over all ranks. */
#include <mpi.h>
#include <stdio.h>
#include <wagma_mpi.h>

int main(int argc, char **argv) {
    int rank, size, level;
    wagma_transport *transport;
    wagma_options options;
    wagma_handle *handle;
    wagma_outcome outcome;
    double x;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (wagma_mpi_transport(MPI_COMM_WORLD, &transport) != WAGMA_OK) {
        printf("%s\n", wagma_mpi_last_error());
        return 1;
    }
    wagma_options_init(&options);
    options.size = size;
    options.count = 1;
    options.dtype = WAGMA_F64;
    options.average = 0;
    int status = wagma_create_over(transport, &options, NULL, 1, NULL, &handle);
    for (int version = 0; version < 2 && status == WAGMA_OK; version++) {
        x = version == 0 ? rank + 1 : x * x;
        status = wagma_allreduce(handle, &x, 1, &outcome);
        if (status == WAGMA_OK)
            printf("version %d: %g\n", version, x);
    }
    if (status != WAGMA_OK || wagma_close(handle) != WAGMA_OK) {
        printf("%s\n", wagma_last_error());
        return 1;
    }
    wagma_free(handle);
    MPI_Finalize();
    return 0;
}
