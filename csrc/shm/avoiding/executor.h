/* State of the wait-avoiding executor. executor.c drives the round protocol (protocol/round.c),
 * data.c moves the data that the protocol asks for, array.c handles an x that is published without
 * a copy, wait.c waits, outcome.c ends calls. */
#ifndef WAGMA_SHM_AVOIDING_EXECUTOR_H
#define WAGMA_SHM_AVOIDING_EXECUTOR_H

#include "engine/merge.h"
#include "protocol/round.h"
#include "shm/avoiding/grace.h"
#include "shm/call_wait.h"
#include "shm/remap.h"
#include "shm/ways.h"

/* Longest wait of start() before finish() takes over. */
enum { AVOIDING_START_NS = 3000 };
/* Bytes of a block of a recomputed slice; a block stays in the first-level cache. */
enum { AVOIDING_BLOCK_BYTES = 16384 };

struct avoiding_executor {
    struct handle_shared shared; /* first */
    struct round_context context;
    struct round_local local;
    struct round_input input;
    struct grace grace;
    uint64_t asked;        /* version of the last pinned() question; 0: none */
    uint32_t asked_leader; /* leader of this rank's group of that version */
    int committed_contributions, committed_rounds;
    int posted;     /* this call */
    int publishing; /* a contribution was written, the next step publishes it */

    /* round local.c of version local.u, looked up once by take() of data.c */
    uint64_t taken;         /* version; 0: none */
    const int32_t *members; /* ranks whose contributions are reduced */
    int n;
    struct merge merge; /* its result */
    uint64_t slice_ns;  /* longest slice that this call reduced */

    /* results that are not copied to x */
    int out_of_place; /* x is the reserved buffer */
    unsigned char
        *alone; /* N bytes on first use: a result that cannot be looked at in the segment */
    const void **results;   /* ordered: of the versions of this call, [window + 1] */
    unsigned char **copies; /* ordered: N bytes each on first use, [window + 1] */
    int results_count;

    /* "carry": the newest contribution is in no result yet */
    int carries;
    double carried_weight;

    /* the wait in progress */
    int waiting;
    int timed; /* why and until are set */
    enum round_why why;
    uint64_t until; /* ns: end of the grace, or when to redo */
    int counted;    /* this call was counted in buffer_waits */
    uint64_t since; /* ns: the wait is for `why` since then; 0: from its beginning */

    /* memory */
    int32_t *scratch, *members_u, *missing; /* [P] */
    const void **shifted;                   /* [P] */
    unsigned char *block;
    struct ways stores; /* into contributions */
    int streams_x;      /* x is written by streaming stores, where it is not in the cache already */
};

static inline struct avoiding_executor *avoiding_of(const wagma_handle *h) {
    return h->state;
}

/* -- wait.c ------------------------------------------------------------------------------------ */
/* Pause once for the reason local.why, if the mode allows it. WAGMA_OK: step again;
 * WAGMA_INPROGRESS: return to the caller; or an error. */
int avoiding_pause(wagma_handle *h, enum call_mode mode);
/* End the wait, if there was one. */
void avoiding_resume(wagma_handle *h);
/* Suspend the wait: the call returns to its caller. */
void avoiding_leave(wagma_handle *h);
/* Set and return the error for ranks that called sync(x) at different versions. */
int avoiding_mismatch(wagma_handle *h);
/* Set and return the error for ranks that called a version with different quorums; `dispute`:
 * ROUND_DISPUTE. */
int avoiding_disputed(const wagma_handle *h, uint64_t dispute);

/* -- data.c ------------------------------------------------------------------------------------ */
/* Perform one of the actions that round.c asks for. WAGMA_OK, or WAGMA_ENOMEM. */
int avoiding_data(wagma_handle *h, enum round_action action);

/* -- array.c ----------------------------------------------------------------------------------- */
/* Return the address of the rank's array. */
void *avoiding_array(wagma_handle *h);
/* Return the source of this call's contribution. */
enum round_source avoiding_source(const wagma_handle *h);
/* Do part of avoiding_writable_x() early, before the others wait for this rank. If this fails,
 * avoiding_writable_x() fails, too. */
void avoiding_prepare_x(wagma_handle *h);
/* Return the values that x held when the call began: the published buffer if x is the array that
 * shows it, and otherwise x, which is nearer than a copy until x is written. */
const void *avoiding_own_values(const wagma_handle *h);
/* Return x for writing. If x is the array and was published, the array shows other memory from now
 * on, and the caller has to write all of it. NULL: error_set(). */
unsigned char *avoiding_writable_x(wagma_handle *h);
/* End the use of x, whether the call succeeded or not. If x still shows the published memory, or
 * the call is unfinished and some slices were not written, copy the published contribution to x.
 * WAGMA_OK, or WAGMA_ENOMEM: x must not be touched any more. */
int avoiding_keep_x(wagma_handle *h, int unfinished);

/* -- outcome.c --------------------------------------------------------------------------------- */
/* Collect the members and the weight of the newest version, and the place of its result. */
void avoiding_collect(wagma_handle *h);
/* End the call: fill in the outcome and x. WAGMA_OK, or WAGMA_ENOMEM. */
int avoiding_outcome(wagma_handle *h);
/* Return the destination of the result of local.c; NULL: no memory. */
unsigned char *avoiding_destination(wagma_handle *h);

static inline wagma_dtype avoiding_dtype(const wagma_handle *h) {
    return (wagma_dtype)h->options.dtype;
}
static inline size_t avoiding_elements(const wagma_handle *h) {
    return (size_t)h->options.count;
}
/* Return the public version of the round that was taken. */
static inline int64_t avoiding_taken(const wagma_handle *h) {
    return (int64_t)avoiding_of(h)->local.u - 1;
}
/* Return the position in the round of member i of those that are reduced. */
static inline int avoiding_place(const wagma_handle *h, int i) {
    return h->policy.world ? avoiding_of(h)->members[i] : i;
}

#endif
