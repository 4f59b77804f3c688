/* Control messages. Receives from any rank are posted beforehand, as a ring.
 *
 * Order per pair: a message goes to the first posted receive that fits, all of these fit, and two
 * messages of one sender are matched in the order in which they were sent (MPI 4.1, 3.5). So the
 * messages of a pair are in the ring in their order, and they are handed out from its head only: a
 * receive further back that is complete before it waits. One that was handed out is posted again,
 * behind all others, and the ring moves on by one. */
#include "mpi/transport.h"

#include <stdlib.h>
#include <string.h>

enum { CONTROL_TAG = 0, FIRST_BUFFERS = 32 };

static int post(struct mpi_transport *m, int slot) {
    struct control *c = &m->control;
    int code = MPI_SUCCESS;
    for (int attempt = 0; attempt < 2; attempt++) {
        code = MPI_Irecv(c->received + (size_t)slot * TRANSPORT_CONTROL_MAX, TRANSPORT_CONTROL_MAX,
                         MPI_BYTE, MPI_ANY_SOURCE, CONTROL_TAG, c->comm, &c->ring[slot]);
        if (code == MPI_SUCCESS)
            return WAGMA_OK;
        if (!failures_noted(m, code))
            break;
    }
    return transport_failed(m, code, "MPI_Irecv of control messages");
}

/* The head is free: it goes behind the others. */
static int move_on(struct mpi_transport *m) {
    struct control *c = &m->control;
    int status = post(m, c->head);
    c->head = (c->head + 1) % CONTROL_RING;
    return status;
}

int control_open(struct mpi_transport *m) {
    struct control *c = &m->control;
    c->sends.lost_too = 1; /* their buffers are used again */
    for (int i = 0; i < CONTROL_RING; i++)
        c->ring[i] = MPI_REQUEST_NULL;
    c->received = malloc((size_t)CONTROL_RING * TRANSPORT_CONTROL_MAX);
    if (!c->received)
        return transport_no_memory(m, (size_t)CONTROL_RING * TRANSPORT_CONTROL_MAX);
    int status = WAGMA_OK;
    for (int i = 0; i < CONTROL_RING && status == WAGMA_OK; i++)
        status = post(m, i);
    return status;
}

/* Drives MPI, and looks whether the head has its message. */
static int look(struct mpi_transport *m) {
    struct control *c = &m->control;
    int code = MPI_Test(&c->ring[c->head], &c->arrived, &c->status);
    if (code == MPI_SUCCESS)
        return WAGMA_OK;
    c->arrived = 0;
    const enum failure failure = failures_noted(m, code);
    if (failure == FAILURE_OTHER)
        return transport_failed(m, code, "MPI_Test of control messages");
    if (failure == FAILURE_PENDING && c->ring[c->head] != MPI_REQUEST_NULL) {
        /* It goes on. If its message came just after the complaint, Open MPI repeats that for ever
         * (5.0: the error is forgotten only while there is no message), but its status tells. */
        code = MPI_Request_get_status(c->ring[c->head], &c->arrived, &c->status);
        if (code != MPI_SUCCESS)
            return transport_failed(m, code, "MPI_Request_get_status of control messages");
        if (c->arrived)
            MPI_Request_free(&c->ring[c->head]);
        return WAGMA_OK;
    }
    if (c->ring[c->head] != MPI_REQUEST_NULL) /* some MPIs leave it to the caller */
        MPI_Request_free(&c->ring[c->head]);
    return move_on(m); /* its message was lost with its sender */
}

int control_poll(wagma_transport *t, int *from, const void **message, size_t *bytes) {
    struct mpi_transport *m = mpi_transport_of(t);
    struct control *c = &m->control;
    int count, status = WAGMA_OK;
    if (c->lent) {
        c->lent = 0;
        status = move_on(m);
    }
    if (status == WAGMA_OK && !c->arrived)
        status = look(m);
    if (status != WAGMA_OK || !c->arrived)
        return status;
    MPI_Get_count(&c->status, MPI_BYTE, &count);
    *from = c->status.MPI_SOURCE;
    *message = c->received + (size_t)c->head * TRANSPORT_CONTROL_MAX;
    *bytes = (size_t)count;
    c->arrived = 0;
    c->lent = 1;
    return 1;
}

/* ---- sends ----------------------------------------------------------------------------------- */

static int more_buffers(struct mpi_transport *m) {
    struct control *c = &m->control;
    int n = c->sends.n ? c->sends.n : FIRST_BUFFERS; /* all are in use: twice as many */
    void **blocks = realloc(c->blocks, (size_t)(c->blocks_n + 1) * sizeof *blocks);
    if (blocks)
        c->blocks = blocks;
    void **spare = realloc(c->spare, 2 * (size_t)n * sizeof *spare);
    if (spare)
        c->spare = spare;
    unsigned char *block = malloc((size_t)n * TRANSPORT_CONTROL_MAX);
    if (!blocks || !spare || !block) {
        free(block);
        return transport_no_memory(m, (size_t)n * TRANSPORT_CONTROL_MAX);
    }
    c->blocks[c->blocks_n++] = block;
    for (int i = 0; i < n; i++)
        c->spare[c->spare_n++] = block + (size_t)i * TRANSPORT_CONTROL_MAX;
    return WAGMA_OK;
}

static int recycle(struct mpi_transport *m) {
    struct control *c = &m->control;
    transport_completion ended;
    int status = requests_test(m, &c->sends);
    while (requests_take(&c->sends, &ended))
        c->spare[c->spare_n++] = ended.context;
    return status;
}

/* Short messages have left when MPI_Isend returns, so that one test takes back all buffers: it is
 * made when there is none left. */
int control_send(wagma_transport *t, int to, const void *message, size_t bytes) {
    struct mpi_transport *m = mpi_transport_of(t);
    struct control *c = &m->control;
    MPI_Request request;
    int status = c->spare_n > 0 ? WAGMA_OK : recycle(m);
    if (status == WAGMA_OK && c->spare_n == 0)
        status = more_buffers(m);
    if (status == WAGMA_OK)
        status = requests_reserve(m, &c->sends);
    if (status != WAGMA_OK)
        return status;
    void *buffer = c->spare[c->spare_n - 1];
    memcpy(buffer, message, bytes);
    int code = MPI_Isend(buffer, (int)bytes, MPI_BYTE, to, CONTROL_TAG, c->comm, &request);
    if (code != MPI_SUCCESS) /* nobody hears it any more */
        return failures_noted(m, code)
                   ? WAGMA_OK
                   : transport_failed(m, code, "MPI_Isend of a control message");
    c->spare_n--;
    requests_add(&c->sends, request, 0, (transport_completion){.context = buffer});
    return WAGMA_OK;
}

int control_flushed(wagma_transport *t) {
    struct mpi_transport *m = mpi_transport_of(t);
    struct control *c = &m->control;
    int status = recycle(m);
    if (status == WAGMA_OK && !c->arrived && !c->lent)
        status = look(m); /* what MPI has buffered leaves only while MPI is called */
    return status != WAGMA_OK ? status : c->sends.n == 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

void control_close(struct control *c, int together) {
    int all = requests_abandon(&c->sends);
    for (int i = 0; i < CONTROL_RING; i++) {
        int done = 1;
        if (c->ring[i] == MPI_REQUEST_NULL)
            continue;
        MPI_Cancel(&c->ring[i]);
        if (together)
            MPI_Wait(&c->ring[i], MPI_STATUS_IGNORE);
        else if (MPI_Test(&c->ring[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done)
            all = 0; /* a message is on its way into it */
    }
    if (all)
        control_free(c);
}

void control_free(struct control *c) {
    for (int i = 0; i < c->blocks_n; i++)
        free(c->blocks[i]);
    free(c->blocks);
    free(c->spare);
    free(c->received);
    requests_free(&c->sends);
}
