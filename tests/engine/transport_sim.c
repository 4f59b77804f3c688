/* See transport_sim.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "shm/segment.h"
#include "transport_sim_state.h"

void sim_complain(struct sim *s, const char *format, ...) {
    va_list arguments;
    if (s->trouble[0])
        return;
    va_start(arguments, format);
    vsnprintf(s->trouble, sizeof s->trouble, format, arguments);
    va_end(arguments);
}

/* ---- control messages ------------------------------------------------------------------------ */
static int send_control(wagma_transport *t, int to, const void *message, size_t bytes) {
    struct rank_of_sim *r = (struct rank_of_sim *)t;
    struct sim *s = enter(r, 0);
    if (!is_other(r, to) || bytes > TRANSPORT_CONTROL_MAX) {
        sim_complain(s, "rank %d sends %zu bytes of control to rank %d", t->rank, bytes, to);
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

/* ---- the end --------------------------------------------------------------------------------- */
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
        sim_complain(s, "rank %d calls sum() again with other numbers", t->rank);
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
        sim_free_post(p);
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
            sim_free_post(r->ends[k]->match);
        sim_free_post(r->ends[k]);
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
                sim_free_post(gone);
            }
        for (int k = 0; k < peer->ends_count; k++) { /* receives that have found such a send */
            struct post *receive = peer->ends[k];
            if (!receive->match || receive->match->rank != me || receive->match->copy)
                continue;
            sim_free_post(receive->match);
            receive->match = NULL;
            sim_append(&pair_of(s, me, q)->receives, receive);
            peer->ends[k--] = peer->ends[--peer->ends_count];
        }
    }
}

static void close_transport(wagma_transport *t, int together) {
    struct rank_of_sim *r = (struct rank_of_sim *)t;
    struct sim *s = enter(r, 0);
    if (together && !r->dead && pending_of(s, r))
        sim_complain(s, "%lld messages are left at rank %d, which closes",
                     (long long)pending_of(s, r), t->rank);
    if (together) /* otherwise peers go on to read and write its memory, as over MPI */
        abandon(s, r);
    r->closed = 1;
    leave(r, 0);
}

/* ---- of the test ----------------------------------------------------------------------------- */
struct sim *sim_create(int size, uint64_t seed, struct sim_options options) {
    static const transport_calls calls = {
        .send_control = send_control,
        .poll_control = poll_control,
        .send = sim_send_data,
        .receive = sim_receive_data,
        .poll_data = sim_poll_data,
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
