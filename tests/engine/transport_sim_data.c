/* Data messages of the simulation: a send and the receive that it matches are posts, each with an
 * end that its rank polls. */
#include <string.h>

#include "base/error.h"
#include "digest.h"
#include "shm/segment.h"
#include "transport_sim_state.h"

static void add_end(struct rank_of_sim *r, struct post *p) {
    if (r->ends_count == r->ends_room) {
        r->ends_room = r->ends_room ? 2 * r->ends_room : 16;
        r->ends = realloc(r->ends, (size_t)r->ends_room * sizeof(*r->ends));
        if (!r->ends)
            abort();
    }
    r->ends[r->ends_count++] = p;
}

void sim_free_post(struct post *p) {
    if (p)
        free(p->copy);
    free(p);
}

void sim_append(struct post **list, struct post *p) {
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
    sim_complain(r->sim, "rank %d %s rank %d with tag %d of %d", r->transport.rank, what, peer, tag,
                 r->transport.tags);
    return error_set(WAGMA_EINVAL, "simulation: no data with tag %d and rank %d", tag, peer);
}

int sim_send_data(wagma_transport *t, int to, int tag, const void *data, size_t bytes,
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
        sim_append(&pair->sends, p);
    return leave(r, WAGMA_OK);
}

int sim_receive_data(wagma_transport *t, int from, int tag, void *data, size_t bytes,
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
        sim_append(&pair->receives, p);
    return leave(r, WAGMA_OK);
}

/* A receive whose time has come: the data arrives. */
static int arrive(struct sim *s, struct rank_of_sim *r, struct post *receive) {
    struct post *send = receive->match;
    receive->match = NULL;
    if (send->bytes != receive->bytes && send->bytes != 0) {
        sim_complain(s, "rank %d sends %zu bytes with tag %d, of which rank %d receives %zu",
                     send->rank, send->bytes, send->tag, receive->rank, receive->bytes);
        sim_free_post(send);
        return error_set(WAGMA_ESYS, "simulation: data of another size");
    }
    if (digest_add(send->bytes, send->data, send->bytes) != send->sum)
        sim_complain(s, "rank %d changed data on its way to rank %d, tag %d", send->rank,
                     send->peer, send->tag);
    if (send->bytes)
        memcpy(receive->into, send->data, send->bytes);
    if (send->copy) {
        sim_free_post(send);
        return WAGMA_OK;
    }
    struct rank_of_sim *sender = &s->ranks[send->rank];
    send->due = due_at(r, sender);
    add_end(sender, send);
    return WAGMA_OK;
}

int sim_poll_data(wagma_transport *t, transport_completion *completions, int most) {
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
            sim_complain(s, "rank %d changed data for rank %d before the end of its send, tag %d",
                         p->rank, p->peer, p->tag);
        completions[n++] = p->completion;
        sim_free_post(p);
        if (status != WAGMA_OK)
            return leave(r, status);
    }
    return leave(r, n);
}
