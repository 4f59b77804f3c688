/* The memory that the ranks of one handle share: its layout and its atomics. Each rank has one
 * page-aligned region, which its owner commits and touches first.
 *
 *   header      magic, ABI, the options that all ranks agree on, offsets
 *   region[r]   rank line A   pub, at                               written by r, read by all
 *               rank line B   hold                                  written by r and by pinners
 *               rank line C   bell, state, pid                      written by r and by ringers
 *               rank line D   arrive, finish (quorum "all", graphs) written by r
 *               rank line E   affinity mask of r                    plain, written before READY
 *               cref[b]       one word per contribution buffer      written by pinners
 *               slot[t mod W] (version, round) for groups led by r  written by pinners
 *               arrival[t mod W]  CLOCK_MONOTONIC ns of r's call t  written by r
 *               claim[2], done[2] slices of in-place versions led by r
 *               flat[2]       small payloads, double-buffered by version parity
 *               meta[b]       weight of contribution b              plain, guarded like its data
 *               stats[2]      counters at sync versions             plain, see rank_stats.h
 *               exported      what r has made on its device         written by r, see shm/device/
 *               opened[P]     what r has opened of each rank        written by r
 *               export[k], k < buffers + rounds                     records by which others open it
 *               record[i], i < rounds                               words of a round
 *               array         the rank's empty() array              N bytes, 64-byte aligned;
 *                             none with a graph, or where it is one of the contributions
 *               stage         copy of a private array of a posted call (quorum "all", large N)
 *               chunks        a private array passes through here in a blocking call (the same)
 *               contribution[b], b < buffers                        N bytes each; large ones with
 *                             the array as number 1 at first, see remap.h
 *               result[i], i < rounds                               N bytes each
 *
 * With arrays on devices (memory DEVICE) array, contribution and result take no bytes here, and
 * without them there are no exports.
 *
 * A word that one rank writes never shares a 128-byte line with a hot word that another rank
 * writes. stage, chunks, contribution, record and result are committed on demand
 * (segment_commit_*), the rest at joining, so that a full /dev/shm is an error and never a SIGBUS.
 * The page with the rank lines is committed by the creator, because others look at a rank's state
 * before it has joined. Arrays of N bytes begin at a huge page if N is at least SEGMENT_HUGE_MIN,
 * and lie in huge pages except for a rest of less than SEGMENT_HUGE_MIN: see segment_commit.c. */
#ifndef WAGMA_SHM_SEGMENT_H
#define WAGMA_SHM_SEGMENT_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/cores_mask.h"
#include "device/device.h"
#include "engine/policy.h"
#include "include/wagma.h"
#include "protocol/topology.h"

typedef _Atomic uint64_t segment_atomic;

/* State of a rank; a state only moves down this list. */
enum segment_state {
    SEGMENT_ABSENT = 0,
    SEGMENT_JOINED = 1,   /* its region is committed and its byte locked */
    SEGMENT_READY = 2,    /* its first contribution is published */
    SEGMENT_DEPARTED = 3, /* closed */
    SEGMENT_FAILED = 4,   /* left with an error, or without close */
    SEGMENT_NOSPACE = 5,  /* could not commit its region at joining */
};

/* Round record: words first (line 1), then in[] and weights[]. */
typedef struct segment_round {
    segment_atomic head;  /* version, leader, sync flag */
    segment_atomic refs;  /* life of the round and its result */
    segment_atomic users; /* life of the pinned inputs */
    segment_atomic next;  /* next slice to claim */
    segment_atomic done;  /* bitmap of finished slices */
    segment_atomic free;  /* 1: its owner may use it */
    uint64_t pad[2];
    /* segment_atomic in[P]; double weights[P]; follow */
} segment_round;

typedef struct segment_header {
    segment_atomic ready; /* 1, stored last: the rest of the header is written */
    char magic[8];
    uint64_t bytes;
    uint32_t abi;
    wagma_options options;
} segment_header;

struct remap;        /* remap.h */
struct device_owned; /* shm/device/owned.h */

struct wagma_segment {
    unsigned char *base;         /* mapping */
    struct remap **remap;        /* [size], of the ranks of this process; or NULL */
    struct device_owned **owned; /* [size], likewise, with arrays on devices; or NULL */
    uint64_t bytes;              /* of the mapping (mostly sparse until committed) */
    int fd;                      /* see segment_file() */
    uint64_t device, inode;      /* of the file */
    struct segment_life *lives;  /* [size], of the ranks of this process: segment_life.c */
    _Atomic int uses;            /* its opener and handles over it: the last one unmaps it */
    uint32_t owner;              /* process_serial() where it was made with a name; 0: opened */
    char name[256];              /* empty: none, or removed */
    wagma_segment *next;         /* in the list of open segments (forked.c) */
    int is_inhabited;            /* 1: this process has a handle over it */
    int is_copy;                 /* 1: copy in a forked child whose parent had a handle over it */
    wagma_options options;       /* checked, defaults filled in */
    struct policy policy;        /* what they mean */
    int size;                    /* P */
    struct topology topology;
    int buffers; /* contribution buffers per rank, 0 when quorum is "all"; 2 with a graph
                  */
    int array_is_contribution; /* the rank's array shows one of the buffers, by turns: remap.h */
    int rounds;                /* rounds per rank, 0 when quorum is "all" */
    int slots;                 /* W, 0 when quorum is "all" */
    int slices;                /* slices NS of a result, 1..64 */
    uint64_t slice_count;      /* elements per slice (slice 0, at the end, has the rest) */
    uint64_t bytes_n;          /* count * element size */
    uint64_t item_bytes;       /* of a contribution, or result, in here: bytes_n; 0: on a device */
    uint64_t array_bytes;      /* of a rank's array that is no contribution: bytes_n, or 0 */
    uint64_t words_bytes;      /* of a region, before its array */
    uint64_t region_bytes;     /* distance from a rank's region to the next */
    uint64_t region_offset;    /* of rank 0's region */
    /* offsets within a region */
    uint64_t o_cref, o_slot, o_arrival, o_flat, o_meta, o_stats, o_exports, o_array, o_stage,
        o_chunks, o_contribution, o_record, o_result;
    uint64_t chunk_bytes, chunks_bytes; /* of one chunk; of all places for chunks */
    uint64_t item_step;                 /* from one contribution, or result, to the next */
    uint64_t item_memory;               /* bytes of /dev/shm, or of the device, that one takes */
    uint64_t record_step, flat_bytes;
};

/* Bytes of an array, or of its rest, from which a partly filled huge page is faster than pages of
 * the usual size: to show other memory, the system moves one entry of the upper page table instead
 * of one per page. */
enum { SEGMENT_HUGE_MIN = 1 << 20 };

/* Bytes of an array from which remapping the array is faster than copying it. A test may lower this
 * value first thing. */
extern uint64_t segment_remap_min;

static inline unsigned char *segment_region(const wagma_segment *s, int rank) {
    return s->base + s->region_offset + (uint64_t)rank * s->region_bytes;
}

/* Bytes of the largest payload that flat[] holds; for larger payloads flat[] is a record of 128
 * bytes. Above this size slices are faster than a full sum on every rank, even with two ranks. */
enum { SEGMENT_FLAT_MAX = 2048 };

/* Return the bytes of /dev/shm that an array of `bytes` takes. */
uint64_t segment_array_memory(uint64_t bytes);

/* Places for chunks, per rank: few enough to stay in the cache of a core, and enough that a rank
 * that pauses for a moment does not stop the others at once. */
enum { SEGMENT_CHUNKS = 8 };

/* Rank lines: 128 bytes each, at the start of the region. */
enum { SEGMENT_LINE = 128, SEGMENT_LINES = 5 };
static inline segment_atomic *segment_pub(const wagma_segment *s, int r) {
    return (segment_atomic *)segment_region(s, r);
}
static inline segment_atomic *segment_at(const wagma_segment *s, int r) {
    return segment_pub(s, r) + 1;
}
static inline segment_atomic *segment_hold(const wagma_segment *s, int r) {
    return (segment_atomic *)(segment_region(s, r) + 1 * SEGMENT_LINE);
}
/* Return the word with the quorum that rank r has set (handles whose quorum varies); 0: it has set
 * none. Nothing else in this line is written before r departs. */
static inline segment_atomic *segment_quorum(const wagma_segment *s, int r) {
    return segment_hold(s, r) + 1;
}
static inline segment_atomic *segment_dispute(const wagma_segment *s) {
    return segment_hold(s, 0) + 2;
}
typedef struct segment_presence { /* line C */
    _Atomic uint32_t bell;        /* futex */
    _Atomic uint32_t asleep;      /* not 0: sleeps on bell, or is about to (wait.c) */
    _Atomic uint32_t state;       /* enum segment_state */
    _Atomic uint32_t pid;         /* in the PID namespace of the rank */
    segment_atomic pid_namespace; /* see process.h */
} segment_presence;
static inline segment_presence *segment_presence_of(const wagma_segment *s, int r) {
    return (segment_presence *)(segment_region(s, r) + 2 * SEGMENT_LINE);
}
typedef struct segment_sync_line { /* line D, quorum "all"; the first two with a graph, too */
    segment_atomic arrive;         /* (newest version that r has arrived at) + 1 */
    segment_atomic finish;         /* (newest version that r has finished reading) + 1 */
    segment_atomic sliced;         /* (newest version whose slices r claims no more) + 1 */
    segment_atomic claim[2];       /* led by r: (version, next slice), by version parity */
    segment_atomic done[2];        /* led by r: (version, finished slices) */
    uint64_t pad;
    segment_atomic chunks[3]; /* by r: (version, chunks), of each chunks_stage */
} segment_sync_line;
static inline segment_sync_line *segment_sync(const wagma_segment *s, int r) {
    return (segment_sync_line *)(segment_region(s, r) + 3 * SEGMENT_LINE);
}
/* line E */
static inline cores_mask *segment_cores_of(const wagma_segment *s, int r) {
    return (cores_mask *)(segment_region(s, r) + 4 * SEGMENT_LINE);
}
static inline segment_atomic *segment_cref(const wagma_segment *s, int r, int b) {
    return (segment_atomic *)(segment_region(s, r) + s->o_cref) + b;
}
static inline segment_atomic *segment_slot(const wagma_segment *s, int leader, int i) {
    return (segment_atomic *)(segment_region(s, leader) + s->o_slot) + i;
}
static inline segment_atomic *segment_arrival(const wagma_segment *s, int r, int i) {
    return (segment_atomic *)(segment_region(s, r) + s->o_arrival) + i;
}
static inline unsigned char *segment_flat(const wagma_segment *s, int r, int parity) {
    return segment_region(s, r) + s->o_flat + (uint64_t)parity * s->flat_bytes;
}
static inline double *segment_weight(const wagma_segment *s, int r, int b) {
    return (double *)(segment_region(s, r) + s->o_meta) + b;
}
/* Return the word with what rank r has exported: contributions << 32 | results. */
static inline segment_atomic *segment_exported(const wagma_segment *s, int r) {
    return (segment_atomic *)(segment_region(s, r) + s->o_exports);
}
/* Return the word with what rank r has opened of rank `of`: a value of segment_exported(), or
 * UINT64_MAX from the rank's close on. */
static inline segment_atomic *segment_opened(const wagma_segment *s, int r, int of) {
    return segment_exported(s, r) + 1 + of;
}
/* Return the record of contribution b (k = b), or of the result of round i (k = buffers + i). */
static inline device_record *segment_export(const wagma_segment *s, int r, int k) {
    return (device_record *)(segment_exported(s, r) + 1 + s->size) + k;
}
static inline unsigned char *segment_stage(const wagma_segment *s, int r) {
    return segment_region(s, r) + s->o_stage;
}
/* Return the place of chunk number `chunk` of a large private array of rank r. */
static inline unsigned char *segment_chunk(const wagma_segment *s, int r, int64_t chunk) {
    return segment_region(s, r) + s->o_chunks + (uint64_t)(chunk % SEGMENT_CHUNKS) * s->chunk_bytes;
}
static inline unsigned char *segment_contribution(const wagma_segment *s, int r, int b) {
    return segment_region(s, r) + s->o_contribution + (uint64_t)b * s->item_step;
}
static inline unsigned char *segment_array(const wagma_segment *s, int r) {
    return s->array_is_contribution ? segment_contribution(s, r, 1)
                                    : segment_region(s, r) + s->o_array;
}
/* Rounds are numbered over all ranks: c = owner * rounds + index. */
static inline segment_round *segment_round_of(const wagma_segment *s, uint32_t c) {
    return (segment_round *)(segment_region(s, (int)(c / (uint32_t)s->rounds)) + s->o_record +
                             (uint64_t)(c % (uint32_t)s->rounds) * s->record_step);
}
static inline segment_atomic *segment_round_in(const wagma_segment *s, uint32_t c, int i) {
    return (segment_atomic *)(segment_round_of(s, c) + 1) + i;
}
static inline double *segment_round_weight(const wagma_segment *s, uint32_t c, int i) {
    return (double *)((segment_atomic *)(segment_round_of(s, c) + 1) + s->size) + i;
}
static inline unsigned char *segment_round_result(const wagma_segment *s, uint32_t c) {
    return segment_region(s, (int)(c / (uint32_t)s->rounds)) + s->o_result +
           (uint64_t)(c % (uint32_t)s->rounds) * s->item_step;
}

/* Fills in the sizes and offsets from s->options. WAGMA_EINVAL: too large to be addressed;
 * WAGMA_ENOSPC: shm_limit cannot hold what joining commits. */
int segment_layout(wagma_segment *s);
/* Contributions / rounds per rank within shm_limit, at most `buffers` and `rounds`. */
int segment_most_contributions(const wagma_segment *s);
int segment_most_rounds(const wagma_segment *s);

/* Count the users of the segment: the last release unmaps it. */
void segment_retain(wagma_segment *s);
void segment_release(wagma_segment *s);

/* Return the descriptor; -1 and EBADF: the program has closed it, and its number may now belong to
 * another file. */
int segment_file(const wagma_segment *s);
/* Make an empty file, or find one by its name or address. WAGMA_OK or an error. */
int segment_file_make(wagma_segment *s, const char *name);
int segment_file_find(wagma_segment *s, const char *name);

/* Commits the header and all rank lines; WAGMA_OK or WAGMA_ENOSPC. */
int segment_commit_header(const wagma_segment *s);
/* Commits and touches rank r's region: all but the stage and the contributions and rounds beyond
 * the typical number (3 and 2). WAGMA_OK or WAGMA_ENOSPC, or what
 * segment_life_begin() returns. */
int segment_join(wagma_segment *s, int rank);
/* Commits contribution b / round i of `rank` (its own). Returns 0 if it is committed, -1 if there
 * is no memory or shm_limit is reached. Updates `*committed`, a count of the handle that starts
 * with the number that segment_join() committed. */
int segment_commit_contribution(wagma_segment *s, int rank, int b, int *committed);
int segment_commit_round(wagma_segment *s, int rank, int i, int *committed);
int segment_commit_stage(wagma_segment *s, int rank);     /* may be repeated; 0 or -1 as above */
int segment_commit_chunks(wagma_segment *s, int rank);    /* likewise */
int segment_joined_contributions(const wagma_segment *s); /* committed by join */
int segment_joined_rounds(const wagma_segment *s);
/* Bytes that a rank commits at joining, in here and on its device. */
uint64_t segment_joined_bytes(const wagma_segment *s);
uint64_t segment_joined_shared(const wagma_segment *s); /* in here */

/* Computes the bytes of all arrays of a rank: `first` at creation, `most` without shm_limit. */
void segment_arrays(const wagma_segment *s, uint64_t *first, uint64_t *most);

/* ---- which ranks live: segment_life.c ---- */

int segment_lives_create(wagma_segment *s); /* 0; -1: no memory */
void segment_lives_free(wagma_segment *s);
/* Makes the death of this process, which is `rank`, visible to the others from now on. WAGMA_OK;
 * WAGMA_EINVAL: the rank has joined already; WAGMA_ESYS. */
int segment_life_begin(wagma_segment *s, int rank);
/* Sets the final state of the rank (SEGMENT_DEPARTED, SEGMENT_FAILED, SEGMENT_NOSPACE): no rank
 * waits for it any more. */
void segment_leave(wagma_segment *s, int rank, enum segment_state state);
/* Returns 1 if the rank's process has ended without closing, or its state is failed. About 1 us. */
int segment_is_dead(const wagma_segment *s, int rank);
/* Returns 1 if the rank has joined by this object, in this process. */
int segment_lives_here(const wagma_segment *s, int rank);
/* Returns 1 if the process ID that the rank has published is valid in this process, too. */
int segment_names_process(const wagma_segment *s, int rank);

#endif
