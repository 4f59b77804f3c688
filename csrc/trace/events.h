/* Trace of a handle: its events.
 *
 *   flight recorder   always: the last TRACE_RING events, for wagma_dump_state(). An event costs a
 *                     few stores; the clock is not read for it: one without a time of its own gets
 *                     the newest that the handle has seen.
 *   timeline          with WAGMA_TRACE=dir: all events up to WAGMA_TRACE_LIMIT, each with its time,
 *                     written as JSON for Perfetto when the handle is closed, broken or freed, or
 *                     the process exits. Without it every record costs one branch more.
 *
 * Threads: one records, the handle's owner. Where there is a progress thread as well (`shared`)
 * they take turns by a lock. Any may dump. See docs/timeline.md for how the events are read. */
#ifndef WAGMA_TRACE_EVENTS_H
#define WAGMA_TRACE_EVENTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "include/wagma.h"

/* Kinds of events, and what `detail` and `peer` (-1: no rank in particular) say for each. */
enum trace_kind {
    /* spans of the caller: they nest */
    TRACE_COMPUTE, /* between calls; detail: 1: while a posted call was pending */
    TRACE_CALL,    /* a call, from start or post to its end; detail: trace_call */
    TRACE_WAIT,    /* detail: trace_wait, peer: for whom, if it is one rank */
    TRACE_WRITE,   /* x was copied to where the others can read it */
    TRACE_REDUCE,  /* a slice or a chunk was reduced; detail: its number */
    TRACE_MERGE,   /* the result went to x */
    /* spans of exchanges, of several versions at once */
    TRACE_PHASE, /* a step of an exchange; detail: its number, peer: with whom */
    /* moments */
    TRACE_ARRIVAL, /* this rank's contribution is published */
    TRACE_SEND,    /* a control message; detail: its kind, its first byte; peer: to */
    TRACE_RECEIVE, /* the same; peer: from */
    TRACE_PIN, /* the inputs are fixed; detail: number of versions that this rank's contribution is
                  behind, TRACE_WITHOUT: has none */
    TRACE_COMPLETE, /* the version's result is complete here */
    TRACE_ERROR,    /* the handle broke; detail: wagma_status */
    TRACE_KINDS
};

/* Bits of the detail of a TRACE_CALL. */
enum trace_call {
    TRACE_LATE = 1,
    TRACE_UNMERGED = 2,
    TRACE_SYNC = 4,
    TRACE_POSTED = 8,
    TRACE_BROKE = 16, /* it ended in an error */
};

/* Reason of a wait: the phases that errors name. */
enum trace_wait {
    TRACE_FOR_NOTHING,
    TRACE_FOR_CREATION,
    TRACE_FOR_WINDOW,
    TRACE_FOR_QUORUM,
    TRACE_FOR_SYNC,
    TRACE_FOR_GRACE,
    TRACE_FOR_BUFFER,
    TRACE_FOR_ROUND,
    TRACE_FOR_SLICES,
    TRACE_FOR_DATA,      /* over a transport: of the others */
    TRACE_FOR_DRAIN,     /* the same: at the end, until nothing is on its way */
    TRACE_FOR_NEIGHBORS, /* of a graph */
    TRACE_FOR_DEVICE,    /* until what was started there is done */
    TRACE_WAITS
};

enum {
    TRACE_WITHOUT = -1,  /* detail of TRACE_PIN */
    TRACE_RING = 128,    /* events of the flight recorder */
    TRACE_SHORT = 10000, /* ns: shorter waits are for the timeline only: a call may have one */
};

struct trace_event {
    _Atomic uint64_t began;    /* ns, CLOCK_MONOTONIC */
    _Atomic uint64_t duration; /* ns; 0 where a span was not timed */
    _Atomic uint64_t what;     /* version << 8 | kind */
    _Atomic uint64_t how;      /* peer << 32 | detail */
};

/* Return the name of a control message of this kind, its first byte; NULL: it has none. */
typedef const char *trace_message_name(int kind);
/* Write the ranks with which `rank` takes a version that is no sync version into members[]; return
 * their number. */
typedef int trace_group(const void *context, int rank, int64_t version, int32_t *members);

struct trace_timeline; /* trace/timeline.c; NULL: WAGMA_TRACE is not set */

struct trace { /* of a handle */
    struct trace_timeline *timeline;
    trace_message_name *message_name; /* NULL: messages have no names */
    int slow;                         /* shared, or there is a timeline */
    int shared;
    pthread_mutex_t lock;      /* of the ring, if shared */
    _Atomic uint64_t recorded; /* events; number i is at ring[i % TRACE_RING] */
    _Atomic uint64_t newest;   /* ns: the last time that was seen */
    _Atomic int64_t calling;   /* version of the call in progress, -1: none */
    _Atomic uint64_t called;   /* ns: since when */
    _Atomic int32_t waiting;   /* trace_wait of the wait in progress */
    uint64_t left; /* ns: the caller computes since; 0: it is in the engine, or nobody looks */
    int rank, size;
    struct trace_event ring[TRACE_RING];
};

/* Arguments of trace_create(); options and transport are copied, groups are not. */
struct trace_origin {
    int rank;
    const wagma_options *options; /* checked */
    trace_group *group;           /* members of a group; called with `groups`; NULL: unknown */
    const void *groups;
    const char *transport; /* for readers: "shm", "MPICH 5.0.2" */
    int shared;            /* several threads record */
    /* file of the segment that the ranks share; 0: there is none */
    uint64_t device, inode;
};

/* WAGMA_OK, WAGMA_ENOMEM, or WAGMA_EINVAL: WAGMA_TRACE names no folder that can be written to, or
 * WAGMA_TRACE_LIMIT no number. */
int trace_create(const struct trace_origin *origin, struct trace **trace);
/* Register the names of the control messages that the protocol in use sends. */
void trace_name_messages(struct trace *t, trace_message_name *name);
/* Writes the timeline, if there is one and it has grown since; WAGMA_OK or WAGMA_ESYS. */
int trace_write(struct trace *t);
/* Writes what was not written; NULL is allowed. */
void trace_free(struct trace *t);
void trace_label(struct trace *t, const wagma_trace_label *label);
/* Writes the text of wagma_dump_state(). Any thread may call this. */
void trace_dump(struct trace *t, char *text, size_t size);

/* trace_record() of one that is slow. */
void trace_record_slowly(struct trace *t, enum trace_kind kind, uint64_t began, uint64_t duration,
                         int64_t version, int peer, int detail);

/* ---- recording ------------------------------------------------------------------------------- */

static inline int trace_is_on(const struct trace *t) {
    return __builtin_expect(t->timeline != NULL, 0);
}

/* Into the ring, by one thread at a time; the event. */
static inline const struct trace_event *trace_put(struct trace *t, enum trace_kind kind,
                                                  uint64_t began, uint64_t duration,
                                                  int64_t version, int peer, int detail) {
    /* relaxed: only this thread writes it, or the lock orders those that do */
    const uint64_t n = atomic_load_explicit(&t->recorded, memory_order_relaxed);
    struct trace_event *e = &t->ring[n % TRACE_RING];
    /* release, each: a reader that sees one of them sees `recorded` as it was before, and knows
     * that the older event is gone; pairs with trace_read() in trace/events.c */
    atomic_store_explicit(&e->began, began, memory_order_release);
    atomic_store_explicit(&e->duration, duration, memory_order_release);
    atomic_store_explicit(&e->what, (uint64_t)version << 8 | (uint64_t)kind, memory_order_release);
    atomic_store_explicit(&e->how, (uint64_t)(uint32_t)peer << 32 | (uint32_t)detail,
                          memory_order_release);
    /* release: the event is there; pairs with trace_read() */
    atomic_store_explicit(&t->recorded, n + 1, memory_order_release);
    return e;
}

static inline void trace_record(struct trace *t, enum trace_kind kind, uint64_t began,
                                uint64_t duration, int64_t version, int peer, int detail) {
    if (__builtin_expect(t->slow, 0))
        trace_record_slowly(t, kind, began, duration, version, peer, detail);
    else
        (void)trace_put(t, kind, began, duration, version, peer, detail);
}

/* relaxed: a time that is good enough, whoever saw it */
static inline void trace_saw(struct trace *t, uint64_t now) {
    atomic_store_explicit(&t->newest, now, memory_order_relaxed);
}
static inline uint64_t trace_newest(const struct trace *t) {
    return atomic_load_explicit(&t->newest, memory_order_relaxed);
}

/* A span whose beginning and end are known. */
static inline void trace_span(struct trace *t, enum trace_kind kind, uint64_t began, uint64_t ended,
                              int64_t version, int peer, int detail) {
    trace_saw(t, ended);
    trace_record(t, kind, began, ended - began, version, peer, detail);
}

/* A moment whose time is known. */
static inline void trace_at(struct trace *t, enum trace_kind kind, uint64_t time, int64_t version,
                            int peer, int detail) {
    trace_saw(t, time);
    trace_record(t, kind, time, 0, version, peer, detail);
}

/* A moment, now: the clock is read for the timeline only. */
static inline void trace_now(struct trace *t, enum trace_kind kind, int64_t version, int peer,
                             int detail) {
    if (trace_is_on(t))
        trace_saw(t, clock_now());
    trace_record(t, kind, trace_newest(t), 0, version, peer, detail);
}

/* For spans that only a timeline shows: trace_end(t, kind, trace_begin(t), ...). */
static inline uint64_t trace_begin(const struct trace *t) {
    return trace_is_on(t) ? clock_now() : 0;
}
static inline void trace_end(struct trace *t, enum trace_kind kind, uint64_t began, int64_t version,
                             int peer, int detail) {
    if (trace_is_on(t))
        trace_span(t, kind, began, clock_now(), version, peer, detail);
}

/* ---- the caller: api/calls.c ----------------------------------------------------------------- */

/* The caller has entered the engine at `now`, with a new call or to continue a pending one. */
static inline void trace_back(struct trace *t, uint64_t now, int64_t version, int pending) {
    if (trace_is_on(t) && t->left != 0)
        trace_span(t, TRACE_COMPUTE, t->left, now, version, -1, pending);
    trace_saw(t, now);
    t->left = 0;
}
/* The caller leaves the engine to compute. */
static inline void trace_left(struct trace *t) {
    if (trace_is_on(t))
        t->left = clock_now();
}

static inline void trace_called(struct trace *t, uint64_t now, int64_t version) {
    trace_back(t, now, version, 0);
    /* relaxed: words on their own */
    atomic_store_explicit(&t->called, now, memory_order_relaxed);
    atomic_store_explicit(&t->calling, version, memory_order_relaxed);
}
/* The call is over, or the handle broke in it; `detail`: trace_call. Its end is timed for the
 * timeline only. */
static inline void trace_returned(struct trace *t, int detail) {
    const uint64_t began = atomic_load_explicit(&t->called, memory_order_relaxed);
    const int64_t version = atomic_load_explicit(&t->calling, memory_order_relaxed);
    atomic_store_explicit(&t->calling, -1, memory_order_relaxed);
    trace_left(t);
    trace_span(t, TRACE_CALL, began, trace_is_on(t) ? t->left : trace_newest(t), version, -1,
               detail);
}

/* ---- waits ----------------------------------------------------------------------------------- */

/* Note that the caller has to wait, for dumps. Harmless when repeated. */
static inline void trace_waits(struct trace *t, enum trace_wait what) {
    /* relaxed: a word on its own */
    atomic_store_explicit(&t->waiting, (int32_t)what, memory_order_relaxed);
}
/* Record a wait that has ended, unless the caller did not pause (began 0), or hardly. */
static inline void trace_waited(struct trace *t, enum trace_wait what, uint64_t began,
                                uint64_t ended, int64_t version, int peer) {
    /* relaxed: as above */
    atomic_store_explicit(&t->waiting, TRACE_FOR_NOTHING, memory_order_relaxed);
    if (began != 0 && (ended - began >= TRACE_SHORT || trace_is_on(t)))
        trace_span(t, TRACE_WAIT, began, ended, version, peer, (int)what);
}

#endif
