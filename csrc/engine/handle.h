/* One rank's handle: what all executors share. api/calls.c checks arguments and fills outcomes,
 * engine/weight.c checks weights, api/quorum.c has the quorum, engine/stall.c turns stalls
 * into errors; an executor only moves data. */
#ifndef WAGMA_ENGINE_HANDLE_H
#define WAGMA_ENGINE_HANDLE_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "engine/executor.h"
#include "engine/heartbeat.h"
#include "engine/parts.h"
#include "engine/policy.h"
#include "engine/rank_stats.h"
#include "kernels/reduce.h"
#include "protocol/topology.h"
#include "trace/events.h"

typedef struct call { /* the call in progress */
    int pending;      /* started by the caller, not finished */
    int active;       /* the same for the executor, which may begin later: staged/ */
    int sync;         /* explicit sync(x), or a sync version: scope world, quorum all */
    int explicit_sync;
    int posted;
    int64_t version; /* public version, from 0 */
    int64_t next;    /* version of the next call; version + 1 unless the executor says otherwise */
    void *given;     /* the caller's array */
    void *x;         /* the executor's: `given`, unless the handle is staged */
    const void *contribution; /* x; or the executor's memory, see pages_of() */
    call_parts *parts;        /* NULL: it is written, and x is read when the call is over */
    double weight;
    uint64_t began;         /* ns */
    const int32_t *members; /* of this rank's group, ascending */
    int n;
    uint64_t waited; /* ns */
    /* of timeout and stall_warning: how long this process has waited, see handle_count_delay() */
    uint64_t delay;   /* ns */
    uint64_t counted; /* time up to which `delay` counts, ns on clock_now()'s clock */
    int warnings;     /* given about this call */
    /* of calls that return to the caller in between */
    int testing;    /* continued in wagma_test(), not in a wait */
    uint64_t until; /* when finish() ends with WAGMA_INPROGRESS; 0: never */
    uint64_t alive; /* ns of `delay` from which on the timeout counts: those that it waits for have
                       said then that they are there */
    uint64_t look;  /* poll() looks for stalls from then on, see handle_look_due() */
} call;

struct wagma_handle {
    const struct executor *executor;
    const struct executor_calls *calls; /* the executor's, or those of `staged` */
    struct staged *staged; /* between the caller and the executor (staged/); NULL: nothing is */
    void *state; /* the executor's, which alone knows what it is; NULL: not made, or freed */
    wagma_options options; /* checked, defaults filled in */
    struct policy policy;  /* what they mean */
    struct topology topology;
    int rank, size;

    int keeps_arrays;  /* set by the executor's free(): messages under way still use them */
    atomic_int closed; /* 1: wagma_close; 2: broken by an error, or ended by wagma_fail */
    uint32_t process;  /* process_serial() of the process that made the handle */
    char *first_error; /* error that broke the handle; NULL: none, or there was no memory */
    int64_t version;   /* next version */
    int32_t quorum;    /* of the next version, as wagma_options.quorum */
    const reduce_kernels *kernels;
    wagma_hooks hooks;
    struct trace *trace;
    call call;
    wagma_stats stats;
    struct rank_stats ranks;
    wagma_outcome outcome; /* of the last call; arrays below */
    int32_t *members;      /* [P] group of the current call */
    int32_t *contributors; /* [P] */
    int64_t *versions;     /* [P] */
    const void **inputs;   /* [P] scratch for kernels */
    void **outputs;        /* [P] scratch */
    double *weights;       /* [P + 1] scratch */
};

/* The word for a wait in messages. */
const char *handle_phase(enum trace_wait what);

/* Check the weight of a call: WAGMA_OK, WAGMA_EINVAL or WAGMA_ETYPE. */
int handle_check_weight(const wagma_handle *h, double weight);
/* Make a handle of `executor` with its own arrays and without a state. NULL: error_set(). */
wagma_handle *handle_new(const struct executor *executor, const struct executor_request *request,
                         const wagma_hooks *hooks);
/* Free the handle and its arrays, after its executor's free(). */
void handle_free(wagma_handle *h);

/* Make the handle's trace; `origin` gives transport, shared, device and inode. WAGMA_OK or an
 * error. */
int handle_trace(wagma_handle *h, struct trace_origin origin);
/* Write the timeline, if there is one; warn if that fails. */
void handle_write_trace(wagma_handle *h);

/* Let wagma_fail() of another thread proceed while this thread, in a call, runs the caller's code.
 */
int handle_step_aside(wagma_handle *h);
/* Undo handle_step_aside(), which returned `busy`. The caller then asks handle_check_open(). */
void handle_step_back(wagma_handle *h, int busy);

/* Set and return the error of a call whose handle another thread, or a hook, has ended with
 * wagma_fail(). */
int handle_ended(void);
/* Return WAGMA_OK, or the error of handle_ended(). A call over a segment checks this after every
 * pause and between pieces of work. */
static inline int handle_check_open(const wagma_handle *h) {
    /* seq_cst: after handle_step_back() */
    return __builtin_expect(atomic_load(&h->closed) != 0, 0) ? handle_ended() : WAGMA_OK;
}

/* Check a wait for stalls; an executor calls this on WAIT_HEARTBEAT. `needed` of the `n` missing
 * ranks have to arrive. Checks for too many dead or failed ranks (WAGMA_EPEER), the timeout
 * (WAGMA_ESTALL), the interrupted hook and the stall warning. `phase`: see handle_phase().
 * WAGMA_OK: go on waiting; WAGMA_INPROGRESS: call.until has passed, and wagma_last_error() names
 * the missing ranks. */
int handle_heartbeat(wagma_handle *h, const char *phase, const int32_t *missing, int n, int needed);
/* Parts of handle_heartbeat(): the error for a dead or failed rank, and all other checks. */
int handle_lost(wagma_handle *h, const char *phase, int32_t rank);
int handle_delayed(wagma_handle *h, const char *phase, const int32_t *missing, int n, int needed);
/* All other checks of a wait for this rank's own device. */
static inline int handle_look_at_device(wagma_handle *h) {
    return handle_delayed(h, handle_phase(TRACE_FOR_DEVICE), &h->rank, 1, 1);
}
/* Check only the interrupted hook (not from wagma_test(), which does not wait) and call.until.
 * WAGMA_OK, WAGMA_EINTERRUPTED, WAGMA_ECLOSED or WAGMA_INPROGRESS. */
int handle_interrupted(wagma_handle *h, const char *phase);
/* Count the time since the last count as waiting, as far as this process ran. One heartbeat passes
 * between two checks for stalls; if much more time passed, the process was stopped (a suspended
 * job, a debugger) or busy elsewhere. Every check for stalls calls this. */
void handle_count_delay(wagma_handle *h);
/* What the call has waited so far was for its own x: it counts neither for `timeout` nor for
 * warnings about the ranks that are waited for from now on. */
void handle_restart_delay(wagma_handle *h);
/* Return 1 once per heartbeat: poll() has to look for stalls. */
int handle_look_due(wagma_handle *h);

#endif
