/* A transport (messages/transport.h) over MPI: declarations shared by its files.
 *
 *   transport.c       making and ending it, the sum
 *   control.c         control messages: a ring of posted receives, a pool of buffers for sends
 *   data.c            data messages
 *   requests.c        requests in progress, for both
 *   failures.c        ranks that died, where MPI tells (ULFM)
 *   finalize.c        transports that are open when MPI ends
 *
 * library/create_auto.c chooses between shared memory and messages. It needs the engine, and is
 * therefore in libwagma_mpi only, not in the Python extension.
 *
 * Only functions of MPI 3.0 are called: a build runs with every library of its MPI's ABI. */
#ifndef WAGMA_MPI_TRANSPORT_H
#define WAGMA_MPI_TRANSPORT_H

#include <mpi.h>

#include "messages/transport.h"

/* Requests in progress, without gaps: each test looks at these only. */
struct requests {
    MPI_Request *active;            /* [n] */
    transport_completion *contexts; /* [n] of the active ones */
    unsigned char *receives;        /* [n] 1: a receive */
    int n, capacity;
    int lost_too; /* 1: messages to or from a dead rank end like others; 0: never */
    /* Completions that requests_test() found. */
    transport_completion *ended; /* [capacity]: ended_from..ended_until-1 were not taken yet */
    int ended_from, ended_until;
    int *indices;         /* [capacity] scratch */
    MPI_Status *statuses; /* [capacity] scratch */
};

enum { CONTROL_RING = 32 };

struct control {
    MPI_Comm comm;
    /* Receives, in the order in which they were posted, from `head` on. */
    MPI_Request ring[CONTROL_RING];
    unsigned char *received; /* [CONTROL_RING][TRANSPORT_CONTROL_MAX] */
    int head;
    int arrived;       /* the head has a message: `status` */
    int lent;          /* the caller has the head's message: it is posted again at the next poll */
    MPI_Status status; /* of the head */
    /* Sends: the context of each is its buffer. */
    struct requests sends;
    void **spare; /* [sends.capacity] buffers that are not in use */
    int spare_n;
    void **blocks; /* memory of the buffers */
    int blocks_n;
};

struct mpi_transport {
    wagma_transport base; /* first: a wagma_transport * is one of these */
    char name[64];
    int survives; /* MPI tells of ranks that died, and goes on without them */
    struct control control;
    MPI_Comm data;
    struct requests messages; /* data messages */
    MPI_Request sum;          /* MPI_REQUEST_NULL: none is in progress */
    int64_t sum_mine[2], sum_totals[2];
    struct mpi_transport *next; /* in the list of open transports; later in that of closed
                                   transports that are kept */
};

static inline struct mpi_transport *mpi_transport_of(wagma_transport *t) {
    return (struct mpi_transport *)t;
}

/* Keeps the message for wagma_mpi_last_error() and returns the status. */
__attribute__((format(printf, 2, 3))) int mpi_keep_error(int status, const char *format, ...);
/* Check that MPI is running: WAGMA_OK or WAGMA_EINVAL. */
int mpi_check_running(void);

/* Sets the message "`what` failed: MPI's words" and returns the status. */
int transport_failed(struct mpi_transport *m, int code, const char *what);
int transport_no_memory(struct mpi_transport *m, size_t bytes);

/* Room for one more request, before it is made: WAGMA_OK or WAGMA_ENOMEM. */
int requests_reserve(struct mpi_transport *m, struct requests *r);
void requests_add(struct requests *r, MPI_Request request, int receive,
                  transport_completion context);
/* Moves what has ended to ended[]; WAGMA_OK or an error. Drives MPI only if n > 0. */
int requests_test(struct mpi_transport *m, struct requests *r);
/* Takes one from ended[]: 1, or 0. */
int requests_take(struct requests *r, transport_completion *context);
/* Cancels receives and forgets all requests, without waiting for other ranks. 0: MPI may still use
 * the memory of some messages. */
int requests_abandon(struct requests *r);
void requests_free(struct requests *r);

int control_open(struct mpi_transport *m);
int control_send(wagma_transport *t, int to, const void *message, size_t bytes);
int control_poll(wagma_transport *t, int *from, const void **message, size_t *bytes);
int control_flushed(wagma_transport *t);
/* `together`: waits for the receives that it cancels; they have no message any more. */
void control_close(struct control *c, int together);
/* Frees the memory alone. */
void control_free(struct control *c);

int data_send(wagma_transport *t, int to, int tag, const void *data, size_t bytes,
              transport_completion completion);
int data_receive(wagma_transport *t, int from, int tag, void *data, size_t bytes,
                 transport_completion completion);
int data_poll(wagma_transport *t, transport_completion *completions, int most);

/* Register the transport: its owner is told if MPI ends first. WAGMA_OK or an error. */
int finalize_add(struct mpi_transport *m);
/* Forget the transport, which is closed. Harmless if it was not added. */
void finalize_remove(struct mpi_transport *m);

/* Return 1 if MPI reports ranks that died. */
int failures_told(void);
enum failure {
    FAILURE_OTHER,   /* 0: no rank died */
    FAILURE_LOST,    /* the message was from or to a rank that died */
    FAILURE_PENDING, /* a receive from any rank complains, and goes on */
};
/* Classify an MPI error `code`: which failure of ranks it reports. Receives from any rank continue
 * after that. */
enum failure failures_noted(struct mpi_transport *m, int code);
int failures_dead(wagma_transport *t, int32_t *ranks);

#endif
