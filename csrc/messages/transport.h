/* What the executor for groups that span nodes needs of a message-passing system: an interface.
 *
 *   transport_mpi.c     MPI point-to-point on a duplicated communicator (a library of its own)
 *   tests/c/transport_sim.c   ranks in one process; messages of different pairs overtake each other
 *
 * Two channels. Control messages are small, kept in order per pair of ranks, received without being
 * asked for. Data messages go to a receive that was asked for by (rank, tag); those of one (pair,
 * tag) match in the order in which they were posted.
 *
 * No call blocks, `close` excepted. Thread-safety: one thread at a
 * time per transport; different transports at once. Errors: a negative wagma_status, which the
 * transport got from its `error` together with the message. */
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
    /* Ends it. `together`: every rank calls it after the last sum() and nothing is on its way;
     * frees what all ranks have to free together. Otherwise local: leaves everybody else alone,
     * and what cannot be freed alone is left to the end of the process. The memory of data messages
     * whose completion was not polled is not to be freed then, nor reused: a peer may be in the
     * middle of reading or writing it. NULL is not allowed. */
    void (*close)(wagma_transport *t, int together);
} transport_calls;

struct wagma_transport {
    uint64_t abi; /* TRANSPORT_ABI, as its maker was compiled; first in every version of this */
    const transport_calls *calls;
    int rank, size;
    int tags;         /* data tags are 0..tags-1 */
    int crowded;      /* 0: every rank of this node can have a core to itself: who waits may spin;
                         1: not so, or not known */
    int threads;      /* 1: any thread may call (one at a time); 0: only the thread that made it */
    const char *name; /* for messages: "MPICH 5.0.2", "simulation" */
    /* Keeps the message for wagma_last_error() and returns `status`. A transport over MPI is in a
     * library of its own, to which the engine's error_set() is unknown: wagma_create_over() puts
     * it here before its first call. One that is linked to the engine may do so itself. */
    int (*error)(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
    /* What the transport rests on ends while it is open (MPI_Finalize): called then with `owner`,
     * unless it is NULL, and has to close the transport, which still works. Set by its owner; any
     * thread calls it. */
    void (*ending)(void *owner);
    void *owner;
};

/* Who makes transports is in another library or extension than the engine, and may have been built
 * from other sources. Raise the revision with every change of what is above; the sizes are there
 * for changes that forgot to. Larger than any address: without the number a transport would begin
 * with one. */
#define TRANSPORT_REVISION 2
#define TRANSPORT_ABI                                                                              \
    ((uint64_t)TRANSPORT_REVISION << 48 | (uint64_t)sizeof(transport_calls) << 24 |                \
     (uint64_t)sizeof(struct wagma_transport))

#endif
