/* A handle over the ranks of a communicator: shared memory on one node, messages on several. */
#include "include/wagma_mpi.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "mpi/transport.h"

enum { MESSAGE_MAX = 1024, ADDRESS_MAX = 256 };

/* Keep the engine's message, where wagma_mpi_last_error() finds it. */
static int keep_engines_error(int status) {
    return status == WAGMA_OK ? status : mpi_keep_error(status, "%s", wagma_last_error());
}

/* Return one status on all ranks: if a rank failed, every rank gets its status and message. A rank
 * that failed by itself comes before those that failed because of another, and a lower rank before
 * a higher one. */
static int agree(MPI_Comm comm, int status) {
    char message[MESSAGE_MAX];
    int rank, size, order, first;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    order = status == WAGMA_OK ? 2 * size : status == WAGMA_EPEER ? size + rank : rank;
    MPI_Allreduce(&order, &first, 1, MPI_INT, MPI_MIN, comm);
    if (first == 2 * size)
        return WAGMA_OK;
    snprintf(message, sizeof message, "%s", wagma_mpi_last_error());
    MPI_Bcast(&status, 1, MPI_INT, first % size, comm);
    MPI_Bcast(message, sizeof message, MPI_CHAR, first % size, comm);
    return rank == first % size ? status
                                : mpi_keep_error(status, "rank %d: %s", first % size, message);
}

/* Copy the options, with the communicator's size filled in. */
static int check_options(const wagma_options *options, int size, wagma_options *used) {
    if (!options)
        return mpi_keep_error(WAGMA_EINVAL,
                              "options is NULL: pass options set by wagma_options_init()");
    *used = (wagma_options){.struct_size = options->struct_size};
    if (options->struct_size == sizeof *used) {
        *used = *options;
        if (used->size == 0)
            used->size = size;
        if (used->size != size)
            return mpi_keep_error(WAGMA_EINVAL,
                                  "options.size is %d, but the communicator has %d ranks: set it "
                                  "to 0, or to their number",
                                  (int)used->size, size);
    }
    return keep_engines_error(wagma_options_check(used));
}

static int is_on_one_node(MPI_Comm comm, int size) {
    MPI_Comm node;
    int here;
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &here);
    MPI_Comm_free(&node);
    return here == size;
}

/* Rank 0 makes the segment, with that name if it has one, and the others open it. */
static int open_segment(MPI_Comm comm, int rank, const wagma_options *options, const char *name,
                        wagma_segment **segment) {
    char address[ADDRESS_MAX] = "";
    int status = WAGMA_OK;
    if (rank == 0)
        status = wagma_segment_create(options, name, segment);
    if (rank == 0 && status == WAGMA_OK)
        status = wagma_segment_address(*segment, address, sizeof address);
    status = agree(comm, keep_engines_error(status));
    if (status != WAGMA_OK)
        return status;
    MPI_Bcast(address, sizeof address, MPI_CHAR, 0, comm);
    if (rank != 0)
        status = keep_engines_error(wagma_segment_open(options, address, segment));
    status = agree(comm, status);
    if (*segment) /* every rank that has it: the name goes even if rank 0 is killed */
        wagma_segment_unlink(*segment);
    return status;
}

/* Without a name nothing stays behind, but ranks in PID namespaces of their own need one. */
static int find_segment(MPI_Comm comm, int rank, const wagma_options *options,
                        wagma_segment **segment) {
    char name[64];
    uint64_t random = 0;
    *segment = NULL;
    int status = open_segment(comm, rank, options, NULL, segment);
    if (status != WAGMA_ESYS)
        return status;
    wagma_segment_close(*segment);
    *segment = NULL;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        random = (uint64_t)time(NULL);
    snprintf(name, sizeof name, "/wagma-%d-%016llx", (int)getpid(), (unsigned long long)random);
    return open_segment(comm, rank, options, name, segment);
}

static int create_in_memory(MPI_Comm comm, int rank, const wagma_options *options,
                            const void *initial, double weight, const wagma_hooks *hooks,
                            wagma_handle **handle) {
    wagma_segment *segment;
    int status = find_segment(comm, rank, options, &segment);
    if (status == WAGMA_OK) {
        status = keep_engines_error(wagma_create(segment, rank, initial, weight, hooks, handle));
        if (status != WAGMA_OK)
            wagma_segment_fail(segment, rank); /* the others wait in wagma_create() */
        status = agree(comm, status);
    }
    wagma_segment_close(segment);
    return status;
}

static int create_over_messages(MPI_Comm comm, const wagma_options *options, const void *initial,
                                double weight, const wagma_hooks *hooks, wagma_handle **handle) {
    wagma_transport *transport = NULL;
    int status = agree(comm, wagma_mpi_transport(comm, &transport));
    if (status == WAGMA_OK)
        return agree(comm, keep_engines_error(wagma_create_over(transport, options, initial, weight,
                                                                hooks, handle)));
    if (transport)
        transport->calls->close(transport, 0);
    return status;
}

int wagma_create_auto(MPI_Comm comm, const wagma_options *options, const void *initial,
                      double weight, const wagma_hooks *hooks, wagma_handle **handle) {
    wagma_options used;
    int rank, size, status;
    *handle = NULL;
    if ((status = mpi_check_running()) != WAGMA_OK)
        return status;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    status = agree(comm, check_options(options, size, &used));
    if (status != WAGMA_OK)
        return status;
    status = is_on_one_node(comm, size)
                 ? create_in_memory(comm, rank, &used, initial, weight, hooks, handle)
                 : create_over_messages(comm, &used, initial, weight, hooks, handle);
    if (status != WAGMA_OK) {
        wagma_free(*handle); /* of a rank that could make one, where another could not */
        *handle = NULL;
    }
    return status;
}
