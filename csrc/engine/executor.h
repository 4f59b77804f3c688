/* An executor moves the data of a handle's calls. Each has a folder, with a state that no other
 * folder knows, and a line in the table of api/executors.c. */
#ifndef WAGMA_ENGINE_EXECUTOR_H
#define WAGMA_ENGINE_EXECUTOR_H

#include "include/wagma.h"

struct rank_record; /* rank_stats.h */

/* Request for a new handle. The ranks meet over its segment or its transport. */
struct executor_request {
    int rank;
    const wagma_options *options; /* checked, defaults filled in */
    wagma_segment *segment;       /* NULL: none */
    wagma_transport *transport;   /* NULL: none */
    wagma_device *device;         /* NULL: none */
    void *stream;                 /* of the device, the caller's */
    const void *initial;          /* first contribution; NULL: zeros */
    double weight;                /* its weight, not checked yet */
    /* Part of create(), before anything is written: makes what the first contribution is read from.
     * NULL: nothing. See executor_prepare(). */
    int (*prepare)(wagma_handle *h);
};

/* Loss of a rank that a wait needs, as far as is known. */
enum handle_loss {
    HANDLE_PRESENT = 0,
    HANDLE_FAILED, /* it reported a failure, or left without close() */
    HANDLE_DEAD,
};

/* Presence of a rank that is not lost, as far as is known. */
enum handle_presence {
    HANDLE_UNKNOWN,
    HANDLE_LIVES,
    HANDLE_IS_SILENT, /* it was asked, and has not answered */
    /* for messages, from enum handle_loss */
    HANDLE_HAS_FAILED,
    HANDLE_HAS_DIED,
};

/* How far a call proceeds before it returns to its caller: one mode for each of start, post, poll,
 * finish. */
enum call_mode { CALL_START, CALL_POST, CALL_POLL, CALL_FINISH };

/* Functions of an executor. Functions that return int return WAGMA_OK, WAGMA_INPROGRESS or an error
 * set by error_set(). After an error api/calls.c marks the handle broken and the rank failed. When
 * one of start, post, poll and finish returns WAGMA_OK, it has filled h->outcome; api/calls.c fills
 * version and waited. */
struct executor_calls {
    /* Around every call of the owner but close() and free(). */
    void (*enter)(wagma_handle *h);
    void (*leave)(wagma_handle *h);
    /* See handle_step_aside() and handle_step_back(); NULL: fail() waits for nothing in a call. */
    int (*step_aside)(wagma_handle *h);
    void (*step_back)(wagma_handle *h, int busy);

    /* Begins a call and proceeds as far as it can within a few microseconds. */
    int (*start)(wagma_handle *h);
    /* Begins a call, publishes and returns WAGMA_INPROGRESS (quorum "all": the last rank to arrive
     * first reduces its share of the slices). Never waits: if publishing has to wait, a later poll
     * publishes. */
    int (*post)(wagma_handle *h);
    /* Continues the call without a pause; looks for stalls when handle_look_due(). */
    int (*poll)(wagma_handle *h);
    /* Continues the call until it is over, or call.until has passed: then it looks for stalls as on
     * a heartbeat, and returns the WAGMA_INPROGRESS of handle_heartbeat(). */
    int (*finish)(wagma_handle *h);

    int (*next_contribution)(wagma_handle *h, void **buffer); /* NULL: it reduces in place */
    /* Finds the whole pages that hold a contribution or a result, which are the executor's until
     * free(); 0: other memory is in these pages, too. An executor that has this function takes a
     * next_contribution() as call.contribution, while the result goes to another x. NULL: the
     * memory may not be pinned. */
    int (*pages_of)(const wagma_handle *h, const void *array, void **pages, size_t *bytes);
    /* Returns the element of the call's contribution that the executor reads first; it reads on
     * from there, modulo count. An executor that has this function takes call.parts. NULL:
     * contributions have to be written when a call begins. */
    size_t (*first_needed)(const wagma_handle *h);
    void (*set_quorum)(wagma_handle *h); /* takes h->quorum from the next version on; called only if
                                            policy.varies */
    int (*set_stream)(wagma_handle *h, void *stream); /* NULL: arrays are in host memory */
    int (*pinned)(wagma_handle *h);  /* wagma_pinned() of a version that is no sync version;
                                        NULL: 0 always */
    void *(*array)(wagma_handle *h); /* wagma_shared_array(), which may be NULL: error_set();
                                        NULL: it has no use for one */
    double (*carried_weight)(const wagma_handle *h); /* 0: nothing is carried; NULL: always 0 */
    double (*grace)(const wagma_handle *h);          /* seconds in force; NULL: 0 */
    uint64_t (*bytes)(const wagma_handle *h);        /* memory of this rank */
    uint64_t (*wakeups)(const wagma_handle *h);      /* of its thread; NULL: it has no thread */
    struct rank_record *(*record)(wagma_handle *h, int rank, uint64_t syncs); /* rank_stats.h */

    void (*look)(
        wagma_handle *h); /* updates what lost() returns, between calls; NULL: not needed */
    enum handle_loss (*lost)(wagma_handle *h, int rank);
    /* Returns the presence of a rank that is not lost. *has_called is 1 if the rank has done what
     * the current phase waits for, and the call needs something else from it. */
    enum handle_presence (*presence)(wagma_handle *h, int rank, int *has_called);

    int (*close)(wagma_handle *h); /* departs; then the handle is closed whatever it returns */
    void (*fail)(wagma_handle *h); /* tells the others that this rank has failed */
    void (*free)(wagma_handle *h); /* frees the state, which may be NULL or half made */
};

struct executor {
    const char *name; /* its folder */
    /* Returns NULL if the executor can make the handle, otherwise the reason why it cannot, without
     * the request. Pure. */
    const char *(*fits)(const struct executor_request *request);
    /* Makes the state of a new handle, including its trace, and returns when every rank has joined.
     * Takes ownership of the transport, also on failure. On failure it tells the other ranks if it
     * can, and free() follows. */
    int (*create)(wagma_handle *h, const struct executor_request *request);
    struct executor_calls calls;
};

/* Do what the request asks for first. WAGMA_OK, or an error that create() returns. */
static inline int executor_prepare(wagma_handle *h, const struct executor_request *request) {
    return request->prepare ? request->prepare(h) : WAGMA_OK;
}

/* Return the first executor of table[0..n) that fits. NULL: error_set() gives the reason for each.
 */
const struct executor *executor_choose(const struct executor *const *table, int n,
                                       const struct executor_request *request);

#endif
