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

/* Contributions and results outside of the segment: where they lie, and what copies and sums them.
 * What is asked for may go on after a function has returned; settle() says when it is done. The
 * status is WAGMA_OK or an error; after an error of a call the handle is broken. */
struct avoiding_plane {
    /* ns that a slice is taken to last at least: others recompute it after twice as long. */
    uint64_t slice_ns;
    /* Return the address of contribution b of rank r, or of the result of round c, which the round
     * protocol lets this rank use. Those of a round are known after open(). */
    unsigned char *(*contribution)(const wagma_handle *h, int r, int b);
    unsigned char *(*result)(const wagma_handle *h, uint32_t c);
    /* Make the memory of this rank's contribution b, or of the result of its round i, if it is not
     * there yet. 0; -1: there is none now. */
    int (*add_contribution)(wagma_handle *h, int b);
    int (*add_result)(wagma_handle *h, int i);
    /* Return N bytes of this rank's own; NULL: error_set(). */
    unsigned char *(*private_new)(const wagma_handle *h);
    void (*private_free)(const wagma_handle *h, unsigned char *memory);

    /* Begin a call. `viewed`: the caller may still be reading results of the last one. */
    int (*begin)(wagma_handle *h, int viewed);
    /* Find the memory of all ranks that was made meanwhile. */
    int (*open)(wagma_handle *h);
    /* Perform an action that moves data; ROUND_COLLECT: nothing is left to move. */
    int (*data)(wagma_handle *h, enum round_action action);
    /* out = factor * in, N bytes */
    int (*scale)(wagma_handle *h, void *out, const void *in, double factor);
    /* Wait until all is done that the next step of the protocol tells the others of. WAGMA_OK;
     * WAGMA_INPROGRESS: return to the caller; or an error. */
    int (*settle)(wagma_handle *h, enum call_mode mode);
    /* End the use of x, whether the call succeeded or not. */
    int (*end)(wagma_handle *h);
    /* Before this rank departs: wait until the caller reads no result any more. */
    int (*depart)(wagma_handle *h);
    /* Afterwards: wait for ranks that could not read this rank's arrays any more when it is gone.
     */
    void (*departed)(wagma_handle *h);
    /* Free everything but this rank's contributions and results, which others may still read. */
    void (*destroy)(wagma_handle *h);
};

struct avoiding_executor {
    struct handle_shared shared; /* first */
    struct round_context context;
    struct round_local local;
    struct round_input input;
    struct grace grace;
    const struct avoiding_plane *plane; /* NULL: contributions and results lie in the segment */
    uint64_t asked;                     /* version of the last pinned() question; 0: none */
    uint32_t asked_leader;              /* leader of this rank's group of that version */
    int committed_contributions, committed_rounds;
    int posted;        /* this call */
    uint64_t computed; /* ns that this call waited until its x was computed */
    int publishing;    /* a contribution was written, the next step publishes it */

    /* round local.c of version local.u, looked up once by take() of data.c */
    uint64_t taken;         /* version; 0: none */
    const int32_t *members; /* ranks whose contributions are reduced */
    int n;
    struct merge merge; /* its result */
    uint64_t slice_ns;  /* longest slice that this call reduced, plane->slice_ns at least */

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
    const void **shifted;                   /* [P + 1] */
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

/* -- executor.c -------------------------------------------------------------------------------- */
/* Functions of an executor with this state; `plane`: NULL or its own, which has its first
 * contributions and results already. */
int avoiding_make(wagma_handle *h, const struct executor_request *request,
                  const struct avoiding_plane *plane);
int avoiding_start(wagma_handle *h);
int avoiding_post(wagma_handle *h);
int avoiding_poll(wagma_handle *h);
int avoiding_finish(wagma_handle *h);
int avoiding_next_contribution(wagma_handle *h, void **buffer);
void avoiding_set_quorum(wagma_handle *h);
int avoiding_pinned(wagma_handle *h);
double avoiding_carried_weight(const wagma_handle *h);
double avoiding_grace(const wagma_handle *h);
uint64_t avoiding_bytes(const wagma_handle *h);
int avoiding_close(wagma_handle *h);
void avoiding_free(wagma_handle *h);
#define AVOIDING_CALLS                                                                             \
    HANDLE_SEGMENT_CALLS, .start = avoiding_start, .post = avoiding_post, .poll = avoiding_poll,   \
                          .finish = avoiding_finish,                                               \
                          .next_contribution = avoiding_next_contribution,                         \
                          .set_quorum = avoiding_set_quorum, .pinned = avoiding_pinned,            \
                          .carried_weight = avoiding_carried_weight, .grace = avoiding_grace,      \
                          .bytes = avoiding_bytes, .close = avoiding_close, .free = avoiding_free

/* -- data.c ------------------------------------------------------------------------------------ */
/* Perform one of the actions that round.c asks for. WAGMA_OK, or an error. */
int avoiding_data(wagma_handle *h, enum round_action action);
/* Shift the inputs of the round that was taken to element `at`: avoiding_executor.shifted. */
void avoiding_shift_inputs(wagma_handle *h, uint64_t at);
/* Find the elements of a slice. */
void avoiding_slice(const wagma_segment *s, uint32_t slice, uint64_t *at, uint64_t *count);

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
/* Free memory that avoiding_destination() has made; NULL is allowed. */
void avoiding_free_destination(const wagma_handle *h, unsigned char *memory);

static inline unsigned char *avoiding_contribution(const wagma_handle *h, int r, int b) {
    const struct avoiding_plane *plane = avoiding_of(h)->plane;
    return plane ? plane->contribution(h, r, b) : segment_contribution(handle_segment(h), r, b);
}
static inline unsigned char *avoiding_result(const wagma_handle *h, uint32_t c) {
    const struct avoiding_plane *plane = avoiding_of(h)->plane;
    return plane ? plane->result(h, c) : segment_round_result(handle_segment(h), c);
}
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
