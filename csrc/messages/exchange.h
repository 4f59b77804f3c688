/* The data of one version on one rank: drives the steps of schedule.h over a transport.
 *
 * Every member of a group begins an exchange with its pinned contribution (`input`, `mine`), and
 * ends it with the same `result` and the same `records`, bit for bit, whatever the order in which
 * messages come. Exchanges of different versions are independent of each other: any number of them
 * can be in progress.
 *
 *   begin -> [transport completions, headers] -> complete -> release
 *
 * Before the data of a phase, its sender sends a header by control message: the records of all
 * members that it has in its partial sum. Small data is in the header itself. A header may come
 * before the exchange has begun here; it is kept until then. */
#ifndef WAGMA_MESSAGES_EXCHANGE_H
#define WAGMA_MESSAGES_EXCHANGE_H

#include "base/arena.h"
#include "engine/handle.h"
#include "kernels/reduce.h"
#include "messages/transport.h"
#include "trace/events.h"

/* First byte of a control message that is an exchange's (activation.h has the lower ones). */
enum { EXCHANGE_HEADER = 64 };

/* Contribution of a member, as all members see it. */
typedef struct exchange_record {
    int64_t version; /* of the contribution; -1: the first, given at creation */
    double weight;   /* factor of the data; 0: the data is not read (and not sent) */
    double share;    /* of the divisor: `weight`, unless "carry" counts one that is absent */
    uint64_t flags;  /* EXCHANGE_... */
} exchange_record;

enum { EXCHANGE_EXPLICIT_SYNC = 1 }; /* flags: this member called sync(x) */

struct exchange;      /* of one version */
struct exchange_pool; /* of a handle */

typedef struct exchange_start {
    int64_t version;
    const int32_t *members; /* ranks, ascending; copied */
    int n, index;           /* this rank is members[index] */
    int sync;               /* a sync version: over all ranks, with attachments; headers say so */
    const void *input; /* count elements, stable until the exchange is complete; NULL: weight 0 */
    void *result;      /* count elements; may be `input` */
    const call_parts *coming; /* NULL: the input is written. exchange_see_parts() ends its use */
    call_parts *going;        /* is told what of the result is final; NULL: nobody is */
    int divide;               /* 1: the result is divided by the sum of the shares */
    exchange_record mine;
    const void *attachment; /* sync: `attached` bytes that go with this rank's record; copied */
} exchange_start;

/* End of an exchange: its result is complete, and `input` and `result` belong to the caller again.
 * If the sum of the shares is 0, the result was not written. Records can be read until release. */
typedef struct exchange_end {
    int64_t version;
    struct exchange *exchange;
} exchange_end;

/* Make a pool. `options`: checked. `attached`: bytes of the attachments of sync versions; other
 * versions have none. Partial sums and receives are allocated from `memory`, which has to outlive
 * the pool. NULL: error_set(). */
struct exchange_pool *exchange_pool_create(wagma_transport *transport, const wagma_options *options,
                                           const reduce_kernels *kernels, arena *memory,
                                           size_t attached);
/* Record events from now on in the handle's `trace` (TRACE_PHASE: a step's transfer, TRACE_REDUCE).
 */
void exchange_pool_trace(struct exchange_pool *pool, struct trace *trace);
/* Free the pool and abandon exchanges in progress; the transport must be closed before. */
void exchange_pool_free(struct exchange_pool *pool);

int exchange_begin(struct exchange_pool *pool, const exchange_start *start, struct exchange **out);

/* A control message whose first byte is EXCHANGE_HEADER. *version: of the exchange (activates it),
 * *sync: its sender takes it for a sync version, *explicit_sync: and called sync(x). */
int exchange_receive(struct exchange_pool *pool, int from, const void *message, size_t bytes,
                     int64_t *version, int *sync, int *explicit_sync);

/* Return the element of the input that a member of a group of n reads first. */
size_t exchange_first(const struct exchange_pool *pool, int n, int index);
/* Go on in the next exchange_poll() with what has been written of the input. */
void exchange_see_parts(struct exchange_pool *pool, struct exchange *e);

/* Continue with the messages that the transport has completed. Write the exchanges that ended, at
 * most `most`, into ends[]; return their number, or an error. */
int exchange_poll(struct exchange_pool *pool, exchange_end *ends, int most);

/* Read the records or an attachment of an exchange that has ended. */
const exchange_record *exchange_records(const struct exchange *e, const int32_t **members, int *n);
const void *exchange_attachment(const struct exchange *e, int member);
void exchange_release(struct exchange_pool *pool, struct exchange *e);

/* Return a number that grows with every message and sum, and so shows progress. */
uint64_t exchange_moves(const struct exchange_pool *pool);

/* Return the rank for whose data an exchange in progress waits, for messages; -1: none, or its own
 * input is not written. */
int exchange_missing(const struct exchange *e);
/* Count the headers sent and received, for the drain. */
void exchange_counts(const struct exchange_pool *pool, int64_t *sent, int64_t *received);

#endif
