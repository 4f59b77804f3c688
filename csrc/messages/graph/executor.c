/* A graph over a transport: the protocol of shm/graph/executor.c, with messages for its counters.
 *
 *   ARRIVED t     to those that a rank sends to, when it publishes version t; the contribution is
 *                 in the message, or in a data message after it
 *   FINISHED t    back, when the call t is over; not in a ring, where ARRIVED t+1 goes the same way
 *                 and is sent later, so that it implies FINISHED t
 *   DEPARTED t    to all: nothing of version t or later comes from the sender
 *
 * The contribution is copied when it is published, so that a call ends when the contributions of
 * its neighbours have arrived: the copy lives until it is sent. Before version t a rank waits for
 * FINISHED t-2 of all ranks to which it had sent version t-2. So at most two contributions of a
 * sender are in flight to a rank, which keeps them by the parity of their version. A receive is
 * posted when ARRIVED is received, whatever the rank does, because ARRIVED is sent together with
 * the data. Between two ranks ARRIVED and data each arrive in order, so that receives and sends
 * match without tags.
 *
 * A rank that has departed continues to receive messages until all have departed (messages/end.c).
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/graph_sum.h"
#include "messages/executor.h"
#include "messages/graph/message.h"

enum { ENDS_AT_ONCE = 8 };

struct arrival {     /* of one rank, at one parity */
    int64_t version; /* -1: none */
    double weight;
    messages_block *block; /* NULL: weight is 0, or there are no elements */
    int under_way;
};

struct messages_graph {
    struct graph_peers peers;
    struct arrival arrivals[GRAPH_DISTANCES_MAX][2];
    int64_t finished[GRAPH_DISTANCES_MAX]; /* versions, of those that it sends to */
    int sends, receives;                   /* of data, under way */
    int departed_n;
    /* the call in progress */
    int32_t now[GRAPH_DISTANCES_MAX]; /* peers of its version */
    int each;
    int published;
    uint8_t departed[]; /* [P] */
};

/* ---- present ranks --------------------------------------------------------------------------- */

static int is_ring(const struct messages_graph *g) {
    return g->peers.graph.graph == WAGMA_GRAPH_RING;
}

/* The version's contribution of peer k, NULL: it has not come. */
static struct arrival *arrival_of(struct messages_graph *g, int k, int64_t version) {
    struct arrival *a = &g->arrivals[k][version & 1];
    return a->version == version && !a->under_way ? a : NULL;
}

static int missing_readers(wagma_handle *h, int32_t *ranks) {
    const struct messages_graph *g = messages_of(h)->graph;
    const int64_t before = h->call.version - 2;
    int32_t then[GRAPH_DISTANCES_MAX];
    int n = 0;
    const int each =
        before < 0 || is_ring(g) ? 0 : graph_distances_at(&g->peers.graph, before, then);
    for (int i = 0; i < each; i++)
        if (g->finished[then[i]] <= before && !g->departed[g->peers.ahead[then[i]]])
            ranks[n++] = g->peers.ahead[then[i]];
    return n;
}

static int missing_senders(wagma_handle *h, int32_t *ranks) {
    struct messages_graph *g = messages_of(h)->graph;
    int n = 0;
    for (int i = 0; i < g->each; i++) {
        const int k = g->now[i], r = g->peers.behind[k];
        const struct arrival *a = &g->arrivals[k][h->call.version & 1];
        const int comes = a->version == h->call.version || !g->departed[r];
        if (comes && !arrival_of(g, k, h->call.version))
            ranks[n++] = r;
    }
    return n;
}

/* Write the ranks that the call waits for into ranks[GRAPH_DISTANCES_MAX]; return their number. */
static int missing(wagma_handle *h, int32_t *ranks) {
    return messages_of(h)->graph->published ? missing_senders(h, ranks) : missing_readers(h, ranks);
}

/* ---- publishing ------------------------------------------------------------------------------ */

static int send_data(wagma_handle *h, int to, messages_block *b) {
    struct messages_executor *e = h->state;
    const transport_completion end = {.context = messages_block_hold(b), .cookie = 1};
    e->graph->sends++;
    return e->transport->calls->send(e->transport, to, 0, b->data, e->bytes_n, end);
}

/* To peer k; `b` holds a large contribution. */
static int send_to(wagma_handle *h, int k, messages_block *b) {
    struct messages_executor *e = h->state;
    const int to = e->graph->peers.ahead[k];
    const size_t inside = b || h->call.weight == 0 ? 0 : e->bytes_n;
    struct {
        struct graph_arrived head;
        unsigned char data[GRAPH_INLINE];
    } m = {.head = {.kind = GRAPH_ARRIVED, .version = h->call.version, .weight = h->call.weight}};
    if (inside)
        memcpy(m.data, h->call.x, inside);
    const int status =
        e->transport->calls->send_control(e->transport, to, &m, sizeof m.head + inside);
    e->sent++;
    trace_now(h->trace, TRACE_SEND, h->call.version, to, GRAPH_ARRIVED);
    return status == WAGMA_OK && b ? send_data(h, to, b) : status;
}

static int publish(wagma_handle *h) {
    struct messages_executor *e = h->state;
    struct messages_graph *g = e->graph;
    messages_block *b = NULL;
    int status = WAGMA_OK;
    if (g->each > 0 && h->call.weight != 0 && e->bytes_n > GRAPH_INLINE) {
        const uint64_t began = trace_begin(h->trace);
        if (!(b = messages_copy_of_call(h)))
            return WAGMA_ENOMEM;
        trace_end(h->trace, TRACE_WRITE, began, h->call.version, -1, 0);
    }
    for (int i = 0; i < g->each && status == WAGMA_OK; i++)
        if (!g->departed[g->peers.ahead[g->now[i]]])
            status = send_to(h, g->now[i], b);
    messages_block_drop(e, b);
    g->published = 1;
    trace_now(h->trace, TRACE_ARRIVAL, h->call.version, -1, 0);
    return status;
}

/* ---- what comes in --------------------------------------------------------------------------- */

/* The peer with rank r among peers[], -1: there is none. */
static int peer(const struct messages_graph *g, const int32_t *peers, int r) {
    for (int k = 0; k < g->peers.n; k++)
        if (peers[k] == r)
            return k;
    return -1;
}

static int receive_arrived(wagma_handle *h, int from, const void *message, size_t bytes) {
    struct messages_executor *e = h->state;
    struct messages_graph *g = e->graph;
    const int k = peer(g, g->peers.behind, from);
    struct graph_arrived head;
    if (k < 0 || bytes < sizeof head)
        return messages_strange(from, bytes);
    memcpy(&head, message, sizeof head);
    const size_t inside = bytes - sizeof head;
    const int is_large = e->bytes_n > GRAPH_INLINE && head.weight != 0;
    struct arrival *a = &g->arrivals[k][head.version & 1];
    if (head.version < 0 || a->version >= 0 ||
        inside != (is_large || head.weight == 0 ? 0 : e->bytes_n))
        return messages_strange(from, bytes);
    trace_now(h->trace, TRACE_RECEIVE, head.version, from, GRAPH_ARRIVED);
    *a = (struct arrival){.version = head.version, .weight = head.weight};
    if (!is_large && inside == 0)
        return WAGMA_OK;
    if (!(a->block = messages_block_new(h)))
        return WAGMA_ENOMEM;
    if (!is_large) {
        memcpy(a->block->data, (const unsigned char *)message + sizeof head, inside);
        return WAGMA_OK;
    }
    a->under_way = 1;
    g->receives++;
    return e->transport->calls->receive(e->transport, from, 0, a->block->data, e->bytes_n,
                                        (transport_completion){.context = a});
}

static void note_departure(struct messages_graph *g, int rank) {
    g->departed_n += !g->departed[rank];
    g->departed[rank] = 1;
}

static int answer(wagma_handle *h, int to) {
    int32_t ranks[GRAPH_DISTANCES_MAX];
    const int waits = h->call.active && missing(h, ranks) > 0;
    const struct activation_message m = {.kind = ACTIVATION_TELL,
                                         .sync = (uint8_t)h->call.active,
                                         .detail = waits ? ranks[0] : -1,
                                         .version = h->call.version};
    return messages_send(h, to, &m);
}

static int receive(wagma_handle *h, int from, const void *message, size_t bytes) {
    struct messages_executor *e = h->state;
    struct messages_graph *g = e->graph;
    const unsigned char kind = bytes > 0 ? *(const unsigned char *)message : 0;
    struct activation_message m;
    e->received++;
    if (kind == GRAPH_ARRIVED)
        return receive_arrived(h, from, message, bytes);
    if (bytes != sizeof m)
        return messages_strange(from, bytes);
    memcpy(&m, message, sizeof m);
    trace_now(h->trace, TRACE_RECEIVE, m.version, from, kind);
    const int k = peer(g, g->peers.ahead, from);
    if (kind == ACTIVATION_FAILED)
        messages_note_failure(e, from, &m);
    else if (kind == ACTIVATION_INQUIRE)
        return answer(h, from);
    else if (kind == ACTIVATION_TELL)
        messages_note_word(e, from, &m);
    else if (kind == ACTIVATION_DEPARTED)
        note_departure(g, from);
    else if (kind == GRAPH_FINISHED && k >= 0)
        g->finished[k] = m.version + 1;
    else
        return messages_strange(from, bytes);
    return WAGMA_OK;
}

/* 1: data came or left. */
static int take_data(wagma_handle *h) {
    struct messages_executor *e = h->state;
    struct messages_graph *g = e->graph;
    transport_completion ends[ENDS_AT_ONCE];
    const int n = e->transport->calls->poll_data(e->transport, ends, ENDS_AT_ONCE);
    for (int i = 0; i < n; i++) {
        if (ends[i].cookie) {
            g->sends--;
            messages_block_drop(e, ends[i].context);
        } else {
            struct arrival *a = ends[i].context;
            g->receives--;
            a->under_way = 0;
        }
    }
    return n < 0 ? n : n > 0;
}

static int drive(wagma_handle *h) {
    int32_t ranks[GRAPH_DISTANCES_MAX];
    const int publishes =
        h->call.active && !messages_of(h)->graph->published && missing_readers(h, ranks) == 0;
    const int status = publishes ? publish(h) : WAGMA_OK;
    if (status != WAGMA_OK)
        return status;
    const int message = messages_take_message(h);
    if (message < 0)
        return message;
    const int data = take_data(h);
    return data < 0 ? data : publishes | message | data;
}

/* ---- a call ---------------------------------------------------------------------------------- */

/* The contributions of the version are not needed any more. */
static int release(wagma_handle *h) {
    struct messages_executor *e = h->state;
    struct messages_graph *g = e->graph;
    const struct activation_message m = {.kind = GRAPH_FINISHED, .version = h->call.version};
    int status = WAGMA_OK;
    for (int i = 0; i < g->each && status == WAGMA_OK; i++) {
        const int k = g->now[i], r = g->peers.behind[k];
        struct arrival *a = arrival_of(g, k, h->call.version);
        if (!a) /* it has departed */
            continue;
        messages_block_put(e, &a->block, NULL);
        a->version = -1;
        if (!is_ring(g) && !g->departed[r])
            status = messages_send(h, r, &m);
    }
    return status;
}

/* All expected neighbours have arrived. */
static int conclude(wagma_handle *h) {
    struct messages_graph *g = messages_of(h)->graph;
    struct graph_part parts[GRAPH_DISTANCES_MAX + 1];
    int n = 0;
    parts[n++] = (struct graph_part){h->rank, h->call.weight, h->call.x};
    for (int i = 0; i < g->each; i++) {
        const struct arrival *a = arrival_of(g, g->now[i], h->call.version);
        if (a)
            parts[n++] = (struct graph_part){g->peers.behind[g->now[i]], a->weight,
                                             a->block ? a->block->data : NULL};
    }
    graph_sum(h, parts, n, g->each);
    trace_now(h->trace, TRACE_COMPLETE, h->call.version, -1, 0);
    return release(h);
}

static int look(wagma_handle *h, const void *context, uint64_t now) {
    struct messages_executor *e = h->state;
    const enum trace_wait what = *(const enum trace_wait *)context;
    const int status = messages_look_for_dead(h);
    if (status != WAGMA_OK)
        return status;
    const int n = missing(h, e->ranks);
    return n > 0 ? messages_look_at(h, what, n, now) : handle_interrupted(h, handle_phase(what));
}

static int begin(wagma_handle *h) {
    struct messages_graph *g = messages_of(h)->graph;
    g->each = graph_distances_at(&g->peers.graph, h->call.version, g->now);
    g->published = 0;
    return WAGMA_OK;
}

static int advance(wagma_handle *h, enum call_mode mode, int moved, int *over) {
    const int published = messages_of(h)->graph->published;
    int32_t ranks[GRAPH_DISTANCES_MAX];
    *over = published && mode != CALL_POST && missing(h, ranks) == 0;
    if (*over) {
        messages_end_wait(h);
        return conclude(h);
    }
    const enum trace_wait what = published ? TRACE_FOR_NEIGHBORS : TRACE_FOR_WINDOW;
    return messages_pause_for(h, mode, what, look, &what, moved);
}

/* ---- the core -------------------------------------------------------------------------------- */

static int create_core(wagma_handle *h, const void *initial, double weight) {
    (void)initial, (void)weight;
    struct messages_executor *e = h->state;
    struct messages_graph *g = calloc(1, sizeof *g + (size_t)h->size);
    if (!g)
        return error_set(WAGMA_ENOMEM, "no memory for the executor of %d ranks", h->size);
    e->graph = g;
    graph_peers_init(&g->peers, &h->options, h->rank);
    for (int k = 0; k < GRAPH_DISTANCES_MAX; k++)
        g->arrivals[k][0].version = g->arrivals[k][1].version = -1;
    return WAGMA_OK;
}

static int depart(wagma_handle *h) {
    const struct activation_message m = {.kind = ACTIVATION_DEPARTED, .version = h->version};
    int status = WAGMA_OK;
    note_departure(messages_of(h)->graph, h->rank);
    for (int r = 0; r < h->size && status == WAGMA_OK; r++)
        if (r != h->rank)
            status = messages_send(h, r, &m);
    return status;
}

static int has_departed(const struct messages_executor *e, int rank) {
    return e->graph->departed[rank];
}

static int is_busy(const struct messages_executor *e) {
    return e->graph && e->graph->sends + e->graph->receives > 0;
}

static int is_idle(const struct messages_executor *e) {
    return e->graph->departed_n == e->options->size && !is_busy(e);
}

static const struct messages_core core = {
    .create = create_core,
    .begin = begin,
    .advance = advance,
    .drive = drive,
    .receive = receive,
    .depart = depart,
    .has_departed = has_departed,
    .is_idle = is_idle,
    .is_busy = is_busy,
};

/* ---- the executor ---------------------------------------------------------------------------- */

static int create(wagma_handle *h, const struct executor_request *request) {
    return messages_create(h, request, &core);
}

static const char *fits(const struct executor_request *request) {
    return policy_of(request->options).graph ? messages_fits(request) : "it needs a graph";
}

const struct executor messages_graph_executor = {
    .name = "messages/graph",
    .fits = fits,
    .create = create,
    .calls = {MESSAGES_CALLS},
};
