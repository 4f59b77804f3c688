/* State of the executor of quorum "all"; executor.c is the loop and moves large arrays, small.c
 * small ones, wait.c waits. */
#ifndef WAGMA_SHM_QUORUM_ALL_EXECUTOR_H
#define WAGMA_SHM_QUORUM_ALL_EXECUTOR_H

#include "shm/quorum_all/chunks.h"
#include "engine/merge.h"
#include "protocol/quorum_all.h"
#include "shm/call_wait.h"
#include "shm/quorum_all/record.h"

struct inplace_executor {
    struct handle_shared shared; /* first */
    struct inplace_context context;
    struct inplace_local local;
    /* the call in progress */
    enum inplace_action held; /* asked for and not yet done, or INPLACE_STEP */
    int publishing;           /* the record is written, and not yet published */
    int posted;               /* others may execute it while this rank is elsewhere */
    int chunking;             /* between INPLACE_SHARE and what comes after all chunks */
    struct chunks chunks;
    unsigned char *mine; /* where this rank's result of a large version appears */
    size_t at;           /* h->inputs, h->outputs point to this element */
    /* remembered */
    size_t slice_count; /* elements */
    int staged;         /* the stage is committed */
    int chunked;        /* the places for chunks are */
    const void *result; /* outcome.results of a handle that delivers every result */
};

static inline struct inplace_executor *inplace_of(const wagma_handle *h) {
    return h->state;
}

/* What results are divided by. */
static inline double inplace_divisor(const wagma_handle *h) {
    return merge_divisor(&h->policy, inplace_of(h)->local.divisor);
}

/* For versions that need no drain: x = the sum of the records, or of itself where nobody else takes
 * part. */
void inplace_reduce_privately(wagma_handle *h);
/* The record of the next version was read by others, who have its lines in their caches; asking for
 * all of them now keeps the next call from waiting, line after line, until it may write there. All
 * who have come to this version are done with it. Of other groups somebody may still read it: lines
 * that are taken away meanwhile have to be transferred once more. */
void inplace_fetch_next_record(const wagma_handle *h);

/* After INPLACE_WAIT, and while chunks cannot go on: goes on until something else is asked for
 * (WAGMA_OK, `*action`), or for so many pauses, or until call.until: then WAGMA_INPROGRESS. */
int inplace_wait(wagma_handle *h, uint32_t most_pauses, enum inplace_action *action);
/* Sets the error of INPLACE_MISMATCH or INPLACE_PEER and returns it. */
int inplace_trouble(wagma_handle *h, enum inplace_action action);

#endif
