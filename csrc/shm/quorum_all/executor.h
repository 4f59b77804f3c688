/* State of the executor of quorum "all"; executor.c is the loop and moves large arrays, small.c
 * small ones, wait.c waits. */
#ifndef WAGMA_SHM_QUORUM_ALL_EXECUTOR_H
#define WAGMA_SHM_QUORUM_ALL_EXECUTOR_H

#include "engine/merge.h"
#include "protocol/quorum_all.h"
#include "shm/call_wait.h"
#include "shm/quorum_all/chunks.h"
#include "shm/quorum_all/record.h"

struct quorum_all_executor {
    struct handle_shared shared; /* first */
    struct quorum_all_context context;
    struct quorum_all_local local;
    /* the call in progress */
    enum quorum_all_action held; /* asked for and not yet done, or QUORUM_ALL_STEP */
    int publishing;              /* the record is written, and not yet published */
    int posted;                  /* others may execute it while this rank is elsewhere */
    int chunking;                /* between QUORUM_ALL_SHARE and what comes after all chunks */
    struct chunks chunks;
    unsigned char *mine; /* where this rank's result of a large version appears */
    size_t at;           /* h->inputs, h->outputs point to this element */
    /* remembered */
    size_t slice_count; /* elements */
    int staged;         /* the stage is committed */
    int chunked;        /* the places for chunks are */
    const void *result; /* outcome.results of a handle that delivers every result */
};

static inline struct quorum_all_executor *quorum_all_of(const wagma_handle *h) {
    return h->state;
}

/* Return the divisor of results. */
static inline double quorum_all_divisor(const wagma_handle *h) {
    return merge_divisor(&h->policy, quorum_all_of(h)->local.divisor);
}

/* Sum the records into x, or x alone if no other rank takes part. For versions that need no drain.
 */
void quorum_all_reduce_privately(wagma_handle *h);
/* Prefetch the record of the next version for writing. Other ranks have read the record and hold
 * its lines in their caches. Requesting all lines now saves the next call from waiting for one line
 * after the other. Every rank that has arrived at this version is done with the record. A rank of
 * another group may still read it; lines that it takes away are transferred once more. */
void quorum_all_fetch_next_record(const wagma_handle *h);

/* Wait after QUORUM_ALL_WAIT, and while chunks cannot proceed, until the protocol asks for another
 * action: WAGMA_OK and `*action`. After `most_pauses` pauses, or at call.until: WAGMA_INPROGRESS.
 */
int quorum_all_wait(wagma_handle *h, uint32_t most_pauses, enum quorum_all_action *action);
/* Set and return the error of QUORUM_ALL_MISMATCH or QUORUM_ALL_PEER. */
int quorum_all_error(wagma_handle *h, enum quorum_all_action action);

#endif
