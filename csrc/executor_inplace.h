/* State of the executor of quorum "all"; executor_inplace.c moves data, executor_inplace_wait.c
 * waits. */
#ifndef WAGMA_EXECUTOR_INPLACE_H
#define WAGMA_EXECUTOR_INPLACE_H

#include "handle.h"
#include "inplace.h"

enum inplace_step { INPLACE_ADMIT, INPLACE_GATHER, INPLACE_DRAIN };

struct inplace_executor {
    /* the call in progress */
    enum inplace_step step;
    int cursor; /* members before it need not be waited for, in this step */
    int leader;
    int inputs;          /* in h->inputs, h->weights */
    int outputs;         /* in h->outputs */
    double divisor;      /* sum of the weights */
    unsigned char *mine; /* where this rank's result of a large version appears */
    /* remembered */
    int64_t *seen;     /* [P] newest version that each rank was seen to have arrived at */
    int32_t *group[2]; /* [P] members of the newest version of each parity */
    int group_n[2];
    int64_t group_version[2];
    int64_t slowest;  /* all ranks that have not departed have arrived at it */
    int32_t *missing; /* [P] scratch */
    int slices;
    size_t slice_count; /* elements */
    int staged;         /* the stage is committed */
    const void *result; /* outcome.results of a handle that delivers every result */
};

/* How many pauses a wait may take. */
enum { INPLACE_NO_PAUSE = 0, INPLACE_ANY_PAUSES = 1 << 30 };

/* 1: the current step is over, 0: not yet, negative: an error. Cheap to evaluate again. */
int inplace_holds(wagma_handle *h);
/* Waits until it is, or for so many pauses, or until call.until: then WAGMA_INPROGRESS. */
int inplace_wait(wagma_handle *h, uint32_t most_pauses);

#endif
