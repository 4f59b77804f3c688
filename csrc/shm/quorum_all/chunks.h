/* Large private arrays, quorum "all": each array passes in chunks through a few places in the
 * segment, which stay in the cache where its readers share it (ways.h). The owners, the members
 * whose array is private, cut each chunk into one part per owner; an owner takes each chunk through
 * three stages:
 *
 *   copied      the other owners' parts lie in its place
 *   reduced     its own part is summed over all members, into its array, its place, and the arrays
 *               of those members that have theirs in the segment
 *   collected   the other owners' parts were copied from their places into its array
 *
 *   may go on when         copied     its place is free: all owners have collected the chunk before
 *                                     in this place (of an earlier version: have finished that)
 *                          reduced    all owners have copied this chunk
 *                          collected  all owners have reduced it
 *
 * So nobody touches another rank's private memory, and no sum is computed twice. Where ranks may
 * read each other's memory and that is faster (ways.h), an owner reads the others' parts where they
 * are: nothing is copied into places, and
 *
 *   may go on when         reduced    at once: nobody writes into that part of the others' arrays
 *                          collected  all owners have reduced it
 *                          the call   all owners have collected all chunks: they read its array.
 *                                     (That none has given up meanwhile, and written into its
 *                                     array, protocol/quorum_all.c asks before the call ends: WELL)
 *
 * The first owner decides between the two, if all owners may read. Members whose
 * array lies in the segment have nothing to do: their array is read and written by the owners. They
 * may be elsewhere (posted calls), and are done when all owners have reduced all chunks.
 *
 * Nobody waits for ever: among the owners that are not done take one with the fewest collected
 * chunks, c, and among those one with the fewest reduced. If it cannot collect c, an owner has not
 * reduced c; that one cannot because an owner has not copied c (unless they read each other's
 * memory); and that one can, as all have collected what was in that place before. Earlier versions
 * need nothing of this one. */
#ifndef WAGMA_SHM_QUORUM_ALL_CHUNKS_H
#define WAGMA_SHM_QUORUM_ALL_CHUNKS_H

#include "engine/handle.h"
#include "shm/quorum_all/record.h"
#include "shm/ways.h"

/* What an owner does with each chunk of its array. */
enum chunks_stage { CHUNKS_COPIED, CHUNKS_REDUCED, CHUNKS_COLLECTED };

enum chunks_way { CHUNKS_PLACES, CHUNKS_DIRECT, CHUNKS_FASTER };
extern enum chunks_way chunks_default; /* of handles that are made from now on; tests change it */

struct chunks {
    size_t bytes;    /* of a chunk of this version */
    int64_t n;       /* of an array */
    int32_t *owners; /* [P] ascending */
    int owners_n;
    int index;                /* of this rank among them; -1: its array lies in the segment */
    const unsigned char **in; /* [P] the contributors' arrays, NULL: private */
    unsigned char **out;      /* [P] the arrays in the segment */
    int out_n;
    int64_t reached[3];        /* by this rank, of each chunks_stage */
    int64_t others_reached[3]; /* at least, by all other owners */
    int unrung;                /* others may wait for what was reached */
    struct ways *stores;       /* [P] into what that rank reads */
    /* reading the owners' memory */
    enum chunks_way allowed;
    int direct;                 /* in this version */
    const unsigned char *tried; /* the array of this rank that was tried last: */
    int tried_readable;         /* others can read it */
    struct ways way;            /* places, or directly: of the versions that this rank decides */
    uint64_t began;             /* ns */
    uint64_t cookie;            /* this rank's */
    signed char *readable; /* [P] 1: that rank's memory may be read, -1: it may not, 0: not tried */
    unsigned char *parts;  /* of a chunk, read from the others; NULL until it is needed */
    /* the newest version whose chunks lie in this rank's places; -1: none */
    int64_t placed_version;
    int32_t *placed_owners; /* [P] who may read them */
    int placed_n;
};

/* 1, or 0: no memory. */
int chunks_create(struct chunks *c, const wagma_segment *s);
void chunks_free(struct chunks *c);

/* Who has a private array in the version that is being gathered. */
void chunks_clear(struct chunks *c);
void chunks_add_owner(struct chunks *c, int rank);

/* After all members were gathered, with h->inputs and `outputs` of h->outputs set. */
void chunks_begin(wagma_handle *h, int outputs);
/* WAGMA_OK: this rank has its result, or WAGMA_INPROGRESS as quorum_all_wait(), or an error. */
int chunks_run(wagma_handle *h, uint32_t most_pauses);
/* 1: chunks_run() has something to do. */
int chunks_can_go_on(wagma_handle *h);
/* The part of handle_heartbeat() in a wait. */
int chunks_look_for_stall(wagma_handle *h, const char *phase);

/* -- chunks_direct.c --------------------------------------------------------------------------- */
/* What WAGMA_CMA lets a new handle do. */
enum chunks_way chunks_allowed(void);
/* What its record says by which this rank's memory is known, wherever its array is. */
void chunks_introduce(const wagma_handle *h, quorum_all_record *record);
/* What it says of a private array. */
void chunks_describe(wagma_handle *h, quorum_all_record *record);
/* All owners are known: whether their memory is read in this version. Tries what was not tried of
 * all that take part. */
void chunks_decide(wagma_handle *h);
/* How long a chunk is then: calls of the system are few, and what they read stays in the cache. */
size_t chunks_direct_bytes(const wagma_segment *s);
/* How much of this rank's part of it is read and summed up at a time: it stays in the cache. */
size_t chunks_direct_piece(const wagma_handle *h);
/* to[0, bytes) = owner k's array from that offset on. WAGMA_OK or an error. */
int chunks_read(wagma_handle *h, int k, unsigned char *to, size_t offset, size_t bytes);
/* This rank has its result: how long it took. */
void chunks_note(wagma_handle *h);

#endif
