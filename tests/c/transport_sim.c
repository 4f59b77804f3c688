/* See transport_sim.h. One lock for all ranks; each rank has a clock, which its polls move on. */
#include "transport_sim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "digest.h"
#include "mix.h"
#include "segment.h"

struct control {
    struct control *next;
    uint64_t due; /* on the clock of the rank that it goes to */
    size_t bytes;
    unsigned char data[];
};

/* A posted send or receive, from post to the end that its rank polls. */
struct post {
    struct post *next;
    int rank, peer, tag;
    const void *data; /* of a send: the caller's, or `copy` */
    void *copy, *into;
    size_t bytes;
    uint64_t sum; /* of a send: of its data */
    transport_completion completion;
    struct post *match; /* of a receive: the send */
    uint64_t due;       /* on the clock of the rank */
};

struct pair { /* messages from one rank to another */
    struct control *first, *last;
    struct post *sends, *receives; /* without a match, oldest first */
    int held;
};

struct rank_of_sim {
    wagma_transport transport; /* first: a transport is its rank */
    struct sim *sim;
    atomic_int inside;
    uint64_t clock, random, left; /* left: clock at which the last control message has left */
    int64_t controls;             /* on their way to this rank */
    struct control *lent;         /* by poll_control, until the next call */
    struct post **ends;           /* sends and receives with a match or done, not yet polled */
    int ends_count, ends_room;
    int sums;     /* sums that are over */
    int added;    /* has added to the next one */
    uint64_t due; /* of the end of the next one */
    int64_t mine[2];
    int closed, dead, known_dead;
    struct sim_traffic traffic;
};

struct sim {
    int size;
    struct sim_options options;
    pthread_mutex_t lock;
    struct pair *pairs; /* [to * size + from]: a rank polls those that come to it */
    struct {
        int64_t totals[2];
        int added;
    } sums[2]; /* the next, and the one before, which some have not polled */
    char trouble[256];
    struct rank_of_sim ranks[];
};

static void complain(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void complain(struct sim *s, const char *format, ...) {
    va_list arguments;
    if (s->trouble[0])
        return;
    va_start(arguments, format);
    vsnprintf(s->trouble, sizeof s->trouble, format, arguments);
    va_end(arguments);
}

static void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory)
        abort();
    return memory;
}

static void lock(struct sim *s) {
    if (s->options.threads)
        pthread_mutex_lock(&s->lock);
}

static void unlock(struct sim *s) {
    if (s->options.threads)
        pthread_mutex_unlock(&s->lock);
}

static struct pair *pair_of(struct sim *s, int from, int to) {
    return &s->pairs[to * s->size + from];
}

/* Starts a call; `polls`: it moves the clock on. */
static struct sim *enter(struct rank_of_sim *r, int polls) {
    struct sim *s = r->sim;
    const int second = atomic_fetch_add(&r->inside, 1) > 0;
    lock(s);
    if (second)
        complain(s, "two threads use the transport of rank %d at once", r->transport.rank);
    if (r->closed)
        complain(s, "the transport of rank %d is used after close()", r->transport.rank);
    free(r->lent);
    r->lent = NULL;
    r->clock += polls != 0;
    return s;
}

static int leave(struct rank_of_sim *r, int result) {
    unlock(r->sim);
    atomic_fetch_sub(&r->inside, 1);
    return result;
}

static uint64_t draw(struct rank_of_sim *r, uint64_t below) {
    return mix(r->random++) % below;
}

/* When something comes that starts now to `to`; `by`: whose numbers decide. */
static uint64_t due_at(struct rank_of_sim *by, const struct rank_of_sim *to) {
    return to->clock + draw(by, (uint64_t)by->sim->options.delay + 1);
}

static int is_other(const struct rank_of_sim *r, int peer) {
    return peer >= 0 && peer < r->sim->size && peer != r->transport.rank;
}

/* ---- control messages --------------------------------------------------------------------------
 */
static int send_control(wagma_transport *t, int to, const void *message, size_t bytes) {
    struct rank_of_sim *r = (struct rank_of_sim *)t;
    struct sim *s = enter(r, 0);
    if (!is_other(r, to) || bytes > TRANSPORT_CONTROL_MAX) {
        complain(s, "rank %d sends %zu bytes of control to rank %d", t->rank, bytes, to);
        return leave(r, error_set(WAGMA_EINVAL, "simulation: no control message of %zu bytes to %d",
                                  bytes, to));
    }
    if (r->dead)
        return leave(r, WAGMA_OK);
    struct rank_of_sim *peer = &s->ranks[to];
    struct pair *pair = pair_of(s, t->rank, to);
    struct control *c = malloc(sizeof *c + bytes);
    if (!c)
        abort();
    *c = (struct control){.due = due_at(r, peer), .bytes = bytes};
    memcpy(c->data, message, bytes);
    if (pair->last && c->due < pair->last->due)
        c->due = pair->last->due;
    if (pair->last)
        pair->last->next = c;
    else
        pair->first = c;
    pair->last = c;
    peer->controls++;
    r->left = r->clock + draw(r, (uint64_t)s->options.delay + 1);
    r->traffic.controls++;
    r->traffic.control_bytes += (int64_t)bytes;
    return leave(r, WAGMA_OK);
}

static int poll_control(wagma_transport *t, int *from, const void **message, size_t *bytes) {
    struct rank_of_sim *r = (struct rank_of_sim *)t;
    struct sim *s = enter(r, 1);
    if (r->controls == 0 || r->dead)
        return leave(r, 0);
    int peer = (int)draw(r, (uint64_t)s->size);
    for (int k = 0; k < s->size; k++, peer = peer + 1 < s->size ? peer + 1 : 0) {
        struct pair *pair = pair_of(s, peer, t->rank);
        struct control *c = pair->first;
        if (!c || c->due > r->clock || pair->held)
            continue;
        pair->first = c->next;
        if (!pair->first)
            pair->last = NULL;
        r->controls--;
        r->lent = c;
        *from = peer;
        *message = c->data;
        *bytes = c->bytes;
        return leave(r, 1);
    }
    return leave(r, 0);
}

static int flushed(wagma_transport *t) {
    struct rank_of_sim *r = (struct rank_of_sim *)t;
    enter(r, 1);
    return leave(r, r->clock >= r->left);
}

/* ---- data messages -----------------------------------------------------------------------------
 */
static void add_end(struct rank_of_sim *r, struct post *p) {
    if (r->ends_count == r->ends_room) {
        r->ends_room = r->ends_room ? 2 * r->ends_room : 16;
        r->ends = realloc(r->ends, (size_t)r->ends_room * sizeof(*r->ends));
        if (!r->ends)
            abort();
    }
    r->ends[r->ends_count++] = p;
}

static void free_post(struct post *p) {
    if (p)
        free(p->copy);
    free(p);
}

static void append(struct post **list, struct post *p) {
    while (*list)
        list = &(*list)->next;
    *list = p;
}

/* The oldest of that tag, taken out of the list; NULL: there is none. */
static struct post *take(struct post **list, int tag) {
    for (; *list; list = &(*list)->next)
        if ((*list)->tag == tag) {
            struct post *p = *list;
            *list = p->next;
            p->next = NULL;
            return p;
        }
    return NULL;
}

static void match(struct sim *s, struct rank_of_sim *by, struct post *send, struct post *receive) {
    struct rank_of_sim *to = &s->ranks[receive->rank];
    receive->match = send;
    receive->due = due_at(by, to);
    add_end(to, receive);
}

static int check_post(struct rank_of_sim *r, int peer, int tag, const char *what) {
    if (is_other(r, peer) && tag >= 0 && tag < r->transport.tags)
        return WAGMA_OK;
    complain(r->sim, "rank %d %s rank %d with tag %d of %d", r->transport.rank, what, peer, tag,
             r->transport.tags);
    return error_set(WAGMA_EINVAL, "simulation: no data with tag %d and rank %d", tag, peer);
}

static int send_data(wagma_transport *t, int to, int tag, const void *data, size_t bytes,
                     transport_completion completion) {
    struct rank_of_sim *r = (struct rank_of_sim *)t;
    struct sim *s = enter(r, 0);
    const int status = check_post(r, to, tag, "sends to");
    if (status != WAGMA_OK || r->dead)
        return leave(r, status);
    struct pair *pair = pair_of(s, t->rank, to);
    struct post *p = allocate(sizeof *p);
    *p = (struct post){.rank = t->rank, .peer = to, .tag = tag, .data = data, .bytes = bytes};
    p->completion = completion;
    p->sum = digest_add(bytes, data, bytes);
    if (draw(r, 2)) { /* copied at once: over before it is received */
        struct post *end = allocate(sizeof *end);
        *end = *p;
        end->due = due_at(r, r);
        add_end(r, end);
        p->copy = malloc(bytes + 1);
        if (!p->copy)
            abort();
        if (bytes)
            memcpy(p->copy, data, bytes);
        p->data = p->copy;
    }
    r->traffic.datas++;
    r->traffic.data_bytes += (int64_t)bytes;
    struct post *receive = take(&pair->receives, tag);
    if (receive)
        match(s, r, p, receive);
    else
        append(&pair->sends, p);
    return leave(r, WAGMA_OK);
}

static int receive_data(wagma_transport *t, int from, int tag, void *data, size_t bytes,
                        transport_completion completion) {
    struct rank_of_sim *r = (struct rank_of_sim *)t;
    struct sim *s = enter(r, 0);
    const int status = check_post(r, from, tag, "receives from");
    if (status != WAGMA_OK || r->dead)
        return leave(r, status);
    struct pair *pair = pair_of(s, from, t->rank);
    struct post *p = allocate(sizeof *p);
    *p = (struct post){.rank = t->rank, .peer = from, .tag = tag, .into = data, .bytes = bytes};
    p->completion = completion;
    if (bytes)
        memset(data, 0xA5, bytes);
    struct post *send = take(&pair->sends, tag);
    if (send)
        match(s, r, send, p);
    else
        append(&pair->receives, p);
    return leave(r, WAGMA_OK);
}

/* A receive whose time has come: the data arrives. */
static int arrive(struct sim *s, struct rank_of_sim *r, struct post *receive) {
    struct post *send = receive->match;
    receive->match = NULL;
    if (send->bytes != receive->bytes && send->bytes != 0) {
        complain(s, "rank %d sends %zu bytes with tag %d, of which rank %d receives %zu",
                 send->rank, send->bytes, send->tag, receive->rank, receive->bytes);
        free_post(send);
        return error_set(WAGMA_ESYS, "simulation: data of another size");
    }
    if (digest_add(send->bytes, send->data, send->bytes) != send->sum)
        complain(s, "rank %d changed data on its way to rank %d, tag %d", send->rank, send->peer,
                 send->tag);
    if (send->bytes)
        memcpy(receive->into, send->data, send->bytes);
    if (send->copy) {
        free_post(send);
        return WAGMA_OK;
    }
    struct rank_of_sim *sender = &s->ranks[send->rank];
    send->due = due_at(r, sender);
    add_end(sender, send);
    return WAGMA_OK;
}

static int poll_data(wagma_transport *t, transport_completion *completions, int most) {
    struct rank_of_sim *r = (struct rank_of_sim *)t;
    struct sim *s = enter(r, 1);
    int n = 0;
    if (r->dead)
        return leave(r, 0);
    for (int k = 0; k < r->ends_count && n < most;) {
        struct post *p = r->ends[k];
        const int held = p->into && pair_of(s, p->peer, t->rank)->held;
        if (p->due > r->clock || held) {
            k++;
            continue;
        }
        r->ends[k] = r->ends[--r->ends_count]; /* so that they do not come in order */
        const int status = p->into ? arrive(s, r, p) : WAGMA_OK;
        if (!p->into && digest_add(p->bytes, p->data, p->bytes) != p->sum)
            complain(s, "rank %d changed data for rank %d before the end of its send, tag %d",
                     p->rank, p->peer, p->tag);
        completions[n++] = p->completion;
        free_post(p);
        if (status != WAGMA_OK)
            return leave(r, status);
    }
    return leave(r, n);
}

/* ---- the end -----------------------------------------------------------------------------------
 */
static int dead(wagma_transport *t, int32_t *ranks) {
    struct rank_of_sim *r = (struct rank_of_sim *)t;
    struct sim *s = enter(r, 0);
    int n = 0;
    for (int q = 0; q < s->size; q++)
        if (s->ranks[q].known_dead)
            ranks[n++] = q;
    return leave(r, n);
}

static int sum(wagma_transport *t, const int64_t mine[2], int64_t totals[2]) {
    struct rank_of_sim *r = (struct rank_of_sim *)t;
    struct sim *s = enter(r, 1);
    const int slot = r->sums % 2;
    if (r->dead)
        return leave(r, 0);
    if (!r->added) {
        memcpy(r->mine, mine, sizeof r->mine);
        if (s->sums[slot].added == s->size) /* everybody has polled it: the slot starts again */
            memset(&s->sums[slot], 0, sizeof s->sums[slot]);
        s->sums[slot].totals[0] += mine[0];
        s->sums[slot].totals[1] += mine[1];
        s->sums[slot].added++;
        r->added = 1;
        r->due = due_at(r, r);
    }
    if (memcmp(r->mine, mine, sizeof r->mine) != 0)
        complain(s, "rank %d calls sum() again with other numbers", t->rank);
    if (s->sums[slot].added < s->size || r->clock < r->due)
        return leave(r, 0);
    memcpy(totals, s->sums[slot].totals, sizeof s->sums[slot].totals);
    r->sums++;
    r->added = 0;
    return leave(r, 1);
}

static void free_posts(struct post *p) {
    while (p) {
        struct post *next = p->next;
        free_post(p);
        p = next;
    }
}

/* What nobody has taken of what goes to the rank, and of its own sends. */
static int64_t pending_of(struct sim *s, const struct rank_of_sim *r) {
    int64_t n = r->ends_count;
    for (int q = 0; q < s->size; q++) {
        const struct pair *pair = pair_of(s, q, r->transport.rank);
        if (s->ranks[q].dead)
            continue;
        for (const struct control *c = pair->first; c; c = c->next)
            n++;
        for (const struct post *p = pair->receives; p; p = p->next)
            n++;
        for (const struct post *p = pair->sends; p; p = p->next)
            n++;
    }
    return n;
}

/* Takes the rank's posted sends and receives away. What was copied comes all the same. */
static void abandon(struct sim *s, struct rank_of_sim *r) {
    const int me = r->transport.rank;
    for (int k = 0; k < r->ends_count; k++) {
        if (r->ends[k]->match)
            free_post(r->ends[k]->match);
        free_post(r->ends[k]);
    }
    r->ends_count = 0;
    for (int q = 0; q < s->size; q++) {
        struct rank_of_sim *peer = &s->ranks[q];
        free_posts(pair_of(s, q, me)->receives);
        pair_of(s, q, me)->receives = NULL;
        for (struct post **p = &pair_of(s, me, q)->sends; *p;)
            if ((*p)->copy) {
                p = &(*p)->next;
            } else {
                struct post *gone = *p;
                *p = gone->next;
                free_post(gone);
            }
        for (int k = 0; k < peer->ends_count; k++) { /* receives that have found such a send */
            struct post *receive = peer->ends[k];
            if (!receive->match || receive->match->rank != me || receive->match->copy)
                continue;
            free_post(receive->match);
            receive->match = NULL;
            append(&pair_of(s, me, q)->receives, receive);
            peer->ends[k--] = peer->ends[--peer->ends_count];
        }
    }
}

static void close_transport(wagma_transport *t, int together) {
    struct rank_of_sim *r = (struct rank_of_sim *)t;
    struct sim *s = enter(r, 0);
    if (together && !r->dead && pending_of(s, r))
        complain(s, "%lld messages are left at rank %d, which closes", (long long)pending_of(s, r),
                 t->rank);
    if (together) /* otherwise peers go on to read and write its memory, as over MPI */
        abandon(s, r);
    r->closed = 1;
    leave(r, 0);
}

/* ---- of the test -------------------------------------------------------------------------------
 */
struct sim *sim_create(int size, uint64_t seed, struct sim_options options) {
    static const transport_calls calls = {
        .send_control = send_control,
        .poll_control = poll_control,
        .send = send_data,
        .receive = receive_data,
        .poll_data = poll_data,
        .flushed = flushed,
        .dead = dead,
        .sum = sum,
        .close = close_transport,
    };
    struct sim *s = allocate(sizeof *s + (size_t)size * sizeof s->ranks[0]);
    s->size = size;
    s->options = options;
    s->pairs = allocate((size_t)size * (size_t)size * sizeof *s->pairs);
    pthread_mutex_init(&s->lock, NULL);
    for (int r = 0; r < size; r++)
        s->ranks[r] = (struct rank_of_sim){
            .transport = {.abi = TRANSPORT_ABI,
                          .calls = &calls,
                          .rank = r,
                          .size = size,
                          .tags = options.tags ? options.tags : 32768,
                          .crowded = 1,
                          .threads = 1,
                          .name = "simulation",
                          .error = error_set},
            .sim = s,
            .random = mix(seed ^ mix((uint64_t)r + 1)),
        };
    return s;
}

void sim_free(struct sim *s) {
    for (int r = 0; r < s->size; r++) {
        abandon(s, &s->ranks[r]);
        free(s->ranks[r].ends);
        free(s->ranks[r].lent);
    }
    for (int k = 0; k < s->size * s->size; k++) {
        while (s->pairs[k].first) {
            struct control *next = s->pairs[k].first->next;
            free(s->pairs[k].first);
            s->pairs[k].first = next;
        }
        free_posts(s->pairs[k].sends);
        free_posts(s->pairs[k].receives);
    }
    pthread_mutex_destroy(&s->lock);
    free(s->pairs);
    free(s);
}

wagma_transport *sim_transport(struct sim *s, int rank) {
    return &s->ranks[rank].transport;
}

void sim_kill(struct sim *s, int rank, int known) {
    lock(s);
    s->ranks[rank].dead = 1;
    s->ranks[rank].known_dead = known;
    abandon(s, &s->ranks[rank]);
    unlock(s);
}

void sim_hold(struct sim *s, int from, int to, int hold) {
    lock(s);
    for (int q = 0; q < s->size; q++)
        if (to < 0 || q == to)
            pair_of(s, from, q)->held = hold;
    unlock(s);
}

int64_t sim_pending(struct sim *s) {
    int64_t n = 0;
    lock(s);
    for (int r = 0; r < s->size; r++)
        if (!s->ranks[r].dead)
            n += pending_of(s, &s->ranks[r]);
    unlock(s);
    return n;
}

const char *sim_trouble(struct sim *s) {
    lock(s);
    const char *trouble = s->trouble[0] ? s->trouble : NULL;
    unlock(s);
    return trouble;
}

struct sim_traffic sim_traffic(struct sim *s, int rank) {
    lock(s);
    const struct sim_traffic traffic = s->ranks[rank].traffic;
    unlock(s);
    return traffic;
}
