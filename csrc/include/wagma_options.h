/* What a handle is asked for, and what calls return: the constants and options of wagma.h, which
 * includes this file. */
#ifndef WAGMA_OPTIONS_H
#define WAGMA_OPTIONS_H

#include <stdint.h>

/* Grows by one whenever a struct, a status, the meaning of a call or what ranks share changes. */
#define WAGMA_ABI_VERSION 16

/* 40 bits hold a version and 24 a round (2 per rank and rank), which limits the number of ranks. */
#define WAGMA_MAX_RANKS 2896

#if defined(__GNUC__)
#define WAGMA_API __attribute__((visibility("default")))
#else
#define WAGMA_API
#endif

enum wagma_status {
    WAGMA_OK = 0,
    WAGMA_INPROGRESS = 1, /* wagma_start: nothing failed, wagma_finish has to be called */
    WAGMA_EINVAL = -1,    /* an argument is wrong */
    WAGMA_ENOMEM = -2,    /* private memory, or that of a device, is exhausted */
    WAGMA_ENOSPC = -3,    /* shared memory (/dev/shm) is too small */
    WAGMA_ESYS = -4,      /* the operating system, or a device, refused something; the message has
                             its words */
    WAGMA_ESTALL = -5,    /* `timeout` seconds passed; the message names the missing ranks */
    WAGMA_EPEER = -6,     /* a rank that the wait needs is dead or failed; the message names it */
    WAGMA_ECLOSED = -7, /* the handle was closed, broken by an earlier error, or made by a parent of
                           this process */
    WAGMA_EMISMATCH = -8,    /* ranks disagree: other options at creation, sync at other versions */
    WAGMA_EINTERRUPTED = -9, /* the interrupted() hook asked to stop waiting */
    WAGMA_ETYPE = -10, /* the dtype does not allow this: average or fractional weight of integers */
    WAGMA_EQUORUM = -11, /* ranks called a version with different quorums; the message names them */
};

typedef enum wagma_dtype {
    WAGMA_F32 = 0,
    WAGMA_F64 = 1,
    WAGMA_F16 = 2,
    WAGMA_BF16 = 3,
    WAGMA_I32 = 4,
    WAGMA_I64 = 5,
} wagma_dtype;

/* Contribution of a late rank: one whose version was pinned without its contribution. */
enum wagma_late {
    WAGMA_LATE_STALE = 0, /* its newest contribution, of an earlier version */
    WAGMA_LATE_SKIP = 1,  /* nothing; every result reaches every rank, in order */
    WAGMA_LATE_CARRY = 2, /* as SKIP; the late contribution is added to the rank's next one */
};

/* How a late rank catches up on several missed versions (late "stale"). */
enum wagma_missed {
    WAGMA_MISSED_ONCE = 0,         /* merges the newest */
    WAGMA_MISSED_FAST_FORWARD = 1, /* merges the newest and continues with the version after it */
};

/* Whose arrival starts a version. */
enum wagma_activation {
    WAGMA_ACTIVATION_GROUP = 0, /* `quorum` members of the group */
    WAGMA_ACTIVATION_WORLD = 1, /* `quorum` ranks: all groups are pinned at once */
};

/* How groups follow from the version. */
enum wagma_grouping {
    WAGMA_GROUPING_DYNAMIC = 0, /* they change so that updates spread fastest */
    WAGMA_GROUPING_FIXED = 1,   /* those of version 0 */
    WAGMA_GROUPING_PAIRS = 2,   /* two ranks each, drawn from (seed, version) */
};

/* Graphs, in which a call averages with the neighbours of its version. */
enum wagma_graph {
    WAGMA_GRAPH_NONE = 0, /* none: a call averages within its group, as described above */
    WAGMA_GRAPH_RING = 1, /* the ranks before and after it */
    /* directed: a rank sends to the ranks 1, 2, 4, 8 ... after it in turn, and receives from the
       ranks as far before it */
    WAGMA_GRAPH_EXPONENTIAL = 2,
};

/* Where the arrays of all calls, contributions and results are. */
enum wagma_memory {
    WAGMA_MEMORY_HOST = 0,
    WAGMA_MEMORY_DEVICE = 1, /* on the ranks' devices: wagma_create_on() */
    /* arrays of calls as for DEVICE; contributions and results on the host, through which the
       engine copies: wagma_create_on(), wagma_create_over_on() */
    WAGMA_MEMORY_STAGED = 2,
};

/* Value of wagma_options.quorum: a member drawn from (seed, version, group) starts the version. */
#define WAGMA_QUORUM_MAJORITY (-1)

/* How a handle over a transport makes progress while its rank computes. A version in flight is
 * polled continuously, unless the rank makes progress itself by calling again and again. This rule
 * applies to an idle handle. */
enum wagma_progress {
    WAGMA_PROGRESS_SLEEP = 0, /* a thread polls every progress_sleep seconds */
    WAGMA_PROGRESS_YIELD = 1, /* a thread polls and yields the core in between */
    WAGMA_PROGRESS_SPIN = 2,  /* a thread polls all the time */
    WAGMA_PROGRESS_MAIN = 3,  /* no thread: in calls of the handle only */
};

/* Settings of a handle: the same on all ranks, except progress*. Set the defaults with
 * wagma_options_init(). */
typedef struct wagma_options {
    uint32_t struct_size; /* sizeof(wagma_options) */
    int32_t size;         /* ranks P, 1 <= P <= WAGMA_MAX_RANKS */
    int32_t group_size;   /* maximum members S of a group, 1 <= S <= P; 0: P */
    int32_t quorum;       /* members that start a version, 1 <= quorum <= group_size (activation
                             WORLD: <= size); 0: all; or WAGMA_QUORUM_MAJORITY */
    int32_t late;         /* wagma_late */
    int32_t missed;       /* wagma_missed */
    int32_t activation;   /* wagma_activation */
    int32_t grouping;     /* wagma_grouping */
    int32_t graph;        /* wagma_graph; another than NONE takes the defaults of group_size,
                             quorum, late, missed, activation, grouping, sync_period, window,
                             grace and seed, and no integers */
    int32_t neighbors;    /* EXPONENTIAL: ranks to which a rank sends in a version, 1 to
                             min(size - 1, WAGMA_MAX_NEIGHBORS); 0: 1. Otherwise: 0 */
    int32_t dtype;        /* wagma_dtype */
    int32_t average;      /* 1: results are divided by the sum of the weights */
    int32_t memory;       /* wagma_memory; DEVICE takes no graph */
    int64_t count;        /* elements per contribution, >= 0 */
    int64_t sync_period;  /* version t is a sync version when (t+1) % sync_period == 0; 0: never */
    int64_t window;       /* versions a rank may be ahead of the slowest; 0: sync_period, or 64;
                             8 where late is not STALE: so many results are kept */
    double grace;         /* seconds that a version waits for recent members; negative: auto */
    double timeout;       /* seconds until a wait ends in WAGMA_ESTALL; negative: never */
    double stall_warning; /* seconds between warnings about a stuck wait, 0.1 at least; negative:
                             none */
    double redo_after;    /* seconds until a slice of a stopped rank is recomputed; default 200e-6;
                             on devices 1e-3 at least */
    uint64_t shm_limit;   /* bytes of shared memory and of its device per rank; 0: as many as the
                             protocol can use */
    uint64_t seed;        /* of the draws of MAJORITY and PAIRS */
    /* of handles over a transport; the ranks may differ in them */
    double progress_sleep; /* seconds, 10e-6 at least; default 1e-3 */
    int32_t progress;      /* wagma_progress */
    int32_t progress_cpu;  /* core to which the thread is bound; -1: none */
    /* of handles over a transport; 0: a built-in default. `python -m wagma tune` measures them */
    int64_t schedule_switch; /* bytes of a contribution up to which ranks exchange all of it in few
                                messages, else parts of it: docs/schedules.md */
    int64_t schedule_chunk;  /* bytes of a message of a large contribution */
    int64_t schedule_part;   /* bytes of one member's part from which on each member sends its parts
                                to all others; shorter parts take fewer messages, in sequence */
    int32_t schedule_direct; /* members up to which each member sends to all others */
} wagma_options;

#endif
