/* Internals of an exchange, shared by exchange*.c; exchange.h is the interface.
 *
 *   exchange.c          pool, begin, poll, release
 *   exchange_header.c   control messages: records, attachments, small data
 *   exchange_phase.c    the phases of a schedule: messages and sums, chunk by chunk
 *   exchange_sum.c      the sums
 *
 * A step of the schedule has two streams, one that it sends and one that it receives. A stream is a
 * sequence of messages ("chunks"), so that sums and transfers overlap, also across phases. A stream
 * of few bytes is one chunk in the header ("eager"). A few chunks are posted ahead.
 *
 * No function scans all exchanges or all phases: an event marks phases of one exchange as dirty,
 * and exchange_advance() handles those. */
#ifndef WAGMA_MESSAGES_EXCHANGE_STATE_H
#define WAGMA_MESSAGES_EXCHANGE_STATE_H

#include "messages/exchange.h"
#include "messages/exchange_sum.h"
#include "protocol/schedule.h"
#include "trace/events.h"

enum {
    EXCHANGE_AHEAD = 4, /* chunks of a stream that are posted at once */
    EXCHANGE_LINE = 64, /* bytes: of a cache line; memory is aligned to it */
};

typedef struct stream {
    schedule_range range; /* elements */
    size_t chunk;         /* elements of each message but the last */
    uint32_t chunks;      /* 0: nothing to send or receive */
    uint32_t posted;      /* chunks given to the transport */
    uint32_t done;        /* chunks 0..done-1 are over */
    uint32_t over;        /* bit c % EXCHANGE_AHEAD: so is chunk c, done <= c < posted */
    int eager;
    unsigned char *ring; /* where chunks of contributions and partial sums, and all that are eager,
                            are received: min(chunks, EXCHANGE_AHEAD) of them */
} stream;

typedef struct transfer { /* a step of the schedule */
    stream out, in;
    int told;       /* its header was sent */
    int hears_left; /* records that are to come */
    int carries;    /* reduce: there is data: a weight of `hear` is not 0 */
    int copied;     /* copy: eager data is where it belongs */
    int guarded;    /* copy: goes to the memory that step `after` sends from */
    uint64_t began; /* for the timeline */
} transfer;

typedef struct phase_state {
    size_t chunk; /* reduce: of what is kept, as the streams that it receives have them */
    uint32_t chunks, reduced;
    int unheard; /* transfers whose records are not complete */
    int carries; /* reduce: this member's own part of the sum, as in transfer */
    int sums;    /* reduce: so does this member's or any other's */
} phase_state;

/* The exchange of one version. Announced: only headers have come yet. */
struct exchange {
    struct exchange *next;      /* of the same place in pool->table; or in a list of the pool */
    struct exchange *next_work; /* in pool->work */
    struct exchange *next_made; /* in pool->made */
    int queued;                 /* in pool->work */
    int begun;
    exchange_start start; /* its members are exchange.members */
    schedule schedule;
    transfer *transfers; /* [schedule.step] */
    phase_state phase[SCHEDULE_PHASES_MAX];
    uint32_t dirty;   /* bits: phases to look at */
    int has_messages; /* data does, which an MPI fetches when it can; else it is in headers */
    int heard;        /* phases 0..heard-1 have heard all records */
    int copied;  /* of the result it has what is kept in phase copied - 1; >= schedule.reduces */
    int unknown; /* members whose record is not known */
    int opened;  /* all are known; then: */
    int carries; /* a weight is not 0: there is something to copy */
    double divisor;
    int64_t left;           /* records, messages and sums that are to come, and to open */
    unsigned char *partial; /* of element partial_at; the result's memory, or own */
    size_t partial_at;

    /* memory that lives as long as the pool */
    int members_room, steps_room;
    size_t attached; /* of each of these attachments; 0: there are none */
    int32_t *members;
    exchange_record *records;   /* [members_room] */
    unsigned char *attachments; /* [members_room], once it had a sync version */
    const void **inputs;        /* [members_room] scratch */
    double *weights;            /* [members_room] scratch */
    unsigned char *memory;      /* rings, partial sums: of pool->arena */
    size_t memory_room;
    unsigned char *early; /* headers that came before the exchange began here */
    size_t early_bytes, early_room;
};

struct exchange_list { /* first in, first out, by exchange.next */
    struct exchange *first, *last;
};

struct exchange_pool {
    wagma_transport *transport;
    const reduce_kernels *kernels;
    arena *arena;
    struct trace *trace; /* NULL: none */
    wagma_dtype dtype;
    size_t count, attached;
    size_t chunk; /* bytes */
    schedule_limits limits;
    int64_t tags;            /* versions that have tags of their own */
    int phases;              /* tags of a version */
    struct exchange **table; /* by version, modulo table_mask + 1 */
    uint64_t table_mask;
    struct exchange *work, *work_last; /* with dirty phases */
    struct exchange_list ended, free;
    struct exchange *made;  /* all that there are */
    int64_t sent, received; /* headers */
    uint64_t moves;         /* ends of messages, and sums */
};

/* ---- exchange.c ------------------------------------------------------------------------------ */

/* Return the exchange of the version; make it if there is none. NULL: error_set(). */
struct exchange *exchange_announce(struct exchange_pool *pool, int64_t version);
void exchange_mark(struct exchange_pool *pool, struct exchange *e, uint32_t phases);

/* ---- exchange_header.c ----------------------------------------------------------------------- */

/* Return the most bytes of data that a header carries. */
size_t exchange_eager_bytes(void);
/* Return the most bytes of an attachment. */
size_t exchange_attached_most(void);
/* Send the records of a step, and its data if that is eager (NULL: none). */
int exchange_tell(struct exchange_pool *pool, struct exchange *e, int phase, int step,
                  const void *data, size_t bytes);
/* Process the headers that arrived before the exchange began. */
int exchange_replay(struct exchange_pool *pool, struct exchange *e);

/* ---- exchange_phase.c ------------------------------------------------------------------------ */

/* Set up transfers and phases from e->start and e->schedule. */
int exchange_lay_out(struct exchange_pool *pool, struct exchange *e);
/* Check whether the records of a phase, or of all members, are complete. */
void exchange_heard(struct exchange_pool *pool, struct exchange *e, int phase);
/* Note that the transport has completed message `chunk` of a stream. */
void exchange_over(struct exchange_pool *pool, struct exchange *e, int step, int out,
                   uint32_t chunk);
/* Advance the dirty phases; some may stay dirty. WAGMA_OK or an error. */
int exchange_advance(struct exchange_pool *pool, struct exchange *e);

static inline schedule_range stream_chunk(const stream *s, uint32_t c) {
    const size_t begin = s->range.begin + (size_t)c * s->chunk;
    const size_t left = s->range.end - begin;
    return (schedule_range){begin, begin + (left < s->chunk ? left : s->chunk)};
}

static inline int phase_is_reduce(const struct exchange *e, int phase) {
    return phase < e->schedule.reduces;
}

/* Return the form of the data that the phase sends and receives. */
static inline sum_form phase_form(const struct exchange *e, int phase) {
    return phase == 0 || !phase_is_reduce(e, phase) ? SUM_DATA : SUM_PARTIAL;
}

/* The phase of a step. */
static inline int phase_of(const struct exchange *e, int step) {
    int p = 0;
    while (e->schedule.phase[p].end <= step)
        p++;
    return p;
}

static inline size_t length(schedule_range r) {
    return r.end - r.begin;
}

static inline size_t padded(size_t bytes) {
    return bytes + -bytes % EXCHANGE_LINE;
}

static inline size_t size_in(const struct exchange_pool *pool, const struct exchange *e,
                             int phase) {
    return sum_size(pool->dtype, phase_form(e, phase));
}

/* Return the memory from which phase p sends. */
static inline const unsigned char *source(const struct exchange_pool *pool,
                                          const struct exchange *e, int p, size_t element) {
    if (p == 0)
        return e->start.input
                   ? (const unsigned char *)e->start.input + element * size_in(pool, e, p)
                   : NULL;
    if (phase_is_reduce(e, p))
        return e->partial + (element - e->partial_at) * size_in(pool, e, p);
    return (const unsigned char *)e->start.result + element * size_in(pool, e, p);
}

static inline int is_final(const struct exchange *e, int p) {
    return p == e->schedule.reduces - 1;
}

/* Return the memory into which phase p writes its sums. */
static inline unsigned char *destination(const struct exchange_pool *pool, const struct exchange *e,
                                         int p, size_t element) {
    if (is_final(e, p))
        return (unsigned char *)e->start.result + element * sum_size(pool->dtype, SUM_DATA);
    return e->partial + (element - e->partial_at) * sum_size(pool->dtype, SUM_PARTIAL);
}

#endif
