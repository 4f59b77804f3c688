/* State of the wait-avoiding executor. executor.c drives the round protocol (protocol/round.c),
 * data.c moves the data that it asks for, array.c says what x is when it is published without a
 * copy, wait.c waits, outcome.c ends calls. */
#ifndef WAGMA_SHM_AVOIDING_EXECUTOR_H
#define WAGMA_SHM_AVOIDING_EXECUTOR_H

#include "engine/merge.h"
#include "protocol/round.h"
#include "shm/avoiding/grace.h"
#include "shm/call_wait.h"
#include "shm/remap.h"
#include "shm/ways.h"

/* What start() may wait before it hands over to finish(). */
enum { AVOIDING_START_NS = 3000 };
/* A slice is computed again by such blocks, which stay in the first-level cache. */
enum { AVOIDING_BLOCK_BYTES = 16384 };

struct avoiding_executor {
    struct handle_shared shared; /* first */
    struct round_context context;
    struct round_local local;
    struct round_input input;
    struct grace grace;
    uint64_t asked;        /* pinned(): version that was asked about last; 0: none was */
    uint32_t asked_leader; /* of this rank's group of that version */
    int committed_contributions, committed_rounds;
    int posted;     /* this call */
    int publishing; /* a contribution was written, the next step publishes it */

    /* round local.c of version local.u, looked up once by take() of data.c */
    uint64_t taken;         /* version; 0: none */
    const int32_t *members; /* who is reduced */
    int n;
    struct merge merge; /* what it gives */
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
/* Pauses once for what local.why says, or, by the mode, does not. WAGMA_OK: step again;
 * WAGMA_INPROGRESS: return to the caller; or an error. */
int avoiding_pause(wagma_handle *h, enum call_mode mode);
/* The wait, if there was one, is over. */
void avoiding_resume(wagma_handle *h);
/* The call returns to its caller, who does not wait. */
void avoiding_leave(wagma_handle *h);
/* The error for ranks that called sync(x) at different versions. */
int avoiding_mismatch(wagma_handle *h);
/* The error for ranks that called a version with different quorums; `dispute`: ROUND_DISPUTE. */
int avoiding_disputed(const wagma_handle *h, uint64_t dispute);

/* -- data.c ------------------------------------------------------------------------------------ */
/* Does one of the actions that round.c asks for. WAGMA_OK, or WAGMA_ENOMEM. */
int avoiding_data(wagma_handle *h, enum round_action action);

/* -- array.c ----------------------------------------------------------------------------------- */
/* Where the rank's array is. */
void *avoiding_array(wagma_handle *h);
/* What this call publishes. */
enum round_source avoiding_source(const wagma_handle *h);
/* Does before the others wait what avoiding_writable_x() can find done. If it fails, so will that.
 */
void avoiding_prepare_x(wagma_handle *h);
/* What x held when it was called. A copy is nearer in x itself, until x is written. */
const void *avoiding_own_values(const wagma_handle *h);
/* x, to be written. What is published is not: the array shows other memory from now on, all of
 * which is to be written. NULL: error_set(). */
unsigned char *avoiding_writable_x(wagma_handle *h);
/* The call is over, whatever its end: if x still shows what it has published, or if the call is
 * unfinished and some slices were not written, it gets a copy of what was published. WAGMA_OK, or
 * WAGMA_ENOMEM: x must not be touched any more. */
int avoiding_keep_x(wagma_handle *h, int unfinished);

/* -- outcome.c --------------------------------------------------------------------------------- */
/* The newest version's members and weight, and where its result is. */
void avoiding_collect(wagma_handle *h);
/* The call is over: the outcome, and x. WAGMA_OK, or WAGMA_ENOMEM. */
int avoiding_outcome(wagma_handle *h);
/* Where the result of local.c goes; NULL: no memory. */
unsigned char *avoiding_destination(wagma_handle *h);

static inline wagma_dtype avoiding_dtype(const wagma_handle *h) {
    return (wagma_dtype)h->options.dtype;
}
static inline size_t avoiding_elements(const wagma_handle *h) {
    return (size_t)h->options.count;
}
/* The public version of the round that was taken. */
static inline int64_t avoiding_taken(const wagma_handle *h) {
    return (int64_t)avoiding_of(h)->local.u - 1;
}
/* Where member i of those that are reduced stands in the round. */
static inline int avoiding_place(const wagma_handle *h, int i) {
    return h->policy.world ? avoiding_of(h)->members[i] : i;
}

#endif
