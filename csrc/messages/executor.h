/* State of a handle over a transport. One of two cores runs over the transport: groups, where
 * activation.c decides which versions run and exchange.c moves the data, or a graph. A core
 * receives the transport's messages, and a call takes its result from the core.
 *
 *   executor.c         creation, and functions shared by both cores
 *   groups/executor.c  groups: creation, the executors, beginning and end of a call
 *   drive.c            turns messages into events, and performs actions
 *   data.c             memory: contributions, results, versions and their pinned inputs
 *   groups/outcome.c   outcome of a call
 *   graph/executor.c   all of this for a graph
 *   wait.c             waits: pauses, stalls, timeouts
 *   missing.c          long waits: the ranks that are missing
 *   end.c              creation, close and failure, in which all ranks take part
 *
 * Everything below but its atomics is touched under progress.mutex alone, by the owner in a call or
 * by the progress thread; both call messages_drive(). */
#ifndef WAGMA_MESSAGES_EXECUTOR_H
#define WAGMA_MESSAGES_EXECUTOR_H

#include "base/kept.h"
#include "engine/grace.h"
#include "engine/handle.h"
#include "messages/exchange.h"
#include "messages/progress.h"
#include "messages/transport.h"
#include "protocol/activation.h"

/* N bytes of data: a contribution or a result. References are counted, because versions that have
 * pinned a contribution read it while the rank has newer ones. */
typedef struct messages_block {
    struct messages_block *next;      /* in `free` */
    struct messages_block *next_made; /* in `made` */
    unsigned char *data;              /* of the arena */
    int references;
} messages_block;

/* A version, from its pin until no call can ask for its result any more. */
typedef struct messages_version {
    struct messages_version *next;
    struct messages_version *next_untold; /* complete, and activation.c does not know yet */
    int64_t version;
    int sync, complete;
    int shown;                 /* its result was given to the caller, until the next call */
    struct exchange *exchange; /* until it is complete; NULL: this rank is alone */
    messages_block *input;     /* until then; NULL: x, or nothing */
    messages_block *result;    /* NULL: x of the call */
    int n;                     /* complete: who contributed what */
    int room;
    int32_t *members;
    exchange_record *records;
} messages_version;

typedef struct messages_loss { /* what is known about a rank */
    enum handle_loss how;
    enum activation_cause cause; /* HANDLE_FAILED: what it says that was first */
    int first;                   /* and of which rank */
} messages_loss;

typedef struct messages_word { /* what a rank has said of itself; ns, 0: never */
    uint64_t heard;            /* its last message */
    uint64_t sign;             /* call.delay when that was seen, where all ranks wait together */
    uint64_t asked;            /* the first question since then, or the last that it has answered */
    uint64_t told;             /* its last answer, of which the rest is */
    int calls;                 /* it was in a call */
    int lacks; /* its exchange of the version asked for lacks data of that rank; -1 */
} messages_word;

struct messages_executor;
struct messages_graph; /* messages/graph/executor.c */

/* Functions of a core. Those that return int return WAGMA_OK or an error, unless stated otherwise.
 */
struct messages_core {
    int (*create)(wagma_handle *h, const void *initial, double weight); /* then the ranks meet */
    int (*begin)(wagma_handle *h);                                      /* a call */
    /* After a drive of a call that `moved` something or not: ends it if it is complete, and sets
     * *over; waits otherwise, as messages_pause(). */
    int (*advance)(wagma_handle *h, enum call_mode mode, int moved, int *over);
    int (*drive)(wagma_handle *h); /* see messages_drive() */
    int (*receive)(wagma_handle *h, int from, const void *message, size_t bytes);
    int (*see_dead)(wagma_handle *h, int rank); /* after losses[rank]; NULL: that is enough */
    int (*depart)(wagma_handle *h);             /* close() begins */
    int (*has_departed)(const struct messages_executor *e, int rank);
    int (*is_idle)(const struct messages_executor *e); /* all have departed, nothing is in flight */
    int (*is_busy)(const struct messages_executor *e); /* something is; before create(), too */
    uint64_t (*deadline)(const struct messages_executor *e); /* ns: of the next drive; NULL: none */
};

struct messages_executor {
    const struct messages_core *core;
    struct progress progress;
    wagma_transport *transport;   /* NULL: closed */
    const char *name;             /* its */
    int crowded;                  /* its ranks may have to share cores */
    wagma_options *options;       /* the handle's */
    struct messages_graph *graph; /* of a graph; the next two are of groups */
    struct activation *activation;
    struct exchange_pool *pool;
    int64_t sent, received; /* control messages for activation.c */

    size_t bytes_n; /* of the handle's array */

    /* memory */
    arena arena; /* of blocks and exchanges */
    messages_block *free, *made;
    messages_block *own; /* wagma_shared_array(); NULL: not asked for yet */
    messages_version *versions, *spare, *untold;
    int32_t *ranks;        /* [P] scratch */
    rank_record *records;  /* [P] rank_stats.h: as they came with the last sync version */
    const void **results;  /* [window + 1] ordered: of the last call */
    messages_loss *losses; /* [P] */
    messages_word *words;  /* [P] */
    int64_t asked;         /* version of the question that is being answered */

    /* contributions */
    int64_t newest_version; /* of the one that a version pins; -1: the first */
    double newest_weight;
    messages_block *newest;   /* "stale": its data */
    messages_block *reserved; /* handed out by next_contribution() */
    messages_block *carried;  /* "carry": x of late calls; NULL: nothing is carried */
    double carried_weight;

    /* the call in progress */
    int arrived;
    int lends;               /* the contribution is (or was) the reserved block */
    int out_of_place;        /* and x is, too */
    messages_block *lent;    /* what next_contribution() handed out, contributed now */
    messages_block *written; /* what it contributes, if that is not x */
    messages_block *shown;   /* result of a late call out of place, until the next call */

    /* h->version, if it is known to be pinned without this rank; otherwise another number. Written
     * with the mutex, read by the owner between calls without it */
    _Atomic int64_t pinned;

    /* the wait in progress: of a call, or for all ranks at the beginning and at the end */
    int waits_for;               /* trace_wait */
    uint64_t waiting;            /* ns: since when; 0: it is not */
    uint64_t looked;             /* ns: the last time that something could have moved */
    uint64_t moved;              /* ns: the last time that something did */
    struct progress_turns turns; /* of the core */
    uint64_t heartbeat;          /* ns: the next one */
    double inquired;             /* seconds of this call after which it asked last; 0: never */
    uint64_t together;           /* call.delay when the part of a sum began; 0: none has */
    uint64_t questions;          /* the same: when the others were asked last, while all wait */
    uint64_t signs;              /* ns: when signs of life were looked for */
    int adding;                  /* it has begun its part in a sum */
    uint64_t lost_since; /* ns: since when a rank that it needs is known to be lost; 0: none is */

    /* grace "auto" */
    struct grace_samples spreads, computes;
    _Atomic uint64_t grace; /* ns, by them; read by any thread */
    uint64_t returned;      /* ns: when the last call ended; 0: none has */
    uint64_t epoch; /* ns: when the last sync version was complete, on all ranks about then */

    atomic_int failing; /* a thread has said that this rank fails: the owner's wait ends */
    int abandoned;      /* with messages under way, whose memory may still be used */
    struct kept kept;
    messages_loss failure; /* of this rank: cause and first */
    int told_failure;      /* to the others */
    int64_t mismatch;      /* version at which ranks disagree about sync(x); -1: none */
    int disputer;          /* another rank that found such a version, `mismatch`; -1: none has */
    int broken; /* an error that no call met (the progress thread, the transport's end), for
                   the next one */
    char error[512];
};

static inline struct messages_executor *messages_of(const wagma_handle *h) {
    return h->state;
}

/* ---- executor.c ------------------------------------------------------------------------------ */

/* For executor.fits: NULL where there is a transport, or why it cannot be. */
const char *messages_fits(const struct executor_request *request);
/* For executor.create, with the core that runs over the transport. */
int messages_create(wagma_handle *h, const struct executor_request *request,
                    const struct messages_core *core);

/* Return WAGMA_OK, or the error because of which the transport may not be used any more. Call this
 * after each pause, during which another thread or a hook may have ended the handle. */
int messages_check(const struct messages_executor *e);
/* Members of struct executor_calls. */
void messages_enter(wagma_handle *h);
void messages_leave(wagma_handle *h);
int messages_start(wagma_handle *h);
int messages_post(wagma_handle *h);
int messages_poll(wagma_handle *h);
int messages_finish(wagma_handle *h);
uint64_t messages_bytes(const wagma_handle *h);
uint64_t messages_wakeups(const wagma_handle *h);
rank_record *messages_record(wagma_handle *h, int rank, uint64_t syncs);
void messages_look_between(wagma_handle *h);
enum handle_loss messages_lost(wagma_handle *h, int rank);
void messages_destroy(wagma_handle *h);
#define MESSAGES_CALLS                                                                             \
    .enter = messages_enter, .leave = messages_leave, .start = messages_start,                     \
    .post = messages_post, .poll = messages_poll, .finish = messages_finish,                       \
    .bytes = messages_bytes, .wakeups = messages_wakeups, .record = messages_record,               \
    .look = messages_look_between, .lost = messages_lost, .presence = messages_presence,           \
    .close = messages_close, .fail = messages_fail, .free = messages_destroy

/* ---- drive.c --------------------------------------------------------------------------------- */

/* Process what the transport has received. 1: something moved; 0: nothing did; or an error. */
int messages_drive(wagma_handle *h);
/* Drive until no message is left, for callers that do not wait: a post, a look between calls. */
int messages_drive_all(wagma_handle *h);
/* Pass an event of this rank to the core, and perform the actions that follow. WAGMA_OK or an
 * error. */
int messages_tell(wagma_handle *h, enum activation_event_kind kind);
/* Pass RETURN to the core: the rank calls `next` next. */
int messages_tell_return(wagma_handle *h, int64_t next);
/* Send a control message, and count it for the drain at the end. */
int messages_send(wagma_handle *h, int to, const struct activation_message *m);
/* Pass a received control message to the core. 1: there was one; 0: none; or an error. */
int messages_take_message(wagma_handle *h);
/* Note a FAILED of another rank. */
void messages_note_failure(struct messages_executor *e, int from,
                           const struct activation_message *m);
/* Set and return the error of an unknown message. */
int messages_strange(int from, size_t bytes);
/* Update grace "auto" from the measurements so far. */
void messages_renew_grace(struct messages_executor *e);
/* Members of struct messages_core, of groups. */
int messages_drive_groups(wagma_handle *h);
int messages_receive_for_groups(wagma_handle *h, int from, const void *message, size_t bytes);
int messages_see_dead_in_groups(wagma_handle *h, int rank);
/* Look for dead ranks: note them, and tell the core. */
int messages_look_for_dead(wagma_handle *h);
/* Tell every other rank, once, that this one has failed. */
void messages_tell_failure(wagma_handle *h);
/* Return 1 if a version or a posted call is in flight. */
int messages_is_busy(const wagma_handle *h);
progress_poll messages_poll_progress;

/* ---- data.c ---------------------------------------------------------------------------------- */

/* Make a block with one reference. NULL: error_set(). */
messages_block *messages_block_new(wagma_handle *h);
void messages_block_drop(struct messages_executor *e, messages_block *b); /* NULL is allowed */
/* Store b in *place, which takes over the caller's reference. */
void messages_block_put(struct messages_executor *e, messages_block **place, messages_block *b);
static inline messages_block *messages_block_hold(messages_block *b) {
    b->references++;
    return b;
}
/* Copy the call's contribution to a new block; NULL: error_set(). */
messages_block *messages_copy_of_call(wagma_handle *h);
/* Write the call's contribution, if it is not x itself. WAGMA_OK or WAGMA_ENOMEM. */
int messages_contribute(wagma_handle *h);
/* End the views of results that the last call returned. */
void messages_end_views(struct messages_executor *e);
/* Fill in this rank's pinned input in `start`; the caller fills in scope and version. WAGMA_OK or
 * WAGMA_ENOMEM. */
int messages_pin_input(wagma_handle *h, messages_version *v, int64_t input, exchange_start *start);
messages_version *messages_version_find(const struct messages_executor *e, int64_t version);
/* Make the state of a version. NULL: error_set(). */
messages_version *messages_version_new(wagma_handle *h, int64_t version, int members);
/* Release the versions that no call can ask for any more. */
void messages_sweep(struct messages_executor *e);
/* Free the memory that messages read and write; free the rest. */
void messages_free_data(struct messages_executor *e);
void messages_free_versions(struct messages_executor *e);

/* ---- groups/outcome.c ------------------------------------------------------------------------ */

/* End the call: fill in its outcome and x. WAGMA_OK or an error. */
int messages_outcome(wagma_handle *h, const struct activation_call *answer);

/* ---- wait.c ---------------------------------------------------------------------------------- */

/* Pause in a call that is not over, after a drive that `moved` something or not. WAGMA_OK: drive
 * again; WAGMA_INPROGRESS: return to the caller; or an error. */
int messages_pause(wagma_handle *h, enum call_mode mode, const struct activation_call *answer,
                   int moved);
/* Pause a call that waits for `what`, as messages_pause(). `look` looks for stalls about every
 * 50 ms: WAGMA_OK, an error, or WAGMA_INPROGRESS as handle_delayed(). */
typedef int messages_look(wagma_handle *h, const void *context, uint64_t now);
int messages_pause_for(wagma_handle *h, enum call_mode mode, enum trace_wait what,
                       messages_look *look, const void *context, int moved);
/* For a messages_look: the call needs all of e->ranks[0..n), n > 0. */
int messages_look_at(wagma_handle *h, enum trace_wait what, int n, uint64_t now);
/* Pause in what all ranks do together, as messages_pause(). */
int messages_pause_together(wagma_handle *h, enum trace_wait what, int moved);
/* End the wait, if there was one. */
void messages_end_wait(wagma_handle *h);

/* ---- missing.c ------------------------------------------------------------------------------- */

/* Ask all ranks for their versions, if it is time. WAGMA_OK or an error. */
int messages_inquire(wagma_handle *h, uint64_t now);
/* Note a TELL of another rank. */
void messages_note_word(struct messages_executor *e, int from, const struct activation_message *m);
/* A member of struct executor_calls. */
enum handle_presence messages_presence(wagma_handle *h, int rank, int *has_called);
/* Write the ranks for which a call of groups waits into ranks[P]; return their number, and in
 * *needed how many of them have to arrive. */
int messages_missing_in_groups(wagma_handle *h, const struct activation_call *answer,
                               int32_t *ranks, int *needed);
/* Replace ranks[0..n) by the ranks for which they wait themselves, at the end of the chain; return
 * their number. */
int messages_follow(wagma_handle *h, int32_t *ranks, int n);
/* Write the ranks for which all ranks wait together into ranks[0..*n), and ask them; if the time is
 * over, only the silent ones. WAGMA_OK or an error. */
int messages_missing_together(wagma_handle *h, enum trace_wait what, int32_t *ranks, uint64_t now,
                              int *n);

/* ---- end.c ----------------------------------------------------------------------------------- */

/* Meet all ranks: return when every rank has arrived, with the same options. */
int messages_meet(wagma_handle *h);
int messages_close(wagma_handle *h);
void messages_fail(wagma_handle *h);
/* Close the transport, which is about to end: wagma_transport.ending. */
void messages_transport_ends(void *handle);

#endif
