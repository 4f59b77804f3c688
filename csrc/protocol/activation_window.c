/* The run-ahead window: one dissemination barrier every h versions, made of messages.
 *
 * A rank joins barrier j, after it has passed barrier j - 1, when its counter has reached j h and
 * no version below j h is PINNED on it; one that has departed joins when it hears of the barrier.
 * In round k it sends to rank + 2^k (mod P), after it has received in every round below k; having
 * received in all, it knows that all ranks have joined. Others are one barrier ahead at most: they
 * have passed this one, which this rank has joined. */
#include "protocol/activation_state.h"

static int rounds_of(const struct activation *a) {
    return activation_dimensions(a->config.size);
}

static uint32_t *received(struct activation *a, int64_t barrier) {
    return &a->rounds[barrier & 1];
}

/* 1: nothing below `version` is PINNED here, or may still be found to have another quorum. */
static int settled_below(const struct activation *a, int64_t version) {
    for (int i = 0; (a->active > 0 || a->config.varies) && i < a->slots; i++) {
        const struct activation_version *v = activation_slot(a, i);
        if ((v->state == ACTIVATION_PINNED || activation_is_unclaimed(a, v)) &&
            v->version < version)
            return 0;
    }
    return 1;
}

/* Advance the barrier in progress; return 1 if it has passed. */
static int advance(struct activation *a) {
    const int rounds = rounds_of(a), size = a->config.size;
    const uint32_t mask = *received(a, a->joined);
    while (a->round < rounds && (a->round == 0 || (mask & (1u << (a->round - 1))))) {
        const int to = (int)((a->config.rank + ((int64_t)1 << a->round)) % size);
        activation_send(a, to, ACTIVATION_BARRIER, a->joined, a->round);
        a->round++;
    }
    if (a->round < rounds || mask != (uint32_t)(((uint64_t)1 << rounds) - 1))
        return 0;
    *received(a, a->joined) = 0;
    a->passed = a->joined;
    return 1;
}

void activation_window(struct activation *a) {
    if (a->joined > a->passed && !advance(a))
        return;
    for (;;) {
        const int64_t next = a->joined + 1;
        const int reached = a->counter / a->half >= next || (a->gone && *received(a, next) != 0);
        if (!reached || !settled_below(a, next * a->half))
            return;
        a->joined = next;
        a->round = 0;
        if (!advance(a))
            return;
    }
}

void activation_barrier(struct activation *a, int64_t barrier, int round) {
    if (barrier <= a->passed || barrier > a->passed + 2 || barrier > a->joined + 1 || round < 0 ||
        round >= rounds_of(a)) {
        activation_trouble(a, ACTIVATION_PROTOCOL, barrier, -1);
        return;
    }
    *received(a, barrier) |= 1u << round;
    activation_window(a);
}

int activation_may_arrive(const struct activation *a) {
    return a->counter / a->half <= a->passed + 1;
}
