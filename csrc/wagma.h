/* wagma: wait-avoiding group allreduce on one node. Public C interface.
 *
 * The ranks of a handle share one segment of memory. A rank calls wagma_allreduce() once per
 * version; a version runs when `quorum` members of the rank's group have called it, and whoever is
 * present executes it: an absent rank needs no thread and makes nobody wait.
 *
 * Life cycle:   segment_create (one rank)  segment_open (the others)     ranks in one process share
 * one wagma_create   (every rank, returns when all have)       segment; processes each map it
 *               wagma_allreduce ... wagma_sync ...
 *               wagma_close    (local: this rank departs)   wagma_free   wagma_segment_close
 *
 * Every function that returns int returns WAGMA_OK or a negative status; wagma_last_error() then
 * names the argument, its value and the remedy. Thread-safety: different handles may be used by
 * different threads at once, one handle by one thread at a time.
 */
#ifndef WAGMA_H
#define WAGMA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows by one whenever a struct, a status or the meaning of a call changes. */
#define WAGMA_ABI_VERSION 2

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
    WAGMA_ECLOSED = -7,   /* the handle was closed, or broken by an earlier error */
    WAGMA_EMISMATCH = -8, /* ranks disagree: other options at creation, sync at other versions */
    WAGMA_EINTERRUPTED = -9, /* the interrupted() hook asked to stop waiting */
    WAGMA_ETYPE = -10, /* the dtype does not allow this: average or fractional weight of integers */
};

typedef enum wagma_dtype {
    WAGMA_F32 = 0,
    WAGMA_F64 = 1,
    WAGMA_F16 = 2,
    WAGMA_BF16 = 3,
    WAGMA_I32 = 4,
    WAGMA_I64 = 5,
} wagma_dtype;

enum wagma_late { /* what a rank contributes to a version that was pinned without its contribution
                   */
                  WAGMA_LATE_STALE = 0, /* its newest contribution, of an earlier version */
                  WAGMA_LATE_SKIP = 1,  /* nothing; every result reaches every rank, in order */
                  WAGMA_LATE_CARRY = 2, /* the same, and what was missed is added to its next one */
};

enum wagma_missed { /* what a late rank makes of several missed versions ("stale") */
                    WAGMA_MISSED_ONCE = 0,         /* merges the newest */
                    WAGMA_MISSED_FAST_FORWARD = 1, /* and goes on with the version after it */
};

enum wagma_activation {                             /* whose arrival starts a version */
                        WAGMA_ACTIVATION_GROUP = 0, /* `quorum` members of the group */
                        WAGMA_ACTIVATION_WORLD =
                            1, /* `quorum` ranks: all groups are pinned at once */
};

enum wagma_grouping {                             /* how groups follow from the version */
                      WAGMA_GROUPING_DYNAMIC = 0, /* they change so that updates spread fastest */
                      WAGMA_GROUPING_FIXED = 1,   /* those of version 0 */
                      WAGMA_GROUPING_PAIRS = 2,   /* two ranks each, drawn from (seed, version) */
};

/* wagma_options.quorum: a member drawn from (seed, version, group) starts the version. */
#define WAGMA_QUORUM_MAJORITY (-1)

/* What all ranks of a handle agree on; set defaults with wagma_options_init(). */
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
} wagma_options;

WAGMA_API void wagma_options_init(wagma_options *options);

/* Checks `options` as creation would, and fills in the defaults (group_size, window). */
WAGMA_API int wagma_options_check(wagma_options *options);

WAGMA_API int wagma_abi_version(void);

/* Message of the calling thread's last failed call; valid until its next call. */
WAGMA_API const char *wagma_last_error(void);

/* ---- segment: the memory that the ranks share ------------------------------------------------ */
typedef struct wagma_segment wagma_segment;

/* Makes the segment; `name` ("/x") for other processes to open, NULL for ranks that are threads or
 * forked from here. The caller owns it. */
WAGMA_API int wagma_segment_create(const wagma_options *options, const char *name,
                                   wagma_segment **segment);

/* Maps a named segment; fails with WAGMA_EMISMATCH if its options differ. The caller owns it. */
WAGMA_API int wagma_segment_open(const wagma_options *options, const char *name,
                                 wagma_segment **segment);

/* Removes the name; the memory lives until the last rank has closed it. Harmless when repeated. */
WAGMA_API int wagma_segment_unlink(wagma_segment *segment);

/* Says that `rank` will not join, or could not: who waits for it in wagma_create() gets
 * WAGMA_EPEER. Harmless when repeated. */
WAGMA_API int wagma_segment_fail(wagma_segment *segment, int rank);

/* Unmaps; every handle over it must have been freed. NULL is allowed. */
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
 * rank has joined. `hooks` is copied. The caller owns the handle; the segment must outlive it. */
WAGMA_API int wagma_create(wagma_segment *segment, int rank, const void *initial, double weight,
                           const wagma_hooks *hooks, wagma_handle **handle);

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

/* x (count elements) becomes the result of this rank's next version; `weight` is finite, >= 0. */
WAGMA_API int wagma_allreduce(wagma_handle *handle, void *x, double weight, wagma_outcome *outcome);

/* The same with every rank and no late ones; all ranks have to call it at the same version. */
WAGMA_API int wagma_sync(wagma_handle *handle, void *x, double weight, wagma_outcome *outcome);

/* The two halves of the calls above, for callers that hold a lock while they do not wait.
 * wagma_start publishes x and goes as far as is possible without waiting long (a few microseconds):
 * WAGMA_OK: done, `outcome` is filled; WAGMA_INPROGRESS: call wagma_finish with the same x. */
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
 * shm_limit was reached. WAGMA_EINVAL: quorum is all (use wagma_shared_array()), or the elements
 * have 16 bits and average is 1. */
WAGMA_API int wagma_next_contribution(wagma_handle *handle, void **buffer);

/* The next version that this rank calls; -1 never occurs: the first is 0. */
WAGMA_API int64_t wagma_version(const wagma_handle *handle);

/* This rank's array in the segment (count elements, 64-byte aligned): reduced without a copy when
 * quorum is "all". Belongs to the segment. */
WAGMA_API void *wagma_shared_array(wagma_handle *handle);

/* Counters since creation. */
typedef struct wagma_stats {
    int64_t calls;
    int64_t late;           /* calls whose contribution came too late */
    int64_t unmerged;       /* late calls that found nothing newer */
    int64_t redone_slices;  /* recomputed because their owner was stopped */
    int64_t buffer_waits;   /* calls that waited because shm_limit was reached */
    double waited;          /* seconds */
    double grace;           /* seconds, the value in force (measured when it is auto) */
    uint64_t segment_bytes; /* this rank's committed part of the segment */
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

/* Departs: weight 0 from the next version on, never waited for. Local and does not block. */
WAGMA_API int wagma_close(wagma_handle *handle);

/* Marks this rank as failed: every wait that needs it ends in WAGMA_EPEER at once. */
WAGMA_API void wagma_fail(wagma_handle *handle);

/* Frees the handle; one that was not closed is marked failed. NULL is allowed. */
WAGMA_API void wagma_free(wagma_handle *handle);

/* ---- grouping (pure) ------------------------------------------------------------------------- */

/* Number of groups: ceil(size / group_size). */
WAGMA_API int wagma_group_count(int size, int group_size);

/* Writes the members of `rank`'s group at `version`, ascending, to members[group_size]; returns
 * their number, or WAGMA_EINVAL. `grouping` is one of wagma_grouping; PAIRS draws from `seed`, and
 * its group_size is 2 (1 where size is 1). */
WAGMA_API int wagma_group_of(int rank, int size, int group_size, int grouping, uint64_t seed,
                             int64_t version, int32_t *members);

#ifdef __cplusplus
}
#endif
#endif
