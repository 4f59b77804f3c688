#include "world.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SECONDS = 100 };

int world_rank, world_size;

void world_begin(int *argc, char ***argv) {
    int level;
    alarm(SECONDS); /* a hang ends the rank, and with it the job */
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level);
    /* As mpi4py does: errors of MPI_Testsome go there, and not to the messages' communicator. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
}

void world_meet(void) {
    MPI_Barrier(MPI_COMM_WORLD);
}

void world_tell(void *bytes, int n) {
    MPI_Bcast(bytes, n, MPI_BYTE, 0, MPI_COMM_WORLD);
}

int world_failures(int mine) {
    int all;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

wagma_transport *world_transport(void) {
    wagma_transport *t = NULL;
    if (wagma_mpi_transport(MPI_COMM_WORLD, &t) != WAGMA_OK) {
        printf("rank %d: %s\n", world_rank, wagma_mpi_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return t;
}
