/* Requests in progress: added at the end, tested together, taken out by closing the gaps. */
#include "mpi/transport.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 32 };

/* The array with room for `capacity`; the old one, and *failed, where there is no memory. */
static void *grow(void *array, int capacity, size_t element, int *failed) {
    void *grown = realloc(array, (size_t)capacity * element);
    *failed |= !grown;
    return grown ? grown : array;
}

int requests_reserve(struct mpi_transport *m, struct requests *r) {
    if (r->n < r->capacity)
        return WAGMA_OK;
    int capacity = r->capacity ? 2 * r->capacity : FIRST_CAPACITY, failed = 0;
    r->active = grow(r->active, capacity, sizeof *r->active, &failed);
    r->contexts = grow(r->contexts, capacity, sizeof *r->contexts, &failed);
    r->receives = grow(r->receives, capacity, sizeof *r->receives, &failed);
    r->ended = grow(r->ended, capacity, sizeof *r->ended, &failed);
    r->indices = grow(r->indices, capacity, sizeof *r->indices, &failed);
    r->statuses = grow(r->statuses, capacity, sizeof *r->statuses, &failed);
    if (failed)
        return transport_no_memory(m, (size_t)capacity * sizeof *r->statuses);
    r->capacity = capacity;
    return WAGMA_OK;
}

void requests_add(struct requests *r, MPI_Request request, int receive,
                  transport_completion context) {
    r->active[r->n] = request;
    r->receives[r->n] = (unsigned char)receive;
    r->contexts[r->n++] = context;
}

static void close_gaps(struct requests *r) {
    int kept = 0;
    for (int i = 0; i < r->n; i++)
        if (r->active[i] != MPI_REQUEST_NULL) {
            r->active[kept] = r->active[i];
            r->receives[kept] = r->receives[i];
            r->contexts[kept++] = r->contexts[i];
        }
    r->n = kept;
}

/* The request at `at` ended with this code of MPI. */
static int end_one(struct mpi_transport *m, struct requests *r, int at, int code) {
    int lost = code != MPI_SUCCESS && failures_noted(m, code);
    if (code == MPI_SUCCESS || r->lost_too)
        r->ended[r->ended_until++] = r->contexts[at];
    if (r->active[at] != MPI_REQUEST_NULL) /* in error: some MPIs leave it to the caller */
        MPI_Request_free(&r->active[at]);
    return code == MPI_SUCCESS || lost ? WAGMA_OK : transport_failed(m, code, "a message");
}

static int test_together(struct mpi_transport *m, struct requests *r) {
    int done = 0, status = WAGMA_OK;
    int code = MPI_Testsome(r->n, r->active, &done, r->indices, r->statuses);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
        return transport_failed(m, code, "MPI_Testsome");
    for (int i = 0; done != MPI_UNDEFINED && i < done; i++) {
        int ended = code == MPI_SUCCESS ? MPI_SUCCESS : r->statuses[i].MPI_ERROR;
        int failed = end_one(m, r, r->indices[i], ended);
        status = failed != WAGMA_OK ? failed : status;
    }
    return status;
}

/* Where ranks may die and others live on. There, Open MPI frees with one message that failed all of
 * that call whose peer is dead, also those that it goes on with, and ends the job when it finds a
 * message without a request (5.0, ompi_errhandler_request_invoke). */
static int test_each(struct mpi_transport *m, struct requests *r) {
    int status = WAGMA_OK;
    for (int i = 0; i < r->n; i++) {
        int done = 0;
        int code = MPI_Test(&r->active[i], &done, MPI_STATUS_IGNORE);
        int failed = code != MPI_SUCCESS || done ? end_one(m, r, i, code) : WAGMA_OK;
        status = failed != WAGMA_OK ? failed : status;
    }
    return status;
}

/* The completions in ended[] are from an earlier test: they are taken before the next test, so that
 * there is room. */
int requests_test(struct mpi_transport *m, struct requests *r) {
    if (r->n == 0 || r->ended_from < r->ended_until)
        return WAGMA_OK;
    r->ended_from = r->ended_until = 0;
    int status = m->survives ? test_each(m, r) : test_together(m, r);
    close_gaps(r);
    return status;
}

int requests_take(struct requests *r, transport_completion *context) {
    if (r->ended_from == r->ended_until)
        return 0;
    *context = r->ended[r->ended_from++];
    return 1;
}

/* Sends are not cancelled: not every MPI can, and for those that ask the receiver it is costly. */
int requests_abandon(struct requests *r) {
    int all = 1;
    for (int i = 0; i < r->n; i++) {
        int done = 0;
        if (r->receives[i])
            MPI_Cancel(&r->active[i]);
        if (MPI_Test(&r->active[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done)
            all = 0;
    }
    r->n = 0;
    return all;
}

void requests_free(struct requests *r) {
    free(r->active);
    free(r->contexts);
    free(r->receives);
    free(r->ended);
    free(r->indices);
    free(r->statuses);
}
