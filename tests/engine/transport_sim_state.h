/* Inside of the simulation (transport_sim.h): its state, and what each call on a transport begins
 * and ends with. transport_sim.c has control messages, the end and the test's side,
 * transport_sim_data.c data messages. One lock for all ranks; each rank has a clock, which its
 * polls move on. */
#ifndef WAGMA_TESTS_TRANSPORT_SIM_STATE_H
#define WAGMA_TESTS_TRANSPORT_SIM_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/mix.h"
#include "transport_sim.h"

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

/* Keeps the first. */
void sim_complain(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory)
        abort();
    return memory;
}

static inline void lock(struct sim *s) {
    if (s->options.threads)
        pthread_mutex_lock(&s->lock);
}

static inline void unlock(struct sim *s) {
    if (s->options.threads)
        pthread_mutex_unlock(&s->lock);
}

static inline struct pair *pair_of(struct sim *s, int from, int to) {
    return &s->pairs[to * s->size + from];
}

/* Starts a call; `polls`: it moves the clock on. */
static inline struct sim *enter(struct rank_of_sim *r, int polls) {
    struct sim *s = r->sim;
    const int second = atomic_fetch_add(&r->inside, 1) > 0;
    lock(s);
    if (second)
        sim_complain(s, "two threads use the transport of rank %d at once", r->transport.rank);
    if (r->closed)
        sim_complain(s, "the transport of rank %d is used after close()", r->transport.rank);
    free(r->lent);
    r->lent = NULL;
    r->clock += polls != 0;
    return s;
}

static inline int leave(struct rank_of_sim *r, int result) {
    unlock(r->sim);
    atomic_fetch_sub(&r->inside, 1);
    return result;
}

static inline uint64_t draw(struct rank_of_sim *r, uint64_t below) {
    return mix(r->random++) % below;
}

/* When something comes that starts now to `to`; `by`: whose numbers decide. */
static inline uint64_t due_at(struct rank_of_sim *by, const struct rank_of_sim *to) {
    return to->clock + draw(by, (uint64_t)by->sim->options.delay + 1);
}

static inline int is_other(const struct rank_of_sim *r, int peer) {
    return peer >= 0 && peer < r->sim->size && peer != r->transport.rank;
}

/* ---- transport_sim_data.c -------------------------------------------------------------------- */
int sim_send_data(wagma_transport *t, int to, int tag, const void *data, size_t bytes,
                  transport_completion completion);
int sim_receive_data(wagma_transport *t, int from, int tag, void *data, size_t bytes,
                     transport_completion completion);
int sim_poll_data(wagma_transport *t, transport_completion *completions, int most);
void sim_append(struct post **list, struct post *p);
void sim_free_post(struct post *p);

#endif
