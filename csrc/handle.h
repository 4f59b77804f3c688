/* One rank's handle: what both executors share. handle.c checks arguments and fills outcomes,
 * handle_trouble.c turns trouble into errors; an executor only moves data. */
#ifndef WAGMA_HANDLE_H
#define WAGMA_HANDLE_H

#include "rank_stats.h"
#include "reduce.h"
#include "segment.h"
#include "wait.h"

struct shm_executor;     /* executor_shm.c: quorum < all, the round protocol */
struct inplace_executor; /* executor_inplace.c: quorum "all" */

typedef struct call { /* the call in progress */
    int active;       /* started, not finished */
    int sync;         /* explicit sync(x), or a sync version: scope world, quorum all */
    int explicit_sync;
    int64_t version; /* public version, from 0 */
    int64_t next;    /* version of the next call; version + 1 unless the executor says otherwise */
    void *x;
    double weight;
    uint64_t began;         /* ns */
    const int32_t *members; /* of this rank's group, ascending */
    int n;
    uint64_t waited; /* ns */
    int warnings;    /* given about this call */
    /* of calls that return to the caller in between; ns on wait_now()'s clock */
    int testing;    /* went on in wagma_test(), not in a wait */
    uint64_t until; /* finish() ends then with WAGMA_INPROGRESS; 0: never */
    uint64_t left;  /* when it returned to the caller */
    uint64_t away;  /* how long it was there, less what counts as waiting */
    uint64_t look;  /* poll() looks for trouble from then on, see handle_look_due() */
} call;

struct wagma_handle {
    wagma_segment *segment;
    int rank;

    int closed;      /* 1: wagma_close; 2: broken by an error */
    int64_t version; /* next version */
    const reduce_kernels *kernels;
    wagma_hooks hooks;
    wait_state wait;
    call call;
    wagma_stats stats;
    struct rank_stats ranks;
    wagma_outcome outcome; /* of the last call; arrays below */
    int32_t *members;      /* [P] group of the current call */
    int32_t *contributors; /* [P] */
    int64_t *versions;     /* [P] */
    const void **inputs;   /* [P] scratch for kernels */
    void **outputs;        /* [P] scratch */
    double *weights;       /* [P] scratch */
    struct shm_executor *shm;
    struct inplace_executor *inplace;
};

/* Executor interface: create frees nothing on failure but what it made itself. The others return
 * WAGMA_OK, WAGMA_INPROGRESS or an error set by error_set(), after which handle.c marks the handle
 * broken and the rank failed. With WAGMA_OK they have filled h->outcome (version and waited
 * excepted, which handle.c does).
 *   start   goes as far as is possible within a few microseconds
 *   post    publishes and ends there with WAGMA_INPROGRESS (quorum "all": the last one reduces its
 *           share of the slices); it never waits, not even for what publishing has to wait for
 *   poll    goes on without a pause; looks for trouble when handle_look_due()
 *   finish  goes on until the call is over, or call.until has passed: it looks for trouble then as
 *           on a heartbeat, and returns the WAGMA_INPROGRESS that handle_heartbeat() says */
int inplace_create(wagma_handle *h);
int inplace_start(wagma_handle *h);
int inplace_post(wagma_handle *h);
int inplace_poll(wagma_handle *h);
int inplace_finish(wagma_handle *h);
void inplace_free(wagma_handle *h);
uint64_t inplace_bytes(const wagma_handle *h); /* committed part of the rank's region */

int shm_create(wagma_handle *h, const void *initial, double weight);
int shm_start(wagma_handle *h);
int shm_post(wagma_handle *h);
int shm_poll(wagma_handle *h);
int shm_finish(wagma_handle *h);
int shm_next_contribution(wagma_handle *h, void **buffer);
double shm_carried_weight(const wagma_handle *h); /* of what is carried; 0: nothing */
void shm_close(wagma_handle *h);                  /* departs: local, does not block */
void shm_free(wagma_handle *h);
uint64_t shm_bytes(const wagma_handle *h); /* committed part of the rank's region */
double shm_grace(const wagma_handle *h);   /* seconds */

/* WAGMA_OK, WAGMA_EINVAL or WAGMA_ETYPE. */
int handle_check_weight(const wagma_handle *h, double weight);
/* The rank is not to be waited for any more: SEGMENT_DEPARTED, SEGMENT_FAILED. */
void handle_leave(wagma_handle *h, enum segment_state state);

/* Trouble in a wait, called by an executor on WAIT_HEARTBEAT; `needed` of the `n` missing ranks
 * have to come. Too many of them dead or failed (WAGMA_EPEER), timeout (WAGMA_ESTALL), the
 * interrupted hook, the stall warning. `phase` is a word for the message: "quorum", "window",
 * "sync", "buffer", "round", "slices". WAGMA_OK: go on waiting; WAGMA_INPROGRESS: call.until has
 * passed, and wagma_last_error() names who is missing. */
int handle_heartbeat(wagma_handle *h, const char *phase, const int32_t *missing, int n, int needed);
/* Its parts: the error of a rank that is dead or failed; and all the rest. */
int handle_lost(const wagma_handle *h, const char *phase, int32_t rank);
int handle_delayed(wagma_handle *h, const char *phase, const int32_t *missing, int n, int needed);
/* The interrupted hook (not from wagma_test(), where nobody waits) and call.until alone. WAGMA_OK,
 * WAGMA_EINTERRUPTED or WAGMA_INPROGRESS. */
int handle_interrupted(const wagma_handle *h, const char *phase);
/* 1, once per heartbeat: poll() has to look for trouble. */
int handle_look_due(wagma_handle *h);

#endif
