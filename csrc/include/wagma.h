/* wagma: wait-avoiding group allreduce. Public C interface.
 *
 * The ranks of a handle share one segment of memory, or, on several nodes, send messages over a
 * transport. A rank calls wagma_allreduce() once per version; a version runs when `quorum` members
 * of the rank's group have called it. In a segment whoever is present executes it: an absent rank
 * needs no thread and makes nobody wait. For handles over a transport see wagma_create_over().
 *
 * Life cycle:   segment_create (one rank)  segment_open (the others)     ranks in one process share
 * one wagma_create   (every rank, returns when all have)       segment; processes each map it
 *               wagma_allreduce ... wagma_sync ...
 *               wagma_close    (this rank departs)   wagma_free   wagma_segment_close
 *
 * Every function that returns int returns WAGMA_OK or a negative status; wagma_last_error() then
 * names the argument, its value and the remedy. Thread-safety: different handles may be used by
 * different threads at once, one handle by one thread at a time (wagma_dump_state() and
 * wagma_fail() excepted).
 *
 * Processes that are forked: before wagma_create() they share a segment, and may be its ranks. One
 * that is forked after it has a copy at the same addresses: what it writes stays there, and what it
 * reads may be newer than the fork (or, if the program has closed the segment's descriptor, it can
 * only read). Calls with its parent's handle, and joining with such a segment, give WAGMA_ECLOSED;
 * wagma_fail() and wagma_free() do nothing there.
 */
#ifndef WAGMA_H
#define WAGMA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows by one whenever a struct, a status, the meaning of a call or what ranks share changes. */
#define WAGMA_ABI_VERSION 13

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
    WAGMA_ENOMEM = -2,    /* private memory is exhausted */
    WAGMA_ENOSPC = -3,    /* shared memory (/dev/shm) is too small */
    WAGMA_ESYS = -4,      /* the operating system refused something; the message has its words */
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

/* What a rank contributes to a version that was pinned without its contribution. */
enum wagma_late {
    WAGMA_LATE_STALE = 0, /* its newest contribution, of an earlier version */
    WAGMA_LATE_SKIP = 1,  /* nothing; every result reaches every rank, in order */
    WAGMA_LATE_CARRY = 2, /* the same, and what was missed is added to its next one */
};

/* What a late rank makes of several missed versions (late "stale"). */
enum wagma_missed {
    WAGMA_MISSED_ONCE = 0,         /* merges the newest */
    WAGMA_MISSED_FAST_FORWARD = 1, /* and goes on with the version after it */
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
    WAGMA_GRAPH_NONE = 0, /* groups do: all that is said above */
    WAGMA_GRAPH_RING = 1, /* the ranks before and after it */
    /* directed: the ranks 1, 2, 4, 8 ... after it in turn; others send to it */
    WAGMA_GRAPH_EXPONENTIAL = 2,
};

/* wagma_options.quorum: a member drawn from (seed, version, group) starts the version. */
#define WAGMA_QUORUM_MAJORITY (-1)

/* How a handle over a transport makes progress while its rank computes. A version in flight is
 * polled hard (unless the rank calls again and again, which makes progress, too); an idle handle is
 * polled by this rule. */
enum wagma_progress {
    WAGMA_PROGRESS_SLEEP = 0, /* a thread polls every progress_sleep seconds */
    WAGMA_PROGRESS_YIELD = 1, /* a thread polls and yields the core in between */
    WAGMA_PROGRESS_SPIN = 2,  /* a thread polls all the time */
    WAGMA_PROGRESS_MAIN = 3,  /* no thread: in calls of the handle only */
};

/* What all ranks of a handle agree on, progress* excepted; set defaults with
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
    int32_t neighbors;    /* EXPONENTIAL: ranks that one sends to in a version, 1 to size - 1 and
                             to WAGMA_MAX_NEIGHBORS; 0: 1, and what there is without or with
                             another graph */
    int32_t dtype;        /* wagma_dtype */
    int32_t average;      /* 1: results are divided by the sum of the weights */
    int64_t count;        /* elements per contribution, >= 0 */
    int64_t sync_period;  /* version t is a sync version when (t+1) % sync_period == 0; 0: never */
    int64_t window;       /* versions a rank may be ahead of the slowest; 0: sync_period, or 64;
                             8 where late is not STALE: so many results are kept */
    double grace;         /* seconds that a version waits for recent members; negative: auto */
    double timeout;       /* seconds until a wait ends in WAGMA_ESTALL; negative: never */
    double stall_warning; /* seconds between warnings about a stuck wait, 0.1 at least; negative:
                             none */
    double redo_after;  /* seconds until a slice of a stopped rank is recomputed; default 200e-6 */
    uint64_t shm_limit; /* bytes of shared memory per rank; 0: as many as the protocol can use */
    uint64_t seed;      /* of the draws of MAJORITY and PAIRS */
    /* of handles over a transport; the ranks may differ in them */
    double progress_sleep; /* seconds, 10e-6 at least; default 1e-3 */
    int32_t progress;      /* wagma_progress */
    int32_t progress_cpu;  /* core to which the thread is bound; -1: none */
    /* of handles over a transport; 0: a built-in default. `python -m wagma tune` measures them */
    int64_t schedule_switch; /* bytes of a contribution up to which ranks exchange all of it in few
                                messages, else parts of it: docs/schedules.md */
    int64_t schedule_chunk;  /* bytes of a message of a large contribution */
    int64_t schedule_part;   /* bytes of one member's part from which on each one sends parts to all
                                others: shorter ones take fewer messages, one after the other */
    int32_t schedule_direct; /* members up to which each one sends to all */
} wagma_options;

WAGMA_API void wagma_options_init(wagma_options *options);

/* Checks `options` as creation would, and fills in the defaults (group_size, window,
 * schedule_switch, schedule_chunk, schedule_part, schedule_direct). */
WAGMA_API int wagma_options_check(wagma_options *options);

WAGMA_API int wagma_abi_version(void);

/* Message of the calling thread's last failed call; valid until its next call. */
WAGMA_API const char *wagma_last_error(void);

/* ---- segment: the memory that the ranks share ------------------------------------------------ */
typedef struct wagma_segment wagma_segment;

/* Writes how many bytes of shared memory the arrays of one rank take with these options: `first`
 * when the handle is created, `most` if every rank is as late as the protocol allows and there is
 * no shm_limit. Some kilobytes of words come on top. */
WAGMA_API int wagma_segment_memory(const wagma_options *options, uint64_t *first, uint64_t *most);

/* Makes the segment; `name` ("/x") for other processes to open. NULL: it has no name, and nothing
 * stays behind, whatever ends; for ranks that are threads or forked from here, and for those that
 * are told its address. The caller owns it. */
WAGMA_API int wagma_segment_create(const wagma_options *options, const char *name,
                                   wagma_segment **segment);

/* Writes what wagma_segment_open() takes: the segment's name, or if it has none, an address of at
 * most 100 characters. By that it is found while this process has it open, by processes of the same
 * user and PID namespace (containers have their own). */
WAGMA_API int wagma_segment_address(const wagma_segment *segment, char *text, size_t size);

/* Maps the segment of a name or an address; fails with WAGMA_EMISMATCH if its options differ, and
 * with WAGMA_ESYS where it is not found. The caller owns it. */
WAGMA_API int wagma_segment_open(const wagma_options *options, const char *name,
                                 wagma_segment **segment);

/* Removes the name; the memory lives until the last rank has closed it. Harmless when repeated. */
WAGMA_API int wagma_segment_unlink(wagma_segment *segment);

/* Says that `rank` will not join, or could not: who waits for it in wagma_create() gets
 * WAGMA_EPEER. Harmless when repeated. */
WAGMA_API int wagma_segment_fail(wagma_segment *segment, int rank);

/* Ends the caller's use of the segment. It stays mapped until the handles over it are freed. NULL
 * is allowed. */
WAGMA_API void wagma_segment_close(wagma_segment *segment);

/* ---- handle: one rank's view of the collective ----------------------------------------------- */
typedef struct wagma_handle wagma_handle;

/* Called from inside waits, on the thread that waits; both may be NULL. */
typedef struct wagma_hooks {
    void *context;
    void (*warn)(void *context, const char *message); /* a wait is stuck: version, phase, ranks */
    int (*interrupted)(void *context); /* about every 50 ms; not 0: WAGMA_EINTERRUPTED */
} wagma_hooks;

/* Joins as `rank` with a first contribution (count elements; NULL: zeros) and returns when every
 * rank has joined. `hooks` is copied. The caller owns the handle, which keeps the segment mapped:
 * the caller may close the segment as soon as it needs no other handle over it. */
WAGMA_API int wagma_create(wagma_segment *segment, int rank, const void *initial, double weight,
                           const wagma_hooks *hooks, wagma_handle **handle);

/* ---- transport: messages instead of shared memory -------------------------------------------- */
/* For ranks on several nodes. Made by a library of its own (MPI); see transport.h for what it does.
 * The handle owns it from wagma_create_over() on, also when that fails. One that was built from
 * other sources than the engine is refused, and left as it is. */
typedef struct wagma_transport wagma_transport;

/* As wagma_create(), collective over the transport's ranks, which have to pass the same `options`
 * (progress* excepted; redo_after and shm_limit mean nothing here). A contribution is reduced by
 * the ranks' engines, in a thread (`progress`) or in calls: a rank that computes or sleeps makes
 * nobody wait, one that is stopped or dead does. wagma_close() is collective. */
WAGMA_API int wagma_create_over(wagma_transport *transport, const wagma_options *options,
                                const void *initial, double weight, const wagma_hooks *hooks,
                                wagma_handle **handle);

/* What a version gave this rank. The arrays belong to the handle, until its next call. */
typedef struct wagma_outcome {
    int64_t version; /* the version that this call took */
    int64_t skipped; /* versions that the counter jumped over (FAST_FORWARD) */
    double weight;   /* divisor that average=1 uses */
    double waited;   /* seconds spent waiting for others */
    int32_t late;    /* 1: the version was pinned without this rank's contribution of it */
    int32_t merged;  /* 0: x is unchanged, a newer result had been merged before */
    int32_t contributors_count;
    int32_t results_count;       /* SKIP, CARRY: versions that this call delivered, 1 or more */
    const int32_t *contributors; /* ranks whose weight was not 0, ascending; of the newest result */
    const int64_t *versions;     /* of their contributions; -1: the first, given at creation */
    /* SKIP, CARRY: the results of `version` and of those after it, oldest first, as average says;
     * count elements each, NULL where the weights sum to 0. The counter moved on by as many. x is
     * the newest of them. */
    const void *const *results;
    /* STALE, and x was wagma_next_contribution(): the result undivided (`weight` is the divisor),
     * which x has not become. NULL: merged is 0. Otherwise NULL. */
    const void *result;
} wagma_outcome;

/* After an error of a call (WAGMA_EINVAL and WAGMA_ETYPE excepted) x holds anything; over a
 * transport messages under way may read and write it as long as the process runs, but not with a
 * graph. */

/* x (count elements) becomes the result of this rank's next version; `weight` is finite, >= 0, and
 * at most 1e300.
 *
 * With a graph: rank r, which has n neighbours that send to it at this version
 * (wagma_neighbors_of), waits until all of them that have not departed have published it. With
 * weights c_j of these neighbours and the rank itself, x becomes sum c_j x_j / sum c_j, or with
 * average=0 sum c_j x_j / (n + 1); outcome.weight is sum c_j / (n + 1) in both cases: what push-sum
 * takes as the weight of the next call. Sums are taken by ascending rank. See docs/neighbors.md. */
WAGMA_API int wagma_allreduce(wagma_handle *handle, void *x, double weight, wagma_outcome *outcome);

/* Reduce over all ranks, none of them late. All ranks have to call it at the same version.
 * WAGMA_EINVAL: the handle has a graph, with which ranks meet their neighbours alone. */
WAGMA_API int wagma_sync(wagma_handle *handle, void *x, double weight, wagma_outcome *outcome);

/* The two halves of the calls above, for callers that hold a lock while they do not wait.
 * wagma_start publishes x and goes as far as is possible without waiting long (a few microseconds):
 * WAGMA_OK: done, `outcome` is filled; WAGMA_INPROGRESS: call wagma_finish with the same x, which
 * must be left alone until that returns WAGMA_OK. */
WAGMA_API int wagma_start(wagma_handle *handle, void *x, double weight, int sync,
                          wagma_outcome *outcome);
WAGMA_API int wagma_finish(wagma_handle *handle, void *x, wagma_outcome *outcome);

/* Non-blocking: publishes x as far as that needs no waiting, and returns WAGMA_INPROGRESS; then
 * this rank counts as arrived, and others may execute the version. With quorum "all" the last one
 * to come reduces its share of a large array before it returns. x must be left alone until
 * wagma_test or wagma_wait returns WAGMA_OK: they merge the result. One call at a time per handle.
 */
WAGMA_API int wagma_post(wagma_handle *handle, void *x, double weight, int sync);
/* Goes on without waiting: WAGMA_OK, or WAGMA_INPROGRESS. */
WAGMA_API int wagma_test(wagma_handle *handle, void *x, wagma_outcome *outcome);
/* Goes on for `timeout` seconds (negative: until done): WAGMA_OK, or WAGMA_INPROGRESS, of which
 * wagma_last_error() says for whom it waits. */
WAGMA_API int wagma_wait(wagma_handle *handle, void *x, double timeout, wagma_outcome *outcome);

/* Out of place, without a copy: a free contribution buffer (count elements, uninitialised) into
 * *buffer, to be filled and passed to the next call instead of x; from then on it must be left
 * alone. The same buffer until it is used. Views of the last call stay valid. Waits only when
 * shm_limit was reached. WAGMA_EINVAL: quorum is all (use wagma_shared_array()), the handle has a
 * graph, or the elements have 16 bits and average is 1. */
WAGMA_API int wagma_next_contribution(wagma_handle *handle, void **buffer);

/* Sets the quorum of the versions that this rank calls from now on, 1 to size; sends nothing. All
 * ranks have to call a version with the same quorum, sync versions excepted. Otherwise every rank
 * gets WAGMA_EQUORUM, in its call then or in the next one. A late rank has not called the versions
 * that it gets beside its own: its quorum need not be theirs.
 * The owner calls this between calls. A quorum may change where late is SKIP or CARRY, the group is
 * the world, and the handle was made with fewer than all ranks. WAGMA_EINVAL: it may not change,
 * or a call is in progress. The present quorum may always be set. */
WAGMA_API int wagma_set_quorum(wagma_handle *handle, int32_t quorum);
/* Returns the quorum of the next call, as wagma_options.quorum. */
WAGMA_API int32_t wagma_quorum(const wagma_handle *handle);

/* Tells whether the next version of this rank has been pinned without it. 1: it has, as far as this
 * rank knows: the contributors are fixed, and the call will be late; work for it can end. 0: it has
 * not; with quorum all, before a sync version and with a graph always.
 * The owner calls this between calls, as often as it likes. In a segment it costs two loads (below
 * 1 us). Over a transport it also takes what has come, unless the progress thread does so at the
 * moment. No result depends on it. WAGMA_ECLOSED, WAGMA_EINVAL: as for a call; WAGMA_EINVAL also
 * while a call is in progress. */
WAGMA_API int wagma_pinned(wagma_handle *handle);

/* The next version that this rank calls; -1 never occurs: the first is 0. */
WAGMA_API int64_t wagma_version(const wagma_handle *handle);

/* This rank's array in the segment (count elements, 64-byte aligned): reduced without a copy when
 * quorum is "all". With another quorum, from 1 MiB on, a blocking call publishes its memory and
 * lets it show other memory at the same address, which takes the place of a copy (Linux 5.13): do
 * not register it with a device; protection and advice for its pages do not last. Belongs to the
 * segment; over a
 * transport, where any array is reduced so, to the handle: it lives until wagma_free(), from 64
 * KiB on in huge pages where the system gives them, which are copied faster between processes.
 * NULL: there is no memory for it, or the handle has a graph, which has no use for one. */
WAGMA_API void *wagma_shared_array(wagma_handle *handle);

/* How large private arrays pass with quorum "all": through the segment in chunks, or read from
 * their owners' memory. */
enum { WAGMA_PRIVATE_NONE, WAGMA_PRIVATE_CHUNKS, WAGMA_PRIVATE_READ };

/* Counters since creation. */
typedef struct wagma_stats {
    int64_t calls;
    int64_t late;           /* calls whose contribution came too late */
    int64_t unmerged;       /* late calls that found nothing newer */
    int64_t redone_slices;  /* recomputed because their owner was stopped */
    int64_t buffer_waits;   /* calls that waited because shm_limit was reached */
    double waited;          /* seconds */
    double grace;           /* seconds, the value in force (measured when it is auto) */
    uint64_t segment_bytes; /* this rank's committed part of the segment; over a transport: what
                             * holds its contributions, results and receives; those from 64 KiB
                             * on share huge pages, so that one of them takes 2 MiB */
    uint64_t wakeups;    /* over a transport: how often the progress thread looked for messages */
    int64_t direct;      /* quorum "all": calls in which private arrays were read from their owners'
                          * memory, which WAGMA_CMA=0 in the environment forbids */
    int32_t private_way; /* WAGMA_PRIVATE_*, in the newest call in which a member's was private */
} wagma_stats;

WAGMA_API void wagma_get_stats(const wagma_handle *handle, wagma_stats *stats);

/* A rank's counters since creation, as it arrived at a sync version. */
typedef struct wagma_rank_stats {
    int64_t synced;  /* the sync version; -1: there was none yet */
    int64_t version; /* the same; of a departed rank the version that it would have called next */
    int64_t calls;
    int64_t late;
    int64_t unmerged;
    int64_t used;      /* results that the rank got and that hold a contribution of its own */
    int64_t staleness; /* sum over them: versions that this contribution was behind the newest */
    int64_t staleness_max; /* of one of them */
    double waited;         /* seconds spent waiting for others */
    double compute;        /* seconds from call to call, waiting excluded; `calls` intervals */
    double compute_median; /* seconds, of the last 32 intervals */
    double behind;         /* seconds after the first rank, summed over its arrivals at syncs */
    int32_t departed;      /* 1: these are its last counters */
} wagma_rank_stats;

/* Counters of `rank`, of the last sync version that this handle took: the same on every rank that
 * took it. Local, also after wagma_close(). */
WAGMA_API int wagma_gathered_stats(const wagma_handle *handle, int rank, wagma_rank_stats *stats);

/* Departs: weight 0 from the next version on, never waited for. Local and does not block; over a
 * transport collective: returns when every rank has closed (or an error, after which the handle is
 * closed all the same). The timeout counts from the last sign of life of a rank, which its progress
 * thread gives when it is asked. */
WAGMA_API int wagma_close(wagma_handle *handle);

/* The ranks that are known to have failed or died, ascending, to ranks[size]: their number, or
 * WAGMA_ECLOSED, WAGMA_EINVAL. Between calls; over a transport it goes on with what has come. */
WAGMA_API int wagma_lost(wagma_handle *handle, int32_t *ranks);

/* Marks this rank as failed: every wait that needs it ends in WAGMA_EPEER at once. Also from
 * another thread (but no signal handler) while a call is under way, and from its hooks: that call
 * ends with WAGMA_ECLOSED, and writes into no other rank's array once the others see the failure.
 */
WAGMA_API void wagma_fail(wagma_handle *handle);

/* Frees the handle; one that was not closed is marked failed. NULL is allowed. */
WAGMA_API void wagma_free(wagma_handle *handle);

/* ---- what happened --------------------------------------------------------------------------- */

/* What the rank is doing and what it did last, as lines of text, the newest last: as many as fit
 * into `size` bytes with their 0. Of any handle that is not being freed, from any thread, also
 * while another one is in a call. */
WAGMA_API int wagma_dump_state(const wagma_handle *handle, char *text, size_t size);

/* For timelines (WAGMA_TRACE=dir, see docs/timeline.md): what a reader needs to put the ranks'
 * files beside each other. All zeros: unknown. */
typedef struct wagma_trace_label {
    uint32_t struct_size;    /* sizeof(wagma_trace_label) */
    int32_t clock_compared;  /* 1: the next two are known */
    int64_t clock_offset_ns; /* rank 0's CLOCK_MONOTONIC minus this rank's */
    uint64_t clock_error_ns; /* by how much that can be wrong */
    uint64_t collective;     /* a number that the handle's ranks share and nobody else has; 0: the
                                engine's, which knows one where the ranks share a segment */
    const char *name;        /* of the handle; NULL: none. Copied */
} wagma_trace_label;

/* 1: the handle writes a timeline. */
WAGMA_API int wagma_is_traced(const wagma_handle *handle);
/* Harmless where it does not. */
WAGMA_API int wagma_label_trace(wagma_handle *handle, const wagma_trace_label *label);

/* ---- grouping (pure) ------------------------------------------------------------------------- */

/* Number of groups: ceil(size / group_size). */
WAGMA_API int wagma_group_count(int size, int group_size);

/* Writes the members of `rank`'s group at `version`, ascending, to members[group_size]; returns
 * their number, or WAGMA_EINVAL. `grouping` is one of wagma_grouping; PAIRS draws from `seed`, and
 * its group_size is 2 (1 where size is 1). */
WAGMA_API int wagma_group_of(int rank, int size, int group_size, int grouping, uint64_t seed,
                             int64_t version, int32_t *members);

/* As many neighbours as a rank has at most. */
#define WAGMA_MAX_NEIGHBORS 12

/* Writes the ranks that send to `rank` at `version`, ascending, to in[WAGMA_MAX_NEIGHBORS]; returns
 * their number n, or WAGMA_EINVAL. Each of them gives the share 1 / (n + 1) of what it has, and so
 * does `rank` itself; every rank has n of them, and sends to n. `graph` and `neighbors` as in
 * wagma_options. */
WAGMA_API int wagma_neighbors_of(int rank, int size, int graph, int neighbors, int64_t version,
                                 int32_t *in);

#ifdef __cplusplus
}
#endif
#endif
