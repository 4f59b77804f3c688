/* See shm/quorum_all/chunks.h. */
#include "shm/quorum_all/chunks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/round_up.h"
#include "shm/peer_memory.h"
#include "shm/quorum_all/executor.h"

enum { LINE = 64 };

int chunks_create(struct chunks *c, const wagma_segment *s) {
    const size_t size = (size_t)s->size;
    c->placed_version = -1; /* and nobody read it */
    c->owners = malloc(size * sizeof *c->owners);
    c->placed_owners = malloc(size * sizeof *c->placed_owners);
    c->in = malloc(size * sizeof *c->in);
    c->out = malloc(size * sizeof *c->out);
    c->stores = calloc(size, sizeof *c->stores);
    c->readable = calloc(size, sizeof *c->readable);
    c->cookie = peer_memory_cookie();
    c->allowed = chunks_allowed();
    c->way.turn = WAYS_TURNS - 3; /* the first version finds out whether it may be done, and the
                                   * second has the caches warm: the third one tries it */
    return c->owners && c->placed_owners && c->in && c->out && c->stores && c->readable;
}

void chunks_free(struct chunks *c) {
    free(c->owners);
    free(c->placed_owners);
    free(c->in);
    free(c->out);
    free(c->stores);
    free(c->readable);
    free(c->parts);
}

void chunks_clear(struct chunks *c) {
    c->owners_n = 0;
}

void chunks_add_owner(struct chunks *c, int rank) {
    c->owners[c->owners_n++] = rank;
}

void chunks_begin(wagma_handle *h, int outputs) {
    const wagma_segment *s = handle_segment(h);
    struct chunks *c = &quorum_all_of(h)->chunks;
    c->index = -1;
    for (int k = 0; k < c->owners_n; k++)
        if (c->owners[k] == h->rank)
            c->index = k;
    for (int stage = CHUNKS_COPIED; stage <= CHUNKS_COLLECTED; stage++)
        c->reached[stage] = c->others_reached[stage] = 0;
    for (int k = 0; k < quorum_all_of(h)->local.contributors_n; k++)
        c->in[k] = h->inputs[k];
    for (int k = 0; k < outputs; k++)
        c->out[k] = h->outputs[k];
    c->out_n = outputs;
    chunks_decide(h);
    c->bytes = c->direct ? chunks_direct_bytes(s) : s->chunk_bytes;
    c->n = (int64_t)(s->bytes_n / c->bytes + (s->bytes_n % c->bytes != 0));
}

/* ---- shared words ---------------------------------------------------------------------------- */

/* Counts of chunks are stamped with the version and only grow, like those of slices. */
static void publish(wagma_handle *h, enum chunks_stage stage) {
    struct chunks *c = &quorum_all_of(h)->chunks;
    const uint64_t stamp = ((uint64_t)h->call.version + 1) << QUORUM_ALL_SLICE_BITS;
    /* seq_cst: the event of a ring. Releases what this rank wrote into these chunks, and the end of
     * its reads of the others'; pairs with count_of(). */
    atomic_store(&segment_sync(handle_segment(h), h->rank)->chunks[stage],
                 stamp + (uint64_t)++c->reached[stage]);
    c->unrung = 1;
}

/* Return how many chunks owner q has taken through `stage`; INT64_MAX if it is at a later version.
 */
static int64_t count_of(const wagma_handle *h, int q, enum chunks_stage stage) {
    const uint64_t stamp = ((uint64_t)h->call.version + 1) << QUORUM_ALL_SLICE_BITS;
    /* seq_cst: condition of a sleeper; acquires, see publish(). */
    const uint64_t word = atomic_load(&segment_sync(handle_segment(h), q)->chunks[stage]);
    if (word >= stamp + (UINT64_C(1) << QUORUM_ALL_SLICE_BITS))
        return INT64_MAX;
    return word < stamp ? 0 : (int64_t)(word - stamp);
}

/* Rank q reads nothing of `version` any more, or has departed. */
static int has_finished(const wagma_segment *s, int q, int64_t version) {
    /* seq_cst: conditions of a sleeper. Acquires the end of that rank's reads; pairs with
     * PC_FINISH in protocol/quorum_all.c and segment_leave(). */
    return atomic_load(&segment_sync(s, q)->finish) > (uint64_t)version ||
           atomic_load(&segment_presence_of(s, q)->state) == SEGMENT_DEPARTED;
}

/* ---- conditions ------------------------------------------------------------------------------ */

/* All other owners have come so far with `chunks` chunks. */
static int others_reached(wagma_handle *h, enum chunks_stage stage, int64_t chunks) {
    struct chunks *c = &quorum_all_of(h)->chunks;
    if (c->others_reached[stage] >= chunks)
        return 1;
    int64_t least = INT64_MAX;
    for (int k = 0; k < c->owners_n; k++) {
        if (k == c->index)
            continue;
        const int64_t n = count_of(h, c->owners[k], stage);
        least = n < least ? n : least;
    }
    c->others_reached[stage] = least;
    return least >= chunks;
}

/* An owner of the version before that may still read this rank's places, or -1. */
static int still_reading(const wagma_handle *h) {
    const struct chunks *c = &quorum_all_of(h)->chunks;
    for (int k = 0; c->placed_version != h->call.version && k < c->placed_n; k++)
        if (c->placed_owners[k] != h->rank &&
            !has_finished(handle_segment(h), c->placed_owners[k], c->placed_version))
            return c->placed_owners[k];
    return -1;
}

static int can_copy(wagma_handle *h) {
    struct chunks *c = &quorum_all_of(h)->chunks;
    const int64_t chunk = c->reached[CHUNKS_COPIED];
    if (c->direct || chunk == c->n)
        return 0;
    if (chunk >= SEGMENT_CHUNKS)
        return c->reached[CHUNKS_COLLECTED] > chunk - SEGMENT_CHUNKS &&
               others_reached(h, CHUNKS_COLLECTED, chunk - SEGMENT_CHUNKS + 1);
    return still_reading(h) < 0;
}

static int can_reduce(wagma_handle *h) {
    struct chunks *c = &quorum_all_of(h)->chunks;
    const int64_t chunk = c->reached[CHUNKS_REDUCED];
    if (c->direct)
        return chunk < c->n;
    return chunk < c->reached[CHUNKS_COPIED] && others_reached(h, CHUNKS_COPIED, chunk + 1);
}

static int can_collect(wagma_handle *h) {
    struct chunks *c = &quorum_all_of(h)->chunks;
    const int64_t chunk = c->reached[CHUNKS_COLLECTED];
    return chunk < c->reached[CHUNKS_REDUCED] && others_reached(h, CHUNKS_REDUCED, chunk + 1);
}

/* Return 1 if this rank has its result, and no rank reads what it is going to write. */
static int is_over(wagma_handle *h) {
    const struct chunks *c = &quorum_all_of(h)->chunks;
    if (c->index < 0)
        return others_reached(h, CHUNKS_REDUCED, c->n);
    return c->reached[CHUNKS_COLLECTED] == c->n &&
           (!c->direct || others_reached(h, CHUNKS_COLLECTED, c->n));
}

int chunks_can_go_on(wagma_handle *h) {
    if (quorum_all_of(h)->chunks.index < 0)
        return is_over(h);
    return can_collect(h) || can_reduce(h) || can_copy(h) || is_over(h);
}

/* ---- stalls ---------------------------------------------------------------------------------- */

/* Owner q has yet to do something that this rank needs. */
static int is_needed(const wagma_handle *h, int q) {
    const struct chunks *c = &quorum_all_of(h)->chunks;
    const int64_t collected = c->direct ? c->n : c->n - SEGMENT_CHUNKS;
    return count_of(h, q, CHUNKS_REDUCED) < c->n ||
           (c->index >= 0 && count_of(h, q, CHUNKS_COLLECTED) < collected);
}

int chunks_look_for_stall(wagma_handle *h, const char *phase) {
    const struct chunks *c = &quorum_all_of(h)->chunks;
    int32_t *missing = quorum_all_of(h)->local.missing;
    int64_t least = INT64_MAX;
    int32_t n = 0, reader = c->index < 0 || c->direct ? -1 : still_reading(h);
    if (reader >= 0) {
        /* First what has become of it: the dead and the failed do no more. */
        const int is_dead = segment_is_dead(handle_segment(h), reader);
        if (is_dead && !has_finished(handle_segment(h), reader, c->placed_version))
            return handle_lost(h, phase, reader);
        return handle_delayed(h, phase, &reader, 1, 1);
    }
    /* Most owners that are not done only wait, as this rank does. The wait is for the owner that is
     * furthest behind, unless one is dead. */
    for (int k = 0; k < c->owners_n; k++) {
        const int q = c->owners[k];
        const int is_dead = q != h->rank && segment_is_dead(handle_segment(h), q);
        int64_t done = 0;
        if (q == h->rank || !is_needed(h, q))
            continue;
        if (is_dead)
            return handle_lost(h, phase, q);
        for (int stage = CHUNKS_COPIED; stage <= CHUNKS_COLLECTED; stage++)
            done += count_of(h, q, (enum chunks_stage)stage);
        if (done < least)
            n = 0;
        if (done <= least)
            missing[n++] = q;
        least = done < least ? done : least;
    }
    if (n == 0) /* they have come meanwhile */
        return handle_interrupted(h, phase);
    return handle_delayed(h, phase, missing, n, n);
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* The part of owner k of a chunk: its offset in the chunk. `*bytes`: its length. */
static size_t part_of(const wagma_handle *h, int64_t chunk, int k, size_t *bytes) {
    const struct chunks *c = &quorum_all_of(h)->chunks;
    const size_t owners = (size_t)c->owners_n;
    const size_t left = handle_segment(h)->bytes_n - (size_t)chunk * c->bytes;
    const size_t whole = left < c->bytes ? left : c->bytes;
    const size_t part = round_up(whole / owners + (whole % owners != 0), LINE);
    const size_t first = (size_t)k * part < whole ? (size_t)k * part : whole;
    *bytes = whole - first < part ? whole - first : part;
    return first;
}

static unsigned char *in_x(const wagma_handle *h, int64_t chunk) {
    return (unsigned char *)h->call.x + (size_t)chunk * quorum_all_of(h)->chunks.bytes;
}

/* A part of this rank's place, which rank q reads, becomes x. */
static void place_for(wagma_handle *h, int q, unsigned char *place, const unsigned char *x,
                      size_t bytes) {
    struct ways *stores = &quorum_all_of(h)->chunks.stores[q];
    const wagma_dtype dtype = (wagma_dtype)h->options.dtype;
    if (bytes < WAYS_BYTES_MIN) {
        memcpy(place, x, bytes);
        return;
    }
    const int streamed = ways_choose(stores);
    const uint64_t began = clock_now();
    if (streamed)
        h->kernels->streamed_copy(dtype, place, x, 1.0, bytes / reduce_dtype_size(dtype));
    else
        memcpy(place, x, bytes);
    ways_note(stores, streamed, clock_now() - began, bytes, WAYS_OF_STORES);
}

/* The slower way to one of its readers decides for what all of them read. */
static int streams(const struct chunks *c) {
    for (int k = 0; k < c->owners_n; k++)
        if (k != c->index && c->stores[c->owners[k]].second)
            return 1;
    return 0;
}

static void copy(wagma_handle *h) {
    struct chunks *c = &quorum_all_of(h)->chunks;
    const int64_t chunk = c->reached[CHUNKS_COPIED];
    unsigned char *place = segment_chunk(handle_segment(h), h->rank, chunk);
    const uint64_t began = trace_begin(h->trace);
    for (int k = 0; k < c->owners_n && h->call.weight != 0; k++) {
        size_t bytes, first = part_of(h, chunk, k, &bytes);
        if (k != c->index)
            place_for(h, c->owners[k], place + first, in_x(h, chunk) + first, bytes);
    }
    if (chunk == 0) {
        c->placed_version = h->call.version;
        c->placed_n = c->owners_n;
        memcpy(c->placed_owners, c->owners, (size_t)c->owners_n * sizeof *c->owners);
    }
    publish(h, CHUNKS_COPIED);
    trace_end(h->trace, TRACE_WRITE, began, h->call.version, -1, (int)chunk);
}

/* Return rank q's contribution to this rank's part of a chunk, which begins at `first`; NULL:
 * chunks_read() has failed with *status. */
static const unsigned char *input_of(wagma_handle *h, int q, int64_t chunk, size_t first,
                                     size_t bytes, int *status) {
    const struct chunks *c = &quorum_all_of(h)->chunks;
    if (q == h->rank)
        return in_x(h, chunk) + first;
    if (!c->direct)
        return segment_chunk(handle_segment(h), q, chunk) + first;
    int k = 0;
    while (c->owners[k] != q)
        k++;
    unsigned char *part = c->parts + (size_t)k * round_up(bytes, LINE);
    *status = chunks_read(h, k, part, (size_t)chunk * c->bytes + first, bytes);
    return *status == WAGMA_OK ? part : NULL;
}

/* Bytes from `first` on of a chunk. */
static int reduce_piece(wagma_handle *h, int64_t chunk, size_t first, size_t bytes) {
    struct chunks *c = &quorum_all_of(h)->chunks;
    const wagma_dtype dtype = (wagma_dtype)h->options.dtype;
    unsigned char *x = in_x(h, chunk) + first;
    const int inputs = quorum_all_of(h)->local.contributors_n;
    int outputs = 0, status = WAGMA_OK;
    for (int k = 0; k < inputs; k++) {
        h->inputs[k] = c->in[k] ? c->in[k] + (size_t)chunk * c->bytes + first
                                : input_of(h, h->contributors[k], chunk, first, bytes, &status);
        if (!h->inputs[k])
            return status;
    }
    for (; outputs < c->out_n; outputs++)
        h->outputs[outputs] = c->out[outputs] + (size_t)chunk * c->bytes + first;
    h->outputs[outputs++] = x;
    unsigned char *place = segment_chunk(handle_segment(h), h->rank, chunk) + first;
    const size_t count = bytes / reduce_dtype_size(dtype);
    const int places = c->owners_n > 1 && !c->direct, streamed = places && streams(c);
    if (places && !streamed)
        h->outputs[outputs++] = place;
    h->kernels->sum_to_all(dtype, h->outputs, outputs, h->inputs, h->weights, inputs,
                           quorum_all_divisor(h), count);
    if (streamed)
        h->kernels->streamed_copy(dtype, place, x, 1.0, count);
    return WAGMA_OK;
}

static int reduce(wagma_handle *h) {
    const struct chunks *c = &quorum_all_of(h)->chunks;
    const int64_t chunk = c->reached[CHUNKS_REDUCED];
    const uint64_t began = trace_begin(h->trace);
    size_t bytes, first = part_of(h, chunk, c->index, &bytes);
    const size_t end = first + bytes, most = c->direct ? chunks_direct_piece(h) : bytes;
    for (; first < end; first += most) {
        const size_t left = end - first;
        const int status = reduce_piece(h, chunk, first, left < most ? left : most);
        if (status != WAGMA_OK)
            return status;
    }
    publish(h, CHUNKS_REDUCED);
    trace_end(h->trace, TRACE_REDUCE, began, h->call.version, -1, (int)chunk);
    return WAGMA_OK;
}

static int collect(wagma_handle *h) {
    struct chunks *c = &quorum_all_of(h)->chunks;
    const int64_t chunk = c->reached[CHUNKS_COLLECTED];
    const uint64_t began = trace_begin(h->trace);
    for (int k = 0; k < c->owners_n; k++) {
        size_t bytes, first = part_of(h, chunk, k, &bytes);
        if (k == c->index)
            continue;
        unsigned char *to = in_x(h, chunk) + first;
        int status = WAGMA_OK;
        if (c->direct)
            status = chunks_read(h, k, to, (size_t)chunk * c->bytes + first, bytes);
        else
            memcpy(to, segment_chunk(handle_segment(h), c->owners[k], chunk) + first, bytes);
        if (status != WAGMA_OK)
            return status;
    }
    publish(h, CHUNKS_COLLECTED);
    trace_end(h->trace, TRACE_MERGE, began, h->call.version, -1, (int)chunk);
    return WAGMA_OK;
}

int chunks_run(wagma_handle *h, uint32_t most_pauses) {
    struct chunks *c = &quorum_all_of(h)->chunks;
    while (!is_over(h)) {
        int status = handle_check_open(h);
        if (status != WAGMA_OK)
            return status;
        /* The chunk that is farthest goes first, while it is in the cache. */
        if (c->index >= 0 && can_collect(h)) {
            status = collect(h);
        } else if (c->index >= 0 && can_reduce(h)) {
            status = reduce(h);
        } else if (c->index >= 0 && can_copy(h)) {
            copy(h);
        } else {
            enum quorum_all_action action = QUORUM_ALL_WAIT;
            /* Ringing for each chunk would only make ranks without a core of their own take turns
             * more often. */
            if (c->unrung)
                wait_ring(handle_segment(h), h->call.members, h->call.n, h->rank);
            c->unrung = 0;
            status = quorum_all_wait(h, most_pauses, &action);
        }
        if (status != WAGMA_OK)
            return status;
    }
    chunks_note(h);
    return WAGMA_OK;
}
