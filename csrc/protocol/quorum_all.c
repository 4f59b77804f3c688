/* See protocol/quorum_all.h. One case per step, at most one shared access in each.
 *
 * No object is made of this file alone: a file that defines quorum_all_load() and the other
 * accesses to memory includes it (shm/quorum_all/memory.c, tests/explore/quorum_all.c). */
#include "protocol/quorum_all.h"

#include <stdatomic.h>

#include "protocol/quorum_all_seek.h"
#include "protocol/quorum_all_step.h"

void quorum_all_init(const struct quorum_all_context *c, struct quorum_all_local *l) {
    for (int32_t r = 0; r < c->size; r++)
        l->seen[r] = -1;
    l->group_n[0] = l->group_n[1] = 0;
    l->slowest = -1;
    l->pc = PC_RETURN;
}

void quorum_all_begin(struct quorum_all_local *l, int64_t t, int sync, const int32_t *members,
                      int32_t n, int posted) {
    l->t = t;
    l->sync = (uint32_t)sync;
    l->members = members;
    l->n = n;
    l->present_n = l->contributors_n = 0;
    l->divisor = 0;
    l->i = 0;
    l->posted = (uint32_t)posted;
    l->resting = 0;
    l->pc = PC_ADMIT;
}

/* Rank q has been seen to take part. */
static inline void note_present(struct quorum_all_memory *m, struct quorum_all_local *l,
                                int32_t q) {
    const double weight = quorum_all_weight(m, q, parity_of(l->t));
    l->i++;
    l->seen[q] = l->t;
    l->present[l->present_n++] = q;
    if (weight == 0)
        return;
    l->contributors[l->contributors_n] = q;
    l->weights[l->contributors_n++] = weight;
    l->divisor += weight;
}

/* Remembers whose reads of the record of t the version t + 2 has to wait for. */
static inline void remember_group(struct quorum_all_local *l) {
    const int parity = parity_of(l->t);
    for (int32_t k = 0; k < l->n; k++)
        l->group[parity][k] = l->members[k];
    l->group_n[parity] = l->n;
    l->group_version[parity] = l->t;
}

/* All members have come, or departed before. */
static inline enum quorum_all_action gathered(const struct quorum_all_context *c,
                                              struct quorum_all_local *l) {
    if (c->slices == 0 || l->present_n == 1 || l->divisor == 0)
        return ask(l, PC_FINISH, QUORUM_ALL_PRIVATE);
    return ask(l, PC_CLAIM, QUORUM_ALL_SHARE);
}

/* ---- a call ---------------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) enum quorum_all_action
step(const struct quorum_all_context *c, struct quorum_all_local *l) {
    struct quorum_all_memory *m = c->memory;
    const int parity = parity_of(l->t);
    const enum quorum_all_pc pc = (enum quorum_all_pc)l->pc;
    switch (pc) {
    /* The record of t - 2 may be overwritten: all members of that group have finished it, or
     * departed. Arriving at a later version implies having finished. */
    case PC_ADMIT: {
        int32_t q = -1;
        for (; l->i < l->group_n[parity]; l->i++) {
            q = l->group[parity][l->i];
            if (q != c->rank && l->seen[q] <= l->group_version[parity])
                break;
        }
        if (l->i == l->group_n[parity]) {
            l->i = 0;
            l->low = INT64_MAX;
            return go(l, PC_WINDOW);
        }
        /* seq_cst: condition of a sleeper. Acquires the end of that rank's reads; pairs with
         * PC_FINISH. */
        if ((int64_t)quorum_all_load(m, QUORUM_ALL_FINISH, q, 0, memory_order_seq_cst) <=
            l->group_version[parity])
            return go(l, PC_ADMIT_STATE);
        l->i++;
        return go(l, PC_ADMIT);
    }
    case PC_ADMIT_STATE:
        /* seq_cst: condition of a sleeper. Acquires all that the rank has written; pairs with the
         * store in segment_leave(). */
        if (quorum_all_load(m, QUORUM_ALL_STATE, l->group[parity][l->i], 0, memory_order_seq_cst) !=
            QUORUM_ALL_STATE_DEPARTED)
            return pause_for(l, PC_ADMIT, QUORUM_ALL_WHY_WINDOW);
        l->i++;
        return go(l, PC_ADMIT);
    /* All ranks are at t - window or beyond, or departed. */
    case PC_WINDOW:
        if (l->t - l->slowest <= c->window)
            return ask(l, PC_ARRIVE, QUORUM_ALL_WRITE);
        if (l->i == c->size) {
            l->slowest = l->low;
            l->i = 0;
            l->low = INT64_MAX;
            if (l->t - l->slowest > c->window)
                return pause_for(l, PC_WINDOW, QUORUM_ALL_WHY_WINDOW);
            return ask(l, PC_ARRIVE, QUORUM_ALL_WRITE);
        }
        /* seq_cst: condition of a sleeper, pairs with PC_ARRIVE; no data depends on it. */
        l->word = quorum_all_load(m, QUORUM_ALL_ARRIVE, l->i, 0, memory_order_seq_cst);
        if ((int64_t)l->word - 1 < l->low)
            return go(l, PC_WINDOW_STATE);
        l->i++;
        return go(l, PC_WINDOW);
    case PC_WINDOW_STATE:
        /* seq_cst: as above */
        if (quorum_all_load(m, QUORUM_ALL_STATE, l->i, 0, memory_order_seq_cst) !=
            QUORUM_ALL_STATE_DEPARTED)
            l->low = (int64_t)l->word - 1;
        l->i++;
        return go(l, PC_WINDOW);
    case PC_ARRIVE:
        /* seq_cst: the event of a ring for ranks that wait at the window; pairs with PC_WINDOW. */
        quorum_all_store(m, QUORUM_ALL_ARRIVE, c->rank, 0, (uint64_t)l->t + 1,
                         memory_order_seq_cst);
        return go(l, PC_PUBLISH);
    case PC_PUBLISH:
        remember_group(l);
        l->i = 0;
        /* seq_cst: the last one to publish sees all others' stamps, and rings (also the event of
         * that ring). Releases weight and payload; pairs with the loads in PC_GATHER. */
        quorum_all_store(m, QUORUM_ALL_STAMP, c->rank, parity, quorum_all_stamp(l->t, (int)l->sync),
                         memory_order_seq_cst);
        return go(l, l->posted && c->slices ? PC_REST : PC_GATHER);
    /* This rank goes away, and may come back late: it holds no slice. */
    case PC_REST:
    case PC_REST_AGAIN:
        /* release: after the last count; pairs with PC_SEEK_SLICED */
        quorum_all_store(m, QUORUM_ALL_SLICED, c->rank, 0, (uint64_t)l->t + 1,
                         memory_order_release);
        l->resting = 1;
        return go(l, pc == PC_REST ? PC_GATHER : PC_CLAIM);
    /* Every member has published t, or departed before it. */
    case PC_GATHER: {
        if (l->i == l->n)
            return gathered(c, l);
        const int32_t q = l->members[l->i];
        const uint64_t want = quorum_all_stamp(l->t, (int)l->sync);
        /* seq_cst: see PC_PUBLISH, and condition of a sleeper */
        l->word = q == c->rank
                      ? want
                      : quorum_all_load(m, QUORUM_ALL_STAMP, q, parity, memory_order_seq_cst);
        if (l->word < quorum_all_stamp(l->t, 0))
            return go(l, PC_GATHER_STATE);
        if (l->word != want)
            break;
        note_present(m, l, q);
        return go(l, PC_GATHER);
    }
    case PC_GATHER_STATE:
        /* seq_cst: as in PC_ADMIT_STATE */
        if (quorum_all_load(m, QUORUM_ALL_STATE, l->members[l->i], 0, memory_order_seq_cst) !=
            QUORUM_ALL_STATE_DEPARTED)
            return pause_for(l, PC_GATHER, QUORUM_ALL_WHY_MEMBERS);
        return go(l, PC_GATHER_AGAIN);
    case PC_GATHER_AGAIN: {
        /* A departed rank writes no more: its record has not changed since it departed, so that all
         * ranks that read it get the same answer. seq_cst: as above. */
        const int32_t q = l->members[l->i];
        l->word = quorum_all_load(m, QUORUM_ALL_STAMP, q, parity, memory_order_seq_cst);
        if (l->word == quorum_all_stamp(l->t, (int)l->sync))
            note_present(m, l, q);
        else if (l->word < quorum_all_stamp(l->t, 0))
            l->i++;
        else
            break;
        return go(l, PC_GATHER);
    }
    /* Slices, each reduced by the rank that claims it. */
    case PC_CLAIM:
        /* acquire: a rank that sees that all slices are claimed sees that each claimant had taken
         * SLICED back before (PC_RISE); pairs with PC_CLAIM_TAKE. */
        l->word = quorum_all_load(m, QUORUM_ALL_CLAIM, leader_of(l), parity, memory_order_acquire);
        if (counted(l->word, l->t) >= c->slices)
            return go(l, PC_SLICED);
        return go(l, l->resting ? PC_RISE : PC_CLAIM_TAKE);
    case PC_RISE:
        /* relaxed: released by the next claim */
        quorum_all_store(m, QUORUM_ALL_SLICED, c->rank, 0, (uint64_t)l->t, memory_order_relaxed);
        l->resting = 0;
        return go(l, PC_CLAIM);
    case PC_CLAIM_TAKE:
        l->s = (uint32_t)counted(l->word, l->t);
        /* release: after PC_RISE; pairs with PC_CLAIM. A rank that claims slices has seen every
         * member's record, and slices do not overlap. */
        if (!quorum_all_cas(m, QUORUM_ALL_CLAIM, leader_of(l), parity, l->word,
                            count_of(l->t, l->s + 1), memory_order_release))
            return go(l, PC_CLAIM);
        return ask(l, PC_DONE, QUORUM_ALL_REDUCE);
    case PC_DONE:
        /* relaxed: confirmed by the next step */
        l->word = quorum_all_load(m, QUORUM_ALL_DONE, leader_of(l), parity, memory_order_relaxed);
        return go(l, PC_DONE_COUNT);
    case PC_DONE_COUNT: {
        /* seq_cst: the event of a ring; releases the slice to the ranks that see all slices done,
         * through the chain of these updates. Pairs with PC_DRAIN. */
        const uint64_t done = counted(l->word, l->t) + 1;
        if (!quorum_all_cas(m, QUORUM_ALL_DONE, leader_of(l), parity, l->word, count_of(l->t, done),
                            memory_order_seq_cst))
            return go(l, PC_DONE);
        return done == c->slices ? ask(l, PC_CLAIM, QUORUM_ALL_COMPLETE) : go(l, PC_CLAIM);
    }
    case PC_SLICED:
        /* release: after the last count; pairs with PC_SEEK_SLICED */
        quorum_all_store(m, QUORUM_ALL_SLICED, c->rank, 0, (uint64_t)l->t + 1,
                         memory_order_release);
        return go(l, PC_DRAIN);
    case PC_DRAIN:
        /* seq_cst: condition of a sleeper; acquires all slices. */
        if (counted(quorum_all_load(m, QUORUM_ALL_DONE, leader_of(l), parity, memory_order_seq_cst),
                    l->t) < c->slices)
            return pause_for(l, PC_DRAIN, QUORUM_ALL_WHY_SLICES);
        l->i = 0;
        return go(l, PC_WELL);
    case PC_WELL: {
        /* A rank that gave up in this version may have changed its array while others read it. */
        if (l->i == l->present_n)
            return ask(l, PC_FINISH, QUORUM_ALL_DELIVER);
        /* acquire: after the slices; pairs with segment_leave(), which is before such a change */
        const int32_t q = l->present[l->i];
        if (q != c->rank && quorum_all_load(m, QUORUM_ALL_STATE, q, 0, memory_order_acquire) ==
                                QUORUM_ALL_STATE_FAILED)
            return go(l, PC_WELL_FINISH);
        l->i++;
        return go(l, PC_WELL);
    }
    case PC_WELL_FINISH: {
        /* acquire: it failed before or after it had finished; no data depends on it */
        const int32_t q = l->present[l->i++];
        if ((int64_t)quorum_all_load(m, QUORUM_ALL_FINISH, q, 0, memory_order_acquire) > l->t)
            return go(l, PC_WELL);
        l->other = q;
        return ask(l, PC_RETURN, QUORUM_ALL_PEER);
    }
    case PC_FINISH:
        /* seq_cst: the event of a ring. Releases: after all reads of the others' records; pairs
         * with PC_ADMIT. */
        quorum_all_store(m, QUORUM_ALL_FINISH, c->rank, 0, (uint64_t)l->t + 1,
                         memory_order_seq_cst);
        return ask(l, PC_RETURN, QUORUM_ALL_RETURN);
    case PC_RETURN: return QUORUM_ALL_RETURN;
    case PC_SEEK:
    case PC_SEEK_ARRIVE:
    case PC_SEEK_FINISH:
    case PC_SEEK_STAMP:
    case PC_SEEK_SLICED:
    case PC_SEEK_DONE: return seek(c, l);
    }
    /* Either this version with the other flag, or a later one: then it was not in our group, or it
     * would have waited for us to finish. */
    l->other = l->members[l->i];
    return ask(l, PC_RETURN, QUORUM_ALL_MISMATCH);
}

void quorum_all_seek(const struct quorum_all_context *c, struct quorum_all_local *l) {
    seek_begin(c, l);
}

int quorum_all_is_between_slices(const struct quorum_all_local *l) {
    return l->pc == PC_CLAIM;
}

void quorum_all_rest(struct quorum_all_local *l) {
    l->pc = PC_REST_AGAIN;
}

void quorum_all_pass_slices(struct quorum_all_local *l) {
    l->i = 0;
    l->pc = PC_WELL;
}

enum quorum_all_action quorum_all_step(const struct quorum_all_context *c,
                                       struct quorum_all_local *l) {
    return step(c, l);
}

enum quorum_all_action quorum_all_run(const struct quorum_all_context *c,
                                      struct quorum_all_local *l) {
    enum quorum_all_action action;
    do
        action = step(c, l);
    while (action == QUORUM_ALL_STEP);
    return action;
}
