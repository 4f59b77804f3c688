/* A graph whose ranks share a segment: every call reads the contributions that the neighbours of
 * its version have published, and waits only for these neighbours.
 *
 * A rank copies x to one of its two contribution buffers, by the parity of the version, and
 * publishes it. Two counters per rank:
 *
 *   arrive   versions published: version t's buffer and weight may be read when it exceeds t
 *   finish   versions done: this rank reads nothing of theirs any more when it exceeds t
 *
 *   t: (1) wait until finish > t-2, or departed, of all that read version t-2 of this rank
 *      (2) write buffer t mod 2, arrive = t+1
 *      (3) wait until arrive > t, or departed, of all that send to this rank at t
 *      (4) sum, finish = t+1
 *
 * No read is torn. Version t overwrites version t-2, whose readers are all done (1); version t-2
 * had waited for the readers of the version before it. Data that (4) reads was published (3), and
 * is overwritten by version t+2, whose (1) waits for this rank's finish > t. Each counter is stored
 * after the accesses that it covers, and read with acquire before the accesses that it permits.
 *
 * No rank waits for ever. Among the ranks that have not departed, take one with the least version
 * t. A rank that it waits for in (1) would be at version t-2 or before, which is less than t. After
 * that it waits in (3) for ranks that are at t and have not published it. These ranks compute, or
 * wait in (1), where by the same argument they do not stay. docs/neighbors.md has the full proof.
 */
#include <stdlib.h>

#include "base/error.h"
#include "engine/graph_sum.h"
#include "shm/call_wait.h"

struct graph_executor {
    struct handle_shared shared; /* first */
    struct graph_peers peers;
    /* the call in progress */
    int32_t now[GRAPH_DISTANCES_MAX]; /* peers of its version */
    int each;
    int published;
    int32_t missing[GRAPH_DISTANCES_MAX]; /* ranks that the call waits for */
};

static struct graph_executor *graph_of(const wagma_handle *h) {
    return h->state;
}

/* ---- present ranks --------------------------------------------------------------------------- */

static uint64_t arrived(const wagma_segment *s, int r) {
    /* acquire: the buffer and the weight; pairs with publish() */
    return atomic_load_explicit(&segment_sync(s, r)->arrive, memory_order_acquire);
}

static uint64_t finished(const wagma_segment *s, int r) {
    /* acquire: after r's reads of the buffer; pairs with conclude() */
    return atomic_load_explicit(&segment_sync(s, r)->finish, memory_order_acquire);
}

static int has_departed(const wagma_segment *s, int r) {
    /* acquire: after r's reads, and all that it has published; pairs with segment_leave() */
    return atomic_load_explicit(&segment_presence_of(s, r)->state, memory_order_acquire) ==
           SEGMENT_DEPARTED;
}

/* Those that may still read what the call overwrites, into missing[]; their number. */
static int missing_readers(wagma_handle *h) {
    struct graph_executor *e = h->state;
    const wagma_segment *s = handle_segment(h);
    const int64_t before = h->call.version - s->buffers;
    int32_t then[GRAPH_DISTANCES_MAX];
    int n = 0;
    const int each = before < 0 ? 0 : graph_distances_at(&e->peers.graph, before, then);
    for (int i = 0; i < each; i++) {
        const int r = e->peers.ahead[then[i]];
        if (finished(s, r) <= (uint64_t)before && !has_departed(s, r))
            e->missing[n++] = r;
    }
    return n;
}

/* Those whose contribution has not come, but will. */
static int missing_senders(wagma_handle *h) {
    struct graph_executor *e = h->state;
    const wagma_segment *s = handle_segment(h);
    const uint64_t t = (uint64_t)h->call.version;
    int n = 0;
    for (int i = 0; i < e->each; i++) {
        const int r = e->peers.behind[e->now[i]];
        if (arrived(s, r) <= t && !has_departed(s, r))
            e->missing[n++] = r;
    }
    return n;
}

static int missing(wagma_handle *h) {
    return graph_of(h)->published ? missing_senders(h) : missing_readers(h);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static enum trace_wait awaited(const wagma_handle *h) {
    return graph_of(h)->published ? TRACE_FOR_NEIGHBORS : TRACE_FOR_WINDOW;
}

static int look_for_stall(wagma_handle *h, void *context, int *over) {
    const char *phase = handle_phase(awaited(h));
    (void)context;
    (void)over;
    const int n = missing(h);
    if (n == 0) /* they have come meanwhile */
        return handle_interrupted(h, phase);
    return handle_heartbeat(h, phase, graph_of(h)->missing, n, n);
}

static int go_on(wagma_handle *h, void *context, int *over) {
    (void)context;
    *over = missing(h) == 0;
    return WAGMA_OK;
}

/* Wait until no neighbour is missing, as call_wait(). */
static int wait_for_missing(wagma_handle *h, uint32_t most_pauses) {
    static const struct call_wait wait = {.go_on = go_on, .look = look_for_stall};
    return call_wait(h, awaited(h), most_pauses, &wait, NULL);
}

/* ---- a call ---------------------------------------------------------------------------------- */

static void ring(wagma_handle *h, const int32_t *peers) {
    const struct graph_executor *e = h->state;
    int32_t ranks[GRAPH_DISTANCES_MAX];
    for (int i = 0; i < e->each; i++)
        ranks[i] = peers[e->now[i]];
    wait_ring(handle_segment(h), ranks, e->each, h->rank);
}

static void publish(wagma_handle *h) {
    struct graph_executor *e = h->state;
    wagma_segment *s = handle_segment(h);
    const int64_t t = h->call.version;
    const int buffer = (int)(t % s->buffers);
    *segment_weight(s, h->rank, buffer) = h->call.weight;
    if (e->each > 0 && h->call.weight != 0) { /* or no rank reads it */
        const uint64_t began = trace_begin(h->trace);
        h->kernels->divided_copy((wagma_dtype)s->options.dtype,
                                 segment_contribution(s, h->rank, buffer), h->call.x, 1,
                                 (size_t)s->options.count);
        trace_end(h->trace, TRACE_WRITE, began, t, -1, 0);
    }
    /* seq_cst: the event of a ring; release is included, pairs with arrived() */
    atomic_store(&segment_sync(s, h->rank)->arrive, (uint64_t)t + 1);
    e->published = 1;
    trace_now(h->trace, TRACE_ARRIVAL, t, -1, 0);
    ring(h, e->peers.ahead);
}

/* All expected neighbours have arrived. */
static void conclude(wagma_handle *h) {
    const struct graph_executor *e = h->state;
    const wagma_segment *s = handle_segment(h);
    const uint64_t t = (uint64_t)h->call.version;
    const int buffer = (int)(t % (uint64_t)s->buffers);
    struct graph_part parts[GRAPH_DISTANCES_MAX + 1];
    int n = 0;
    parts[n++] = (struct graph_part){h->rank, h->call.weight, h->call.x};
    for (int i = 0; i < e->each; i++) {
        const int r = e->peers.behind[e->now[i]];
        if (arrived(s, r) > t) /* otherwise it departed before */
            parts[n++] = (struct graph_part){r, *segment_weight(s, r, buffer),
                                             segment_contribution(s, r, buffer)};
    }
    graph_sum(h, parts, n, e->each);
    trace_now(h->trace, TRACE_COMPLETE, h->call.version, -1, 0);
    /* seq_cst: the event of a ring; release is included, pairs with finished() */
    atomic_store(&segment_sync(s, h->rank)->finish, t + 1);
    ring(h, e->peers.behind);
}

/* Goes on until the call is over (WAGMA_OK), an error, or WAGMA_INPROGRESS as wait_for_missing().
 */
static int advance(wagma_handle *h, uint32_t most_pauses) {
    struct graph_executor *e = h->state;
    for (;;) {
        if (missing(h) > 0) {
            const int status = wait_for_missing(h, most_pauses);
            if (status != WAGMA_OK)
                return status;
        }
        if (e->published)
            break;
        publish(h);
    }
    conclude(h);
    return WAGMA_OK;
}

static void begin(wagma_handle *h) {
    struct graph_executor *e = h->state;
    e->each = graph_distances_at(&e->peers.graph, h->call.version, e->now);
    e->published = 0;
}

static int start(wagma_handle *h) {
    begin(h);
    return advance(h, WAIT_START_PAUSES);
}

static int post(wagma_handle *h) {
    begin(h);
    if (missing(h) == 0)
        publish(h);
    return WAGMA_INPROGRESS;
}

static int poll(wagma_handle *h) {
    return advance(h, WAIT_NO_PAUSE);
}

static int finish(wagma_handle *h) {
    return advance(h, WAIT_ANY_PAUSES);
}

/* ---- the interface --------------------------------------------------------------------------- */

static uint64_t bytes(const wagma_handle *h) {
    return segment_joined_bytes(handle_segment(h));
}

static void destroy(wagma_handle *h) {
    if (h->state)
        handle_segment_free(h);
}

static int make(wagma_handle *h, const struct executor_request *request) {
    graph_peers_init(&graph_of(h)->peers, request->options, h->rank);
    return WAGMA_OK;
}

static int create(wagma_handle *h, const struct executor_request *request) {
    return handle_segment_create(h, request, sizeof(struct graph_executor), make);
}

static const char *fits(const struct executor_request *request) {
    return policy_of(request->options).graph ? handle_segment_fits(request) : "it needs a graph";
}

const struct executor shm_graph_executor = {
    .name = "shm/graph",
    .fits = fits,
    .create = create,
    .calls = {HANDLE_SEGMENT_CALLS, .start = start, .post = post, .poll = poll, .finish = finish,
              .bytes = bytes, .close = handle_segment_close, .free = destroy},
};
