/* Transport: the interface of a message-passing system to the executors of ranks on several nodes.
 *
 *   csrc/mpi/                      MPI point-to-point on a duplicated communicator: its own library
 *   tests/engine/transport_sim.c   ranks in one process; messages of two pairs overtake each other
 *
 * A transport has two channels. Control messages are small, arrive in order per pair of ranks, and
 * need no posted receive. Data messages match a receive posted for (rank, tag); messages of one
 * (pair, tag) match in the order in which they were posted.
 *
 * No call blocks, except `close`. Thread-safety: one thread at a time per transport; different
 * transports at once. Errors: a negative wagma_status that the transport's `error` returned;
 * `error` also keeps the message. */
#ifndef WAGMA_MESSAGES_TRANSPORT_H
#define WAGMA_MESSAGES_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#include "include/wagma.h"

/* Bytes of a control message, at most. */
enum { TRANSPORT_CONTROL_MAX = 8192 };

/* The end of a data message: what was passed to send() or receive(). */
typedef struct transport_completion {
    void *context;
    uint64_t cookie;
} transport_completion;

typedef struct transport_calls {
    /* Copies the message and sends it to `to` (not this rank). WAGMA_OK or an error. */
    int (*send_control)(wagma_transport *t, int to, const void *message, size_t bytes);
    /* 1: *message, valid until the next call of any function, came from *from; 0: there is none; or
     * an error. */
    int (*poll_control)(wagma_transport *t, int *from, const void **message, size_t *bytes);
    /* 0 <= tag < tags. The memory stays the transport's until the completion is polled. A send has
     * the size of the receive that it goes to, or none: an empty message ends any receive. */
    int (*send)(wagma_transport *t, int to, int tag, const void *data, size_t bytes,
                transport_completion completion);
    int (*receive)(wagma_transport *t, int from, int tag, void *data, size_t bytes,
                   transport_completion completion);
    /* Up to `most` completions of sends and receives, in any order; their number, or an error. */
    int (*poll_data)(wagma_transport *t, transport_completion *completions, int most);
    /* 1: every control message of this rank has left (its buffer could be used again). Also drives
     * what MPI does in the background. */
    int (*flushed)(wagma_transport *t);
    /* Ranks that are known to be dead, into ranks[size]; their number. 0 where the system does not
     * tell. */
    int (*dead)(wagma_transport *t, int32_t *ranks);
    /* A collective, non-blocking sum over all ranks of two numbers, for the end: 1: totals[] are
     * there; 0: call again with the same numbers; or an error. All ranks make the same number of
     * sums. */
    int (*sum)(wagma_transport *t, const int64_t mine[2], int64_t totals[2]);
    /* Closes the transport. `together`: every rank calls it after the last sum(), and no message is
     * in flight; it frees the resources that all ranks have to free together. Otherwise the call is
     * local and affects no other rank; resources that cannot be freed alone stay until the process
     * ends. Then the memory of data messages whose completion was not polled must not be freed or
     * reused: a peer may still be reading or writing it. NULL is not allowed. */
    void (*close)(wagma_transport *t, int together);
} transport_calls;

struct wagma_transport {
    uint64_t abi; /* TRANSPORT_ABI, as its maker was compiled; first in every version of this */
    const transport_calls *calls;
    int rank, size;
    int tags;         /* data tags are 0..tags-1 */
    int crowded;      /* 0: every rank of this node can have a core to itself, so a waiting rank
                         may spin; 1: not so, or not known */
    int threads;      /* 1: any thread may call (one at a time); 0: only the thread that made it */
    const char *name; /* for messages: "MPICH 5.0.2", "simulation" */
    /* Keeps the message for wagma_last_error() and returns `status`. A transport over MPI is in a
     * library of its own, to which the engine's error_set() is unknown: wagma_create_over() puts
     * it here before its first call. One that is linked to the engine may do so itself. */
    int (*error)(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
    /* Closes the transport when the underlying system ends while it is open (MPI_Finalize); the
     * transport still works then. Any thread may call it, with `owner`. Set by the owner; NULL: not
     * called. */
    void (*ending)(void *owner);
    void *owner;
};

/* Version of this interface. Transports are made by another library or extension than the engine,
 * which may have been built from other sources. Raise the revision with every change of the
 * interface above; the sizes catch changes without a new revision. The number is larger than any
 * address, with which a transport without it would begin. */
#define TRANSPORT_REVISION 2
#define TRANSPORT_ABI                                                                              \
    ((uint64_t)TRANSPORT_REVISION << 48 | (uint64_t)sizeof(transport_calls) << 24 |                \
     (uint64_t)sizeof(struct wagma_transport))

#endif
