/* wagma: wait-avoiding group allreduce. Public C interface.
 *
 * The ranks of a handle share one segment of memory, or, on several nodes, send messages over a
 * transport. A rank calls wagma_allreduce() once per version; a version runs when `quorum` members
 * of the rank's group have called it. In a segment the ranks that are present execute it: an absent
 * rank needs no thread and delays no other rank. For handles over a transport see
 * wagma_create_over().
 *
 * Life cycle of a handle over a segment (ranks in one process share one segment object, processes
 * each map it):
 *
 *     wagma_segment_create     by one rank; wagma_segment_open by the others
 *     wagma_create             by every rank; returns when all have joined
 *     wagma_allreduce ... wagma_sync ...
 *     wagma_close              this rank departs
 *     wagma_free, wagma_segment_close
 *
 * Every function that returns int returns WAGMA_OK or a negative status; wagma_last_error() then
 * names the argument, its value and the remedy. Thread-safety: different handles may be used by
 * different threads at once, one handle by one thread at a time (wagma_dump_state() and
 * wagma_fail() excepted).
 *
 * Fork: a process forked before wagma_create() shares the segment with its parent and may be one of
 * its ranks. A process forked later has a private copy at the same addresses: its writes are
 * invisible to others, and its reads may return data newer than the fork. If the program has closed
 * the segment's descriptor, the child can only read. In such a child, calls with the parent's
 * handle and attempts to join its segment return WAGMA_ECLOSED; wagma_fail() and wagma_free() do
 * nothing.
 */
#ifndef WAGMA_H
#define WAGMA_H

#include <stddef.h>
#include <stdint.h>

#include "wagma_options.h"

#ifdef __cplusplus
extern "C" {
#endif

WAGMA_API void wagma_options_init(wagma_options *options);

/* Checks `options` as creation would, and fills in the defaults (group_size, window,
 * schedule_switch, schedule_chunk, schedule_part, schedule_direct). */
WAGMA_API int wagma_options_check(wagma_options *options);

WAGMA_API int wagma_abi_version(void);

/* Message of the calling thread's last failed call; valid until its next call. */
WAGMA_API const char *wagma_last_error(void);

/* ---- segment: memory shared by the ranks ----------------------------------------------------- */
typedef struct wagma_segment wagma_segment;

/* Writes the bytes of shared memory (memory DEVICE: of its device's memory) that the arrays of one
 * rank take with these options: `first` when the handle is created, `most` if every rank is as late
 * as the protocol allows and there is no shm_limit. Some kilobytes of protocol words are added. */
WAGMA_API int wagma_segment_memory(const wagma_options *options, uint64_t *first, uint64_t *most);

/* Makes the segment. `name` ("/x") is the name by which other processes open it. NULL: the segment
 * has no name, and no file stays behind however the processes end; ranks are then threads or forked
 * children of this process, or processes that receive its address. The caller owns the segment. */
WAGMA_API int wagma_segment_create(const wagma_options *options, const char *name,
                                   wagma_segment **segment);

/* Writes the name that wagma_segment_open() takes: the segment's name, or if it has none, an
 * address of at most 100 characters. Processes of the same user and PID namespace (containers have
 * their own) find the segment by its address while this process has it open. */
WAGMA_API int wagma_segment_address(const wagma_segment *segment, char *text, size_t size);

/* Maps the segment with this name or address. Fails with WAGMA_EMISMATCH if its options differ, and
 * with WAGMA_ESYS if it is not found. The caller owns it. */
WAGMA_API int wagma_segment_open(const wagma_options *options, const char *name,
                                 wagma_segment **segment);

/* Removes the name; the memory lives until the last rank has closed it. Harmless when repeated. */
WAGMA_API int wagma_segment_unlink(wagma_segment *segment);

/* Announces that `rank` will not join, or could not: ranks that wait for it in wagma_create() get
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

/* ---- device: arrays in the memory of GPUs ---------------------------------------------------- */
/* A device is one rank's use of a GPU: device.h describes its functions. */
typedef struct wagma_device wagma_device;

/* Opens GPU `ordinal`, as CUDA counts in this process. `library`: NULL, or the path of a library
 * that makes other devices, and stays loaded. Each call makes a device of its own: one per rank.
 * Call it in the process that uses the device; a forked child cannot. WAGMA_EINVAL: there is no
 * such GPU. WAGMA_ESYS: the driver is missing, or refuses. The caller owns the device. */
WAGMA_API int wagma_device_open(const char *library, int ordinal, wagma_device **device);

/* Frees the device, after all that was made with it. NULL is allowed. */
WAGMA_API void wagma_device_close(wagma_device *device);

/* Makes a handle as wagma_create() does, for memory DEVICE and STAGED: all arrays of its calls,
 * `initial` and what outcomes show are in the device's memory.
 *
 * `stream` is the caller's. Work that was queued there before a call produces x, and work queued
 * there after the call has returned finds the result in x; neither waits for other streams. A call
 * does not wait for `stream` before it returns WAGMA_INPROGRESS. It publishes x when that is
 * produced: wagma_test() or wagma_wait() of a posted call do. There is no wagma_shared_array().
 *
 * DEVICE: ranks open each other's memory; graphs are refused. With quorum "all" no rank is late,
 * and arrays are reduced out of place, too. The first such handle on a machine compiles the kernels
 * by NVRTC (libnvrtc.so), a second; they are kept in the user's cache folder. STAGED: the engine
 * copies arrays to the host and back, where contributions and results are. All else is as with
 * memory HOST, to the bit.
 *
 * The caller frees the stream after the handle, and the device after the segment. DEVICE:
 * wagma_close() waits for the caller's stream (if `timeout`, an interrupt or wagma_fail() ends that
 * wait, it returns the error, and this rank has failed for the others), and for ranks of other
 * processes until they have opened the memory of this rank that they may still need. */
WAGMA_API int wagma_create_on(wagma_segment *segment, int rank, wagma_device *device, void *stream,
                              const void *initial, double weight, const wagma_hooks *hooks,
                              wagma_handle **handle);

/* Sets the caller's stream of the calls to come; between calls. What was queued on the stream
 * before it keeps its order. WAGMA_EINVAL: the handle's arrays are in host memory. */
WAGMA_API int wagma_set_stream(wagma_handle *handle, void *stream);

/* ---- transport: messages instead of shared memory -------------------------------------------- */
/* A transport connects ranks on several nodes. A library of its own makes it (MPI); transport.h
 * describes its functions. wagma_create_over() takes ownership of the transport, also when it
 * fails. A transport built from other sources than the engine is refused and stays the caller's. */
typedef struct wagma_transport wagma_transport;

/* As wagma_create(), collective over the transport's ranks. All ranks pass the same `options`
 * (progress* excepted; redo_after and shm_limit have no effect). The ranks' engines reduce
 * contributions in a thread (`progress`) or in calls: a rank that computes or sleeps delays no
 * other rank, but a stopped or dead rank does. wagma_close() is collective. */
WAGMA_API int wagma_create_over(wagma_transport *transport, const wagma_options *options,
                                const void *initial, double weight, const wagma_hooks *hooks,
                                wagma_handle **handle);

/* As wagma_create_over(), for memory STAGED: arrays and stream are those of wagma_create_on(). */
WAGMA_API int wagma_create_over_on(wagma_transport *transport, const wagma_options *options,
                                   wagma_device *device, void *stream, const void *initial,
                                   double weight, const wagma_hooks *hooks, wagma_handle **handle);

/* Outcome of a call. The arrays belong to the handle and are valid until its next call. */
typedef struct wagma_outcome {
    int64_t version; /* the version that this call took */
    int64_t skipped; /* versions that the counter jumped over (FAST_FORWARD) */
    double weight;   /* divisor that average=1 uses */
    double waited;   /* seconds spent waiting for others */
    int32_t late;    /* 1: the version was pinned without this rank's contribution of it */
    int32_t merged;  /* 0: x is unchanged, because a newer result was merged before */
    int32_t contributors_count;
    int32_t results_count;       /* SKIP, CARRY: versions that this call delivered, 1 or more */
    const int32_t *contributors; /* ranks whose weight was not 0, ascending; of the newest result */
    const int64_t *versions;     /* of their contributions; -1: the first, given at creation */
    /* SKIP, CARRY: the results of `version` and the versions after it, oldest first, divided if
     * average is 1; count elements each, NULL where the weights sum to 0. The version counter
     * advanced by results_count. x is the newest result. */
    const void *const *results;
    /* STALE, and x was wagma_next_contribution(): the undivided result, which is not written to x;
     * `weight` is its divisor. NULL if merged is 0, and in all other cases. */
    const void *result;
} wagma_outcome;

/* After an error of a call (WAGMA_EINVAL and WAGMA_ETYPE excepted) the contents of x are undefined.
 * Over a transport without a graph, messages in flight may read and write x as long as the process
 * runs, unless memory is STAGED. */

/* x (count elements) becomes the result of this rank's next version; `weight` is finite, >= 0, and
 * at most 1e300.
 *
 * With a graph: n neighbours send to the rank at this version (wagma_neighbors_of). The rank waits
 * until all of them that have not departed have published the version. With weights c_j of these
 * neighbours and the rank itself, x becomes sum c_j x_j / sum c_j, or with average=0 sum c_j x_j /
 * (n + 1). In both cases outcome.weight is sum c_j / (n + 1): push-sum passes it as the weight of
 * the next call. Sums run in ascending order of ranks. See docs/neighbors.md. */
WAGMA_API int wagma_allreduce(wagma_handle *handle, void *x, double weight, wagma_outcome *outcome);

/* As wagma_allreduce(), over all ranks: the call waits for every rank, and all ranks have to call
 * it at the same version. WAGMA_EINVAL: the handle has a graph, in which ranks meet only their
 * neighbours. */
WAGMA_API int wagma_sync(wagma_handle *handle, void *x, double weight, wagma_outcome *outcome);

/* The two halves of the calls above, for callers that release a lock only while they wait.
 * wagma_start publishes x and proceeds as far as it can within a few microseconds. WAGMA_OK: done,
 * `outcome` is filled. WAGMA_INPROGRESS: call wagma_finish with the same x, and leave x alone until
 * that returns WAGMA_OK. */
WAGMA_API int wagma_start(wagma_handle *handle, void *x, double weight, int sync,
                          wagma_outcome *outcome);
WAGMA_API int wagma_finish(wagma_handle *handle, void *x, wagma_outcome *outcome);

/* Non-blocking: publishes x, if that needs no waiting, and returns WAGMA_INPROGRESS. Once x is
 * published, the rank counts as arrived, and others may execute the version. With quorum "all" the
 * last rank to arrive reduces its share of a large array before it returns. Leave x alone until
 * wagma_test or wagma_wait returns WAGMA_OK: they merge the result. One call at a time per handle.
 */
WAGMA_API int wagma_post(wagma_handle *handle, void *x, double weight, int sync);
/* Continues the posted call without waiting: WAGMA_OK, or WAGMA_INPROGRESS. */
WAGMA_API int wagma_test(wagma_handle *handle, void *x, wagma_outcome *outcome);
/* Waits for the posted call for up to `timeout` seconds (negative: until it is done): WAGMA_OK, or
 * WAGMA_INPROGRESS; then wagma_last_error() names the ranks that are missing. */
WAGMA_API int wagma_wait(wagma_handle *handle, void *x, double timeout, wagma_outcome *outcome);

/* Stores a free contribution buffer (count elements, uninitialised) in *buffer, for a call out of
 * place without a copy: fill the buffer, pass it to the next call instead of x, and leave it alone
 * from then on. Repeated calls return the same buffer until it is used. Views of the last call stay
 * valid. Waits only when shm_limit was reached. WAGMA_EINVAL: quorum is all (use
 * wagma_shared_array()), the handle has a graph, or the elements have 16 bits and average is 1. */
WAGMA_API int wagma_next_contribution(wagma_handle *handle, void **buffer);

/* Sets the quorum of the versions that this rank calls from now on, 1 to size; sends nothing. All
 * ranks have to call a version with the same quorum, sync versions excepted. Otherwise every rank
 * gets WAGMA_EQUORUM, in that call or in the next one. The quorum of a late rank may differ from
 * that of the further versions whose results it receives: it has not called them. The owner calls
 * this between calls. A quorum may change where late is SKIP or CARRY, the group is the world, and
 * the handle was made with fewer than all ranks. WAGMA_EINVAL: it may not change, or a call is in
 * progress. The present quorum may always be set. */
WAGMA_API int wagma_set_quorum(wagma_handle *handle, int32_t quorum);
/* Returns the quorum of the next call, as wagma_options.quorum. */
WAGMA_API int32_t wagma_quorum(const wagma_handle *handle);

/* Tells whether the next version of this rank has been pinned without it. 1: yes, as far as this
 * rank knows: the contributors are fixed, and the call will be late; work for it can end. 0: no;
 * always 0 with quorum all, before a sync version and with a graph. The owner may call this between
 * calls, as often as it likes. In a segment it costs two loads (below 1 us). Over a transport it
 * also processes the messages that have arrived, unless the progress thread is polling. No result
 * depends on this call. WAGMA_ECLOSED, WAGMA_EINVAL: as for a call; WAGMA_EINVAL also while a call
 * is in progress. */
WAGMA_API int wagma_pinned(wagma_handle *handle);

/* Returns the next version that this rank calls; the first is 0. */
WAGMA_API int64_t wagma_version(const wagma_handle *handle);

/* Returns this rank's array in the segment (count elements, 64-byte aligned). With quorum "all" the
 * array is reduced without a copy. With another quorum, from 1 MiB on, a blocking call publishes
 * the memory of the array and maps other memory at the same address instead of copying
 * (Linux 5.13): do not register the array with a device; protection and advice for its pages do not
 * last. The segment owns the array. Over a transport any array is reduced without a copy, and the
 * handle owns this one: it lives until wagma_free(). From 64 KiB on it lies in huge pages if the
 * system provides them, because those are copied faster between processes. NULL: there is no memory
 * for the array, or the handle has a graph, which cannot use one. */
WAGMA_API void *wagma_shared_array(wagma_handle *handle);

/* How large private arrays pass with quorum "all": through the segment in chunks, or read from
 * their owners' memory. */
enum { WAGMA_PRIVATE_NONE, WAGMA_PRIVATE_CHUNKS, WAGMA_PRIVATE_READ };

/* Counters since creation. */
typedef struct wagma_stats {
    int64_t calls;
    int64_t late;           /* calls whose contribution came too late */
    int64_t unmerged;       /* late calls that found nothing newer */
    int64_t redone_slices;  /* slices recomputed because their owner was stopped */
    int64_t buffer_waits;   /* calls that waited because shm_limit was reached */
    double waited;          /* seconds */
    double grace;           /* seconds, the value in force (measured when it is auto) */
    uint64_t segment_bytes; /* this rank's committed part of the segment, and its contributions and
                             * results on a device; over a transport: memory
                             * of its contributions, results and receives. Those from 64 KiB on
                             * share huge pages, so that a single one takes 2 MiB */
    uint64_t wakeups;    /* over a transport: how often the progress thread looked for messages */
    int64_t direct;      /* quorum "all": calls in which private arrays were read from their owners'
                          * memory, which WAGMA_CMA=0 in the environment forbids */
    int32_t private_way; /* WAGMA_PRIVATE_*, in the newest call in which a member's was private */
} wagma_stats;

WAGMA_API void wagma_get_stats(const wagma_handle *handle, wagma_stats *stats);

/* A rank's counters since creation, as it arrived at a sync version. */
typedef struct wagma_rank_stats {
    int64_t synced;  /* the sync version; -1: there was none yet */
    int64_t version; /* the sync version; for a departed rank, that of its next call */
    int64_t calls;
    int64_t late;
    int64_t unmerged;
    int64_t used;          /* results that the rank got and that hold a contribution of its own */
    int64_t staleness;     /* versions behind the newest, summed over these contributions */
    int64_t staleness_max; /* largest term of that sum */
    double waited;         /* seconds spent waiting for others */
    double compute;        /* seconds from call to call, waiting excluded; `calls` intervals */
    double compute_median; /* seconds, of the last 32 intervals */
    double behind;         /* seconds after the first rank, summed over its arrivals at syncs */
    int32_t departed;      /* 1: these are its last counters */
} wagma_rank_stats;

/* Returns the counters of `rank` at the last sync version that this handle took; every rank that
 * took it reads the same. Local; allowed after wagma_close(), too. */
WAGMA_API int wagma_gathered_stats(const wagma_handle *handle, int rank, wagma_rank_stats *stats);

/* Departs: from the next version on the rank has weight 0, and no rank waits for it. In a segment
 * the call is local and does not block. Over a transport it is collective: it returns when every
 * rank has closed, or with an error, which closes the handle as well. The timeout counts from the
 * last sign of life of a rank; the rank's progress thread gives one when asked. */
WAGMA_API int wagma_close(wagma_handle *handle);

/* Writes the ranks that are known to have failed or died, ascending, to ranks[size]; returns their
 * number, or WAGMA_ECLOSED, WAGMA_EINVAL. Call it between calls; over a transport it also processes
 * the messages that have arrived. */
WAGMA_API int wagma_lost(wagma_handle *handle, int32_t *ranks);

/* Marks this rank as failed: every wait that needs it ends in WAGMA_EPEER at once. Hooks and other
 * threads (but no signal handler) may call this while a call is in progress: that call ends with
 * WAGMA_ECLOSED, and writes into no other rank's array once the others see the failure. */
WAGMA_API void wagma_fail(wagma_handle *handle);

/* Frees the handle; one that was not closed is marked failed. NULL is allowed. With arrays on a
 * device it waits, without end, for what is queued on the caller's stream and may use the handle's
 * memory; wagma_close() waits for that until `timeout`. */
WAGMA_API void wagma_free(wagma_handle *handle);

/* ---- what happened --------------------------------------------------------------------------- */

/* Writes what the rank is doing and what it did last, as lines of text, the newest last: as many
 * lines as fit into `size` bytes with their 0. Any thread may call this while the handle is not
 * being freed, also while another thread is in a call. */
WAGMA_API int wagma_dump_state(const wagma_handle *handle, char *text, size_t size);

/* Data by which a reader aligns the timelines of the ranks (WAGMA_TRACE=dir, see docs/timeline.md).
 * All zeros: unknown. */
typedef struct wagma_trace_label {
    uint32_t struct_size;    /* sizeof(wagma_trace_label) */
    int32_t clock_compared;  /* 1: the next two are known */
    int64_t clock_offset_ns; /* rank 0's CLOCK_MONOTONIC minus this rank's */
    uint64_t clock_error_ns; /* bound on the error of the offset */
    uint64_t collective;     /* number of the collective, unique to the ranks of this handle; 0: the
                                engine's own, which it has if the ranks share a segment */
    const char *name;        /* of the handle; NULL: none. Copied */
} wagma_trace_label;

/* Returns 1 if the handle writes a timeline. */
WAGMA_API int wagma_is_traced(const wagma_handle *handle);
/* Labels the handle's timeline; harmless if it writes none. */
WAGMA_API int wagma_label_trace(wagma_handle *handle, const wagma_trace_label *label);

/* ---- grouping (pure) ------------------------------------------------------------------------- */

/* Number of groups: ceil(size / group_size). */
WAGMA_API int wagma_group_count(int size, int group_size);

/* Writes the members of `rank`'s group at `version`, ascending, to members[group_size]; returns
 * their number, or WAGMA_EINVAL. `grouping` is one of wagma_grouping; PAIRS draws from `seed`, and
 * its group_size is 2 (1 where size is 1). */
WAGMA_API int wagma_group_of(int rank, int size, int group_size, int grouping, uint64_t seed,
                             int64_t version, int32_t *members);

/* The most neighbours that a rank can have. */
#define WAGMA_MAX_NEIGHBORS 12

/* Writes the ranks that send to `rank` at `version`, ascending, to in[WAGMA_MAX_NEIGHBORS]; returns
 * their number n, or WAGMA_EINVAL. Each of these ranks and `rank` itself contributes the share 1 /
 * (n + 1) of its array. Every rank receives from n ranks and sends to n. `graph` and `neighbors` as
 * in wagma_options. */
WAGMA_API int wagma_neighbors_of(int rank, int size, int graph, int neighbors, int64_t version,
                                 int32_t *in);

#ifdef __cplusplus
}
#endif
#endif
