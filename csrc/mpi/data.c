/* Data messages: one request each, of any length. */
#include "mpi/transport.h"

#include <limits.h>

/* A message of more bytes than an int counts is one element of a type of that size: `whole` blocks
 * and the rest. (MPI 4 has functions with larger counts, but then a build would not run with the
 * libraries of MPI 3 that have the same ABI.) */
static int describe(size_t bytes, int *count, MPI_Datatype *type) {
    enum { BLOCK = 1 << 30 };
    if (bytes <= INT_MAX) {
        *count = (int)bytes;
        *type = MPI_BYTE;
        return MPI_SUCCESS;
    }
    int whole = (int)(bytes / BLOCK), rest = (int)(bytes % BLOCK);
    MPI_Datatype types[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    int code = MPI_Type_contiguous(BLOCK, MPI_BYTE, &types[0]);
    if (code != MPI_SUCCESS)
        return code;
    *count = 1;
    code = MPI_Type_create_struct(2, (int[]){whole, rest}, (MPI_Aint[]){0, (MPI_Aint)whole * BLOCK},
                                  types, type);
    MPI_Type_free(&types[0]);
    return code == MPI_SUCCESS ? MPI_Type_commit(type) : code;
}

/* `to`: sends `data`, otherwise receives into it. */
static int start(struct mpi_transport *m, int to, int rank, int tag, void *data, size_t bytes,
                 transport_completion completion) {
    const char *what = to ? "MPI_Isend of data" : "MPI_Irecv of data";
    MPI_Request request;
    MPI_Datatype type;
    int count;
    int status = requests_reserve(m, &m->messages);
    if (status != WAGMA_OK)
        return status;
    int code = describe(bytes, &count, &type);
    if (code != MPI_SUCCESS)
        return transport_failed(m, code, "a datatype for a long message");
    if (to)
        code = MPI_Isend(data, count, type, rank, tag, m->data, &request);
    else
        code = MPI_Irecv(data, count, type, rank, tag, m->data, &request);
    if (type != MPI_BYTE)
        MPI_Type_free(&type); /* lives as long as the message */
    if (code != MPI_SUCCESS)  /* to or from a dead rank: it never ends, and `dead` tells */
        return failures_noted(m, code) ? WAGMA_OK : transport_failed(m, code, what);
    requests_add(&m->messages, request, !to, completion);
    return WAGMA_OK;
}

int data_send(wagma_transport *t, int to, int tag, const void *data, size_t bytes,
              transport_completion completion) {
    return start(mpi_transport_of(t), 1, to, tag, (void *)data, bytes, completion);
}

int data_receive(wagma_transport *t, int from, int tag, void *data, size_t bytes,
                 transport_completion completion) {
    return start(mpi_transport_of(t), 0, from, tag, data, bytes, completion);
}

int data_poll(wagma_transport *t, transport_completion *completions, int most) {
    struct mpi_transport *m = mpi_transport_of(t);
    int n = 0, status = requests_test(m, &m->messages);
    if (status != WAGMA_OK)
        return status;
    while (n < most && requests_take(&m->messages, &completions[n]))
        n++;
    return n;
}
