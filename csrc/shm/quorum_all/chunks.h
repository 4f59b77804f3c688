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
 * So no rank touches another rank's private memory, and no sum is computed twice. If ranks may read
 * each other's memory and that is faster (ways.h), an owner reads the other owners' parts directly
 * from their arrays: nothing is copied into places, and
 *
 *   may go on when         reduced    at once: no rank writes into that part of the others' arrays
 *                          collected  all owners have reduced it
 *                          the call   all owners have collected all chunks: they read its array.
 *                                     (protocol/quorum_all.c checks at WELL, before the call ends,
 *                                     that no owner has given up and written into its array)
 *
 * If all owners may read, the first owner chooses between the two ways. Members whose array lies in
 * the segment have nothing to do: the owners read and write their arrays. Such a member may be
 * outside the engine (posted calls), and is done when all owners have reduced all chunks.
 *
 * No rank waits for ever. Among the owners that are not done, take one with the fewest collected
 * chunks, c, and among those one with the fewest reduced chunks. If it cannot collect c, some owner
 * has not reduced c. That owner cannot reduce c only because some owner has not copied c (unless
 * they read each other's memory). And that owner can copy c, because all owners have collected the
 * chunk that was in its place before. Earlier versions do not depend on this one. */
#ifndef WAGMA_SHM_QUORUM_ALL_CHUNKS_H
#define WAGMA_SHM_QUORUM_ALL_CHUNKS_H

#include "engine/handle.h"
#include "shm/quorum_all/record.h"
#include "shm/ways.h"

/* Stages of each chunk of an owner's array. */
enum chunks_stage { CHUNKS_COPIED, CHUNKS_REDUCED, CHUNKS_COLLECTED };

enum chunks_way { CHUNKS_PLACES, CHUNKS_DIRECT, CHUNKS_FASTER };
extern enum chunks_way chunks_default; /* way of handles made from now on; tests change it */

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

/* Clear the list of owners of the version that is being gathered; add a rank to it. */
void chunks_clear(struct chunks *c);
void chunks_add_owner(struct chunks *c, int rank);

/* Begin the chunks of a version when all members were gathered: h->inputs and `outputs` elements of
 * h->outputs are set. */
void chunks_begin(wagma_handle *h, int outputs);
/* Move and reduce chunks. WAGMA_OK: this rank has its result; WAGMA_INPROGRESS as
 * quorum_all_wait(); or an error. */
int chunks_run(wagma_handle *h, uint32_t most_pauses);
/* Return 1 if chunks_run() has something to do. */
int chunks_can_go_on(wagma_handle *h);
/* Look for stalls in a wait for chunks, as handle_heartbeat(). */
int chunks_look_for_stall(wagma_handle *h, const char *phase);

/* -- chunks_direct.c --------------------------------------------------------------------------- */
/* Return the ways that WAGMA_CMA allows a new handle. */
enum chunks_way chunks_allowed(void);
/* Write into the record the fields that identify this rank's memory, wherever its array is. */
void chunks_introduce(const wagma_handle *h, quorum_all_record *record);
/* Write into the record the fields that describe a private array. */
void chunks_describe(wagma_handle *h, quorum_all_record *record);
/* Decide, when all owners are known, whether their memory is read in this version. Try to read the
 * memory of every rank that takes part and was not tried yet. */
void chunks_decide(wagma_handle *h);
/* Return the bytes of a chunk when memory is read directly: large enough for few system calls,
 * small enough to stay in the cache. */
size_t chunks_direct_bytes(const wagma_segment *s);
/* Return the bytes of this rank's part of a chunk that are read and summed at a time, which stay in
 * the cache. */
size_t chunks_direct_piece(const wagma_handle *h);
/* Read `bytes` of owner k's array from `offset` on into `to`. WAGMA_OK or an error. */
int chunks_read(wagma_handle *h, int k, unsigned char *to, size_t offset, size_t bytes);
/* Note how long this rank took to get its result. */
void chunks_note(wagma_handle *h);

#endif
