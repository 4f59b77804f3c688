/* One rank's handle: what all executors share. api/calls.c checks arguments and fills outcomes,
 * engine/weight.c checks weights, api/quorum.c has the quorum, engine/stall.c turns trouble
 * into errors; an executor only moves data. */
#ifndef WAGMA_ENGINE_HANDLE_H
#define WAGMA_ENGINE_HANDLE_H

#include "engine/policy.h"
#include "engine/rank_stats.h"
#include "kernels/reduce.h"
#include "shm/segment.h"
#include "trace/events.h"
#include "shm/wait.h"

struct shm_executor;      /* shm/avoiding/executor.c: one node, quorum < all, the round protocol */
struct inplace_executor;  /* shm/quorum_all/executor.c: one node, quorum "all" */
struct mpi_executor;      /* messages/executor.c: any nodes, over a transport */
struct neighbor_executor; /* shm/graph/executor.c: a graph, one node */

typedef struct call { /* the call in progress */
    int active;       /* started, not finished */
    int sync;         /* explicit sync(x), or a sync version: scope world, quorum all */
    int explicit_sync;
    int posted;
    int64_t version; /* public version, from 0 */
    int64_t next;    /* version of the next call; version + 1 unless the executor says otherwise */
    void *x;
    double weight;
    uint64_t began;         /* ns */
    const int32_t *members; /* of this rank's group, ascending */
    int n;
    uint64_t waited; /* ns */
    /* of timeout and stall_warning: how long this process has waited, see handle_count_delay() */
    uint64_t delay;   /* ns */
    uint64_t counted; /* up to when, ns on wait_now()'s clock */
    int warnings;     /* given about this call */
    /* of calls that return to the caller in between */
    int testing;    /* went on in wagma_test(), not in a wait */
    uint64_t until; /* finish() ends then with WAGMA_INPROGRESS; 0: never */
    uint64_t alive; /* ns of `delay` from which on the timeout counts: those that it waits for have
                       said then that they are there */
    uint64_t look;  /* poll() looks for trouble from then on, see handle_look_due() */
} call;

struct wagma_handle {
    const struct executor *executor;
    const wagma_options *options; /* checked, defaults filled in */
    struct policy policy;         /* what they mean */
    const struct topology *topology;
    wagma_segment *segment; /* NULL: over a transport */
    int rank, size;

    atomic_int closed; /* 1: wagma_close; 2: broken by an error, or ended by wagma_fail */
    uint32_t process;  /* process_serial() of the one that made it */
    char *first_error; /* what broke it; NULL: nothing has, or there was no memory */
    int64_t version;   /* next version */
    int32_t quorum;    /* of the next version, as wagma_options.quorum */
    const reduce_kernels *kernels;
    wagma_hooks hooks;
    struct trace *trace;
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
    struct mpi_executor *mpi;
    struct neighbor_executor *neighbor;
};

/* Executor interface: create frees nothing on failure but what it made itself. The others return
 * WAGMA_OK, WAGMA_INPROGRESS or an error set by error_set(), after which api/calls.c marks the
 * handle broken and the rank failed. With WAGMA_OK they have filled h->outcome (version and waited
 * excepted, which api/calls.c does).
 *   start   goes as far as is possible within a few microseconds
 *   post    publishes and ends there with WAGMA_INPROGRESS (quorum "all": the last one reduces its
 *           share of the slices); it never waits, not even for what publishing has to wait for
 *   poll    goes on without a pause; looks for trouble when handle_look_due()
 *   finish  goes on until the call is over, or call.until has passed: it looks for trouble then as
 *           on a heartbeat, and returns the WAGMA_INPROGRESS that handle_heartbeat() says */
enum handle_loss { /* what is known about a rank that a wait needs */
                   HANDLE_PRESENT = 0,
                   HANDLE_FAILED, /* it said so itself, or left without close() */
                   HANDLE_DEAD,
};

enum handle_presence { /* what is known about one that is not lost */
                       HANDLE_UNKNOWN,
                       HANDLE_LIVES,
                       HANDLE_IS_SILENT, /* it was asked, and has not answered */
                       /* for messages, from enum handle_loss */
                       HANDLE_HAS_FAILED,
                       HANDLE_HAS_DIED,
};

/* How far a call goes before it returns to its caller: one for each of start, post, poll, finish.
 */
enum call_mode { CALL_START, CALL_POST, CALL_POLL, CALL_FINISH };

struct executor {
    /* Around every call of the owner but close() and free(); of handles over a transport */
    void (*enter)(wagma_handle *h);
    void (*leave)(wagma_handle *h);
    int (*start)(wagma_handle *h);
    int (*post)(wagma_handle *h);
    int (*poll)(wagma_handle *h);
    int (*finish)(wagma_handle *h);
    int (*next_contribution)(wagma_handle *h, void **buffer); /* NULL: it reduces in place */
    void (*set_quorum)(wagma_handle *h); /* takes h->quorum from the next version on; called only if
                                            policy.varies */
    int (*pinned)(wagma_handle *h);      /* wagma_pinned() of a version that is no sync version;
                                            NULL: 0 always */
    void *(*array)(wagma_handle *h);     /* wagma_shared_array(), which may be NULL: error_set();
                                            NULL: it has no use for one */
    double (*carried_weight)(const wagma_handle *h); /* of what is carried; 0: nothing */
    double (*grace)(const wagma_handle *h);          /* seconds in force */
    uint64_t (*bytes)(const wagma_handle *h);        /* memory of this rank */
    uint64_t (*wakeups)(const wagma_handle *h);      /* of its thread; NULL: it has none */
    rank_record *(*record)(wagma_handle *h, int rank, uint64_t syncs); /* rank_stats.h */
    void (*look)(wagma_handle *h); /* for what lost() says, between calls; NULL: no need */
    enum handle_loss (*lost)(wagma_handle *h, int rank);
    /* Of one that is not lost. *has_called: 1: it has done what a wait of the current phase is for,
     * and something else of it is missing. */
    enum handle_presence (*presence)(wagma_handle *h, int rank, int *has_called);
    int (*close)(wagma_handle *h); /* departs; then the handle is closed whatever it returns */
    void (*fail)(wagma_handle *h); /* tells the others that this rank has failed */
    void (*free)(wagma_handle *h);
};

int inplace_create(wagma_handle *h);
int neighbor_create(wagma_handle *h);
int shm_create(wagma_handle *h, const void *initial, double weight);

/* The word for a wait in messages. */
const char *handle_phase(enum trace_wait what);

/* WAGMA_OK, or why the owner may not start a call: the handle is NULL, closed or inherited, or a
 * call is in progress. */
int handle_check_ready(const wagma_handle *h);
/* Around every call of the owner. Where an executor has a thread of its own, it stands aside
 * meanwhile. Where there is a segment, wagma_fail() waits until the owner does not write into it;
 * the owner asks whether the handle is open after it has entered. The second returns `status`. */
void handle_enter_call(wagma_handle *h);
int handle_leave_call(wagma_handle *h, int status);
/* WAGMA_OK, WAGMA_EINVAL or WAGMA_ETYPE. */
int handle_check_weight(const wagma_handle *h, double weight);
/* A handle without an executor for `rank` of `size`, its arrays allocated; NULL: error_set(). */
wagma_handle *handle_new(int rank, const wagma_options *options, const struct topology *topology,
                         const wagma_hooks *hooks);

/* The handle's trace, before it has an executor; `transport` is for readers. Or an error. */
int handle_trace(wagma_handle *h, const char *transport);
/* Writes the timeline, if there is one; what is wrong with that is a warning. */
void handle_write_trace(wagma_handle *h);

/* Parts of the interface for ranks that share a segment; the rank is not to be waited for any more:
 * SEGMENT_DEPARTED, SEGMENT_FAILED. */
void handle_leave(wagma_handle *h, enum segment_state state);
void *handle_segment_array(wagma_handle *h);
rank_record *handle_segment_record(wagma_handle *h, int rank, uint64_t syncs);
enum handle_loss handle_segment_lost(wagma_handle *h, int rank);
enum handle_presence handle_segment_presence(wagma_handle *h, int rank, int *has_called);
int handle_segment_depart(wagma_handle *h);
void handle_segment_fail(wagma_handle *h);

/* The error of a call whose handle another thread, or a hook, has ended with wagma_fail(). */
int handle_ended(void);
/* WAGMA_OK, or that error. A call over a segment asks after every pause and between pieces of work.
 */
static inline int handle_check_open(const wagma_handle *h) {
    /* seq_cst: after wait_step_back() */
    return __builtin_expect(atomic_load(&h->closed) != 0, 0) ? handle_ended() : WAGMA_OK;
}

/* Trouble in a wait, called by an executor on WAIT_HEARTBEAT; `needed` of the `n` missing ranks
 * have to come. Too many of them dead or failed (WAGMA_EPEER), timeout (WAGMA_ESTALL), the
 * interrupted hook, the stall warning. `phase` is a word for the message: "quorum", "window",
 * "sync", "buffer", "round", "slices". WAGMA_OK: go on waiting; WAGMA_INPROGRESS: call.until has
 * passed, and wagma_last_error() names who is missing. */
int handle_heartbeat(wagma_handle *h, const char *phase, const int32_t *missing, int n, int needed);
/* Its parts: the error of a rank that is dead or failed; and all the rest. */
int handle_lost(wagma_handle *h, const char *phase, int32_t rank);
int handle_delayed(wagma_handle *h, const char *phase, const int32_t *missing, int n, int needed);
/* The interrupted hook (not from wagma_test(), where nobody waits) and call.until alone. WAGMA_OK,
 * WAGMA_EINTERRUPTED, WAGMA_ECLOSED or WAGMA_INPROGRESS. */
int handle_interrupted(wagma_handle *h, const char *phase);
/* Counts the time since the last count as waiting, as far as this process ran: between two looks
 * for trouble a heartbeat passes, and where much more did, the process was stopped (a suspended
 * job, a debugger) or had something else to do. Every look counts. */
void handle_count_delay(wagma_handle *h);
/* 1, once per heartbeat: poll() has to look for trouble. */
int handle_look_due(wagma_handle *h);

#endif
