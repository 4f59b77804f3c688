/* Ranks that a waiting rank waits for, and what has become of them: the part of quorum_all.c that
 * quorum_all_seek() begins. One access per step. */
#ifndef WAGMA_PROTOCOL_QUORUM_ALL_SEEK_H
#define WAGMA_PROTOCOL_QUORUM_ALL_SEEK_H

#include <stdatomic.h>

#include "protocol/quorum_all_step.h"

static inline int32_t sought(const struct quorum_all_local *l) {
    return l->why == QUORUM_ALL_WHY_WINDOW ? l->j : l->members[l->j];
}

/* The next one to look at, or the end of the list. */
static enum quorum_all_action seek_next(const struct quorum_all_context *c,
                                        struct quorum_all_local *l) {
    const int32_t end = l->why == QUORUM_ALL_WHY_WINDOW ? c->size : l->n;
    while (++l->j < end) {
        const int32_t q = sought(l);
        if (q != c->rank && (l->why != QUORUM_ALL_WHY_SLICES || l->seen[q] == l->t))
            return go(l, PC_SEEK);
    }
    /* All slices are claimed, and a slice that is not done is held by a rank that does not rest. If
     * one of the ranks that do not rest lives, it may hold that slice. So dead ranks keep this rank
     * from its result only if all of them are dead. */
    if (l->why == QUORUM_ALL_WHY_SLICES && l->lost >= 0 && l->missing_n == 0)
        return go(l, PC_SEEK_DONE);
    return ask(l, l->resume, QUORUM_ALL_SOUGHT);
}

/* The rank that is looked at keeps this one waiting. */
static enum quorum_all_action seek_found(const struct quorum_all_context *c,
                                         struct quorum_all_local *l) {
    const int32_t q = sought(l);
    if (l->fate == QUORUM_ALL_LIVES) {
        l->missing[l->missing_n++] = q;
    } else if (l->why == QUORUM_ALL_WHY_SLICES) {
        l->lost = q;
    } else {
        l->other = q;
        return ask(l, PC_RETURN, QUORUM_ALL_PEER);
    }
    return seek_next(c, l);
}

static void seek_begin(const struct quorum_all_context *c, struct quorum_all_local *l) {
    l->resume = l->pc;
    l->lost = -1;
    l->missing_n = 0;
    l->j = -1;
    (void)seek_next(c, l);
}

static int was_member(const struct quorum_all_local *l, int32_t q) {
    const int parity = parity_of(l->t);
    for (int32_t k = 0; k < l->group_n[parity]; k++)
        if (l->group[parity][k] == q)
            return 1;
    return 0;
}

/* One access. What a rank has become is looked at before what it has done: the dead and the failed
 * do no more, so that what they had not done by then they never will. */
static enum quorum_all_action seek(const struct quorum_all_context *c, struct quorum_all_local *l) {
    struct quorum_all_memory *m = c->memory;
    const int parity = parity_of(l->t);
    const int32_t q = l->pc == PC_SEEK_DONE ? -1 : sought(l); /* then l->j is at the end */
    /* acquire, throughout: not less than the conditions that are looked at again after this; what
     * is decided by these loads was written by ranks that write no more. */
    switch ((enum quorum_all_pc)l->pc) {
    case PC_SEEK:
        l->fate = quorum_all_fate_of(m, q);
        if (l->fate == QUORUM_ALL_DEPARTED)
            return seek_next(c, l);
        return go(l, l->why == QUORUM_ALL_WHY_WINDOW    ? PC_SEEK_ARRIVE
                     : l->why == QUORUM_ALL_WHY_MEMBERS ? PC_SEEK_STAMP
                                                        : PC_SEEK_SLICED);
    case PC_SEEK_ARRIVE:
        if ((int64_t)quorum_all_load(m, QUORUM_ALL_ARRIVE, q, 0, memory_order_acquire) - 1 <
            l->t - c->window)
            return seek_found(c, l);
        return was_member(l, q) ? go(l, PC_SEEK_FINISH) : seek_next(c, l);
    case PC_SEEK_FINISH:
        if ((int64_t)quorum_all_load(m, QUORUM_ALL_FINISH, q, 0, memory_order_acquire) <=
            l->group_version[parity])
            return seek_found(c, l);
        return seek_next(c, l);
    case PC_SEEK_STAMP:
        if (quorum_all_load(m, QUORUM_ALL_STAMP, q, parity, memory_order_acquire) <
            quorum_all_stamp(l->t, 0))
            return seek_found(c, l);
        return seek_next(c, l);
    case PC_SEEK_SLICED:
        if ((int64_t)quorum_all_load(m, QUORUM_ALL_SLICED, q, 0, memory_order_acquire) <= l->t)
            return seek_found(c, l);
        return seek_next(c, l);
    default: /* PC_SEEK_DONE: nobody but the dead claims any more */
        if (counted(quorum_all_load(m, QUORUM_ALL_DONE, leader_of(l), parity, memory_order_acquire),
                    l->t) >= c->slices)
            return go(l, l->resume);
        l->other = l->lost;
        return ask(l, PC_RETURN, QUORUM_ALL_PEER);
    }
}

#endif
