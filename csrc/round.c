/* The round protocol; see round.h. One case per step, at most one shared access in each; the file
 * is long because the protocol is one state machine, and this switch is all of it. */
#include "round.h"

#include <stdatomic.h>
#include <string.h>

#include "topology.h"

#ifdef ROUND_MEMORY_H
#include ROUND_MEMORY_H
#else
#include "round_memory.h"
#endif

enum round_pc {
    PC_WINDOW,
    PC_BUFFER,
    PC_PUBLISH,
    PC_SLOT,
    PC_LET_GO,
    PC_LET_GO_SWAP,
    PC_QUORUM,
    PC_FREE,
    PC_TAKE,
    PC_HEAD,
    PC_PIN_READ,
    PC_PIN_REFER,
    PC_PIN_CHECK,
    PC_PIN_UNDO,
    PC_PIN_RECORD,
    PC_RESET_DONE,
    PC_RESET_NEXT,
    PC_RESET_USERS,
    PC_RESET_REFS,
    PC_PIN_SET,
    PC_HAND_IN,
    PC_HAND_HOLD,
    PC_HAND_SWAP,
    PC_HAND_NEXT,
    PC_FRESH_IN,
    PC_FRESH_HEAD,
    PC_LATE_HOLD,
    PC_LATE_REFS,
    PC_LATE_ACQUIRE,
    PC_LATE_VERIFY,
    PC_PRIVATE,
    PC_USERS,
    PC_USERS_ENTER,
    PC_CLAIM,
    PC_MARK,
    PC_COPY,
    PC_LEAVE,
    PC_LEAVE_USERS,
    PC_LEAVE_ROUND,
    PC_RETURN,
    PC_DEPART,
    PC_DEPART_HOLD,
    PC_UNREF,
    PC_UNREF_DONE,
    PC_UNREF_FREE,
    PC_DROP,
    PC_DROP_HEAD,
    PC_DROP_IN,
    PC_DROP_CREF,
};

/* Goes on at `pc` with the next step. */
static inline enum round_action go(struct round_local *l, enum round_pc pc) {
    l->pc = pc;
    return ROUND_STEP;
}

static inline enum round_action ask(struct round_local *l, enum round_pc pc,
                                    enum round_action action) {
    l->pc = pc;
    return action;
}

static inline enum round_action pause_for(struct round_local *l, enum round_pc pc,
                                          enum round_why why) {
    l->why = why;
    return ask(l, pc, ROUND_WAIT);
}

/* Waits, then goes on at `pc`, without a hold that has become useless: its round may be what the
 * rank that is waited for waits for, if fewer rounds than the bound were committed. */
static inline enum round_action wait_for(struct round_local *l, enum round_pc pc,
                                         enum round_why why) {
    l->why = why;
    l->unref_return = pc;
    return ask(l, PC_LET_GO, ROUND_WAIT);
}

/* Subroutine: gives back k references of round c, then goes on at `pc`. */
static inline enum round_action unref(struct round_local *l, uint32_t c, uint32_t k,
                                      enum round_pc pc) {
    l->unref_c = c;
    l->unref_k = k;
    l->unref_return = pc;
    return go(l, PC_UNREF);
}

/* Subroutine: leaves the users of round c, then goes on at `pc`. */
static inline enum round_action drop(struct round_local *l, uint32_t c, enum round_pc pc) {
    l->drop_c = c;
    l->drop_return = pc;
    return go(l, PC_DROP);
}

/* Ends a subroutine; forgets its arguments, so that equal situations are equal states. */
static inline enum round_action unref_over(struct round_local *l) {
    const uint32_t pc = l->unref_return;
    l->unref_c = l->unref_k = l->unref_return = 0;
    return go(l, pc);
}

static inline enum round_action drop_over(struct round_local *l) {
    const uint32_t pc = l->drop_return;
    l->drop_c = l->drop_i = l->drop_return = 0;
    l->drop_head = l->drop_in = 0;
    return go(l, pc);
}

static inline uint64_t all_slices(const struct round_context *x) {
    return x->slices == 64 ? ~UINT64_C(0) : (UINT64_C(1) << x->slices) - 1;
}

/* A fresh version can be older than one that was merged before, when their groups differ. */
static inline void took(struct round_local *l, uint64_t version) {
    if (version > l->last)
        l->last = version;
}

static inline enum round_action finish(struct round_local *l, enum round_outcome outcome) {
    l->outcome = outcome;
    return ask(l, PC_RETURN, ROUND_RETURN);
}

int round_members_of(const struct round_context *x, uint64_t version, uint32_t rank, int sync,
                     int32_t *members) {
    if (!sync && !x->world)
        return topology_members(&x->topology, (int)rank, (int64_t)version - 1, members);
    for (uint32_t r = 0; r < x->size; r++)
        members[r] = (int32_t)r;
    return (int)x->size;
}

void round_init(struct round_local *l) {
    memset(l, 0, sizeof *l);
}

/* Forgets everything but what lasts, so that equal situations are equal states. */
static void round_reset(struct round_local *l) {
    const struct round_local lasting = {.last = l->last, .horizon = l->horizon, .own = l->own};
    *l = lasting;
}

void round_begin(const struct round_context *x, struct round_local *l, uint64_t t, int sync,
                 const int32_t *members, int count) {
    round_reset(l);
    l->t = t;
    l->sync = sync != 0;
    l->members = (uint32_t)count;
    l->leader = (uint32_t)members[0];
    while ((uint32_t)members[l->position] != x->rank)
        l->position++;
    l->low = ROUND_DEPARTED_VERSION;
    l->pc = PC_WINDOW;
}

void round_begin_departure(struct round_local *l) {
    round_reset(l);
    l->pc = PC_DEPART;
}

enum round_action round_step(const struct round_context *x, struct round_local *l,
                             const int32_t *members, struct round_input in) {
    struct round_memory *m = x->memory;
    uint64_t word;

    switch ((enum round_pc)l->pc) {
    /* -- run-ahead window -------------------------------------------------------------------- */
    case PC_WINDOW:
        if (l->t > l->horizon + x->window) {
            /* acquire: a rank seen at t - window has left the versions whose slot and arrival
             * cells this version reuses; pairs with the store in PC_PUBLISH */
            word = round_load(m, ROUND_PUB, l->i, 0, memory_order_acquire);
            if (round_version(word) + x->window < l->t)
                return wait_for(l, PC_WINDOW, ROUND_WHY_WINDOW);
            if (round_version(word) < l->low)
                l->low = round_version(word);
            if (++l->i < x->size)
                return go(l, PC_WINDOW);
            l->horizon = l->low;
            l->low = ROUND_DEPARTED_VERSION;
            l->i = 0;
            return go(l, PC_BUFFER);
        }
        l->low = ROUND_DEPARTED_VERSION;
        __attribute__((fallthrough)); /* nothing was read */

    /* -- contribution ------------------------------------------------------------------------ */
    case PC_BUFFER:
        if (l->i == l->own)
            l->i++;
        if (l->i >= x->buffers_usable) {
            l->i = 0;
            return wait_for(l, PC_BUFFER, ROUND_WHY_BUFFER);
        }
        /* seq_cst: Dekker with PC_PIN_REFER/PC_PIN_CHECK: either this load sees the pinner's
         * reference, or the pinner sees that PUB names another buffer. acquire is included: the
         * readers of the buffer are done; pairs with PC_DROP_CREF and PC_PIN_UNDO */
        if (round_load(m, ROUND_CREF, x->rank, l->i, memory_order_seq_cst) == 0) {
            l->buffer = l->i;
            l->i = 0;
            return ask(l, PC_PUBLISH, ROUND_WRITE);
        }
        l->i++;
        return go(l, PC_BUFFER);

    case PC_PUBLISH:
        /* seq_cst: the store side of the Dekker above (for the buffer published before), and
         * store-then-scan of PC_QUORUM: of k arrivals the last one in the total order sees all k.
         * release is included: the contribution is readable; pairs with PC_PIN_CHECK */
        round_store(m, ROUND_PUB, x->rank, 0,
                    round_pack(l->t, l->buffer | (l->sync ? ROUND_PUB_SYNC : 0)),
                    memory_order_seq_cst);
        l->own = l->buffer;
        l->buffer = 0;
        if (l->members == 1) {
            took(l, l->t);
            return finish(l, ROUND_ALONE);
        }
        return go(l, PC_SLOT);

    /* -- after a wait: give back a hold of an older version ------------------------------------ */
    case PC_LET_GO: {
        const enum round_pc pc = (enum round_pc)l->unref_return;
        /* acquire: the round that the hold names; pairs with PC_HAND_SWAP */
        word = round_load(m, ROUND_HOLD, x->rank, 0, memory_order_acquire);
        if (word != 0 && round_version(word) < l->t) {
            l->w = word;
            return go(l, PC_LET_GO_SWAP);
        }
        l->unref_return = 0;
        return go(l, pc);
    }

    case PC_LET_GO_SWAP: {
        const enum round_pc pc = (enum round_pc)l->unref_return;
        word = l->w;
        l->w = 0;
        l->unref_return = 0;
        const uint32_t c = round_low(word);
        /* acq_rel: pairs with PC_HAND_SWAP. Should it fail, a newer round was handed over */
        if (round_cas(m, ROUND_HOLD, x->rank, 0, &word, 0, memory_order_acq_rel))
            return unref(l, c, 1, pc);
        return go(l, pc);
    }

    /* -- is the version pinned? may it be? --------------------------------------------------- */
    case PC_SLOT:
        /* acquire: HEAD and IN of the round; pairs with PC_PIN_SET */
        l->slot =
            round_load(m, ROUND_SLOT, l->leader, (uint32_t)(l->t % x->slots), memory_order_acquire);
        if (round_version(l->slot) == l->t) {
            l->other = 0;
            l->u = l->t;
            l->c = round_low(l->slot);
            return go(l, PC_FRESH_IN);
        }
        if (l->other) { /* a member went past t, and yet no round of this group was pinned */
            l->other--;
            return ask(l, PC_RETURN, ROUND_MISMATCH);
        }
        return go(l, PC_QUORUM);

    case PC_QUORUM: {
        const uint32_t q = (uint32_t)members[l->i];
        /* seq_cst: the scan of store-then-scan, see PC_PUBLISH */
        word = round_load(m, ROUND_PUB, q, 0, memory_order_seq_cst);
        if (word == ROUND_DEPARTED) {
            l->gone++;
        } else if (round_version(word) > l->t) {
            l->other = q + 1; /* it has left t, so the slot must be set: look again */
            l->i = l->present = l->gone = l->awaited = 0;
            return go(l, PC_SLOT);
        } else if (round_version(word) == l->t) {
            if (!(round_low(word) & ROUND_PUB_SYNC) != !l->sync) {
                l->other = q;
                return ask(l, PC_RETURN, ROUND_MISMATCH);
            }
            l->present++;
        } else if (round_version(word) + 1 == l->t) {
            l->awaited++; /* one further behind cannot arrive in time */
        }
        if (++l->i < l->members)
            return go(l, PC_QUORUM);

        const uint32_t all = l->members - l->gone;
        const uint32_t need = l->sync || x->quorum > all ? all : x->quorum;
        const int too_few = l->present < need, awaiting = l->awaited && !in.grace_over;
        l->i = l->present = l->gone = l->awaited = 0;
        if (!too_few && !awaiting)
            return go(l, PC_FREE);
        l->slot = 0;
        return wait_for(l, PC_SLOT, too_few ? ROUND_WHY_QUORUM : ROUND_WHY_GRACE);
    }

    /* -- pin: lock-free, the losers undo ------------------------------------------------------ */
    case PC_FREE:
        if (l->i >= x->rounds_usable) {
            l->i = 0;
            l->slot = 0;
            return wait_for(l, PC_SLOT, ROUND_WHY_ROUND);
        }
        l->c = x->rank * x->rounds + l->i;
        /* acquire: all users of its last life are gone; pairs with PC_UNREF_FREE */
        if (!round_load(m, ROUND_FREE, l->c, 0, memory_order_acquire)) {
            l->i++;
            return go(l, PC_FREE);
        }
        l->i = 0;
        return go(l, PC_TAKE);

    case PC_TAKE:
        /* relaxed: only the owner reads 1 here, and only others' PC_UNREF_FREE sets it again */
        round_store(m, ROUND_FREE, l->c, 0, 0, memory_order_relaxed);
        return go(l, PC_HEAD);

    case PC_HEAD:
        /* relaxed, but before IN (release): who reads an IN of this life sees this HEAD */
        round_store(m, ROUND_HEAD, l->c, 0, round_pack(l->t, l->leader << 1 | l->sync),
                    memory_order_relaxed);
        return go(l, PC_PIN_READ);

    case PC_PIN_READ:
        /* relaxed: only a guess, PC_PIN_CHECK decides */
        l->w = round_load(m, ROUND_PUB, (uint32_t)members[l->i], 0, memory_order_relaxed);
        return go(l, l->w == ROUND_DEPARTED ? PC_PIN_RECORD : PC_PIN_REFER);

    case PC_PIN_REFER:
        /* seq_cst: Dekker with PC_PUBLISH/PC_BUFFER */
        round_add(m, ROUND_CREF, (uint32_t)members[l->i], round_buffer(l->w), 1,
                  memory_order_seq_cst);
        return go(l, PC_PIN_CHECK);

    case PC_PIN_CHECK:
        /* seq_cst: Dekker; acquire is included: the contribution, pairs with PC_PUBLISH */
        word = round_load(m, ROUND_PUB, (uint32_t)members[l->i], 0, memory_order_seq_cst);
        return go(l, word == l->w ? PC_PIN_RECORD : PC_PIN_UNDO);

    case PC_PIN_UNDO:
        /* release: pairs with PC_BUFFER (nothing was read, but RMWs must keep its chain) */
        round_sub(m, ROUND_CREF, (uint32_t)members[l->i], round_buffer(l->w), 1,
                  memory_order_acq_rel);
        return go(l, PC_PIN_READ);

    case PC_PIN_RECORD:
        /* release: HEAD before IN; pairs with PC_FRESH_IN */
        round_store(m, ROUND_IN, l->c, l->i, l->w, memory_order_release);
        l->w = 0;
        if (++l->i < l->members)
            return go(l, PC_PIN_READ);
        l->i = 0;
        return go(l, PC_RESET_DONE);

    case PC_RESET_DONE:
        round_store(m, ROUND_DONE, l->c, 0, 0,
                    memory_order_relaxed); /* published by PC_RESET_REFS */
        return go(l, PC_RESET_NEXT);

    case PC_RESET_NEXT:
        round_store(m, ROUND_NEXT, l->c, 0, 0,
                    memory_order_relaxed); /* published by PC_RESET_REFS */
        return go(l, PC_RESET_USERS);

    case PC_RESET_USERS:
        round_store(m, ROUND_USERS, l->c, 0, 1,
                    memory_order_relaxed); /* published by PC_RESET_REFS */
        return ask(l, PC_RESET_REFS, ROUND_GATHER);

    case PC_RESET_REFS:
        /* release, last of all: a late rank with a stale pointer that gets a reference now sees the
         * new HEAD; pairs with PC_LATE_ACQUIRE */
        round_store(m, ROUND_REFS, l->c, 0, l->members, memory_order_release);
        return go(l, PC_PIN_SET);

    case PC_PIN_SET:
        word = l->slot;
        /* seq_cst: the event before the ring of ROUND_PINNED (see wait.h); release is included:
         * HEAD, IN and the weights; pairs with PC_SLOT */
        if (!round_cas(m, ROUND_SLOT, l->leader, (uint32_t)(l->t % x->slots), &word,
                       round_pack(l->t, l->c), memory_order_seq_cst)) {
            const uint32_t lost = l->c;
            l->c = 0;
            return unref(l, lost, l->members, PC_SLOT);
        }
        l->slot = 0;
        l->u = l->t;
        return ask(l, PC_HAND_IN, ROUND_PINNED);

    /* -- hand each late member its reference ------------------------------------------------- */
    case PC_HAND_IN:
        /* relaxed: written by this rank in PC_PIN_RECORD */
        word = round_load(m, ROUND_IN, l->c, l->i, memory_order_relaxed);
        if (word == ROUND_DEPARTED)
            return unref(l, l->c, 1, PC_HAND_NEXT);
        return go(l, round_version(word) == l->t ? PC_HAND_NEXT : PC_HAND_HOLD);

    case PC_HAND_HOLD:
        /* acquire: the round that the old hold names is about to be given back; pairs with
         * PC_HAND_SWAP of another pinner */
        l->w = round_load(m, ROUND_HOLD, (uint32_t)members[l->i], 0, memory_order_acquire);
        return go(l, PC_HAND_SWAP);

    case PC_HAND_SWAP:
        if (round_version(l->w) >= l->t) /* it was handed a newer one, or it departed */
            return unref(l, l->c, 1, PC_HAND_NEXT);
        word = l->w;
        /* acq_rel: pairs with PC_LATE_HOLD and with itself */
        if (!round_cas(m, ROUND_HOLD, (uint32_t)members[l->i], 0, &word, round_pack(l->t, l->c),
                       memory_order_acq_rel)) {
            l->w = word;
            return go(l, PC_HAND_SWAP);
        }
        if (l->w != 0)
            return unref(l, round_low(l->w), 1, PC_HAND_NEXT);
        return go(l, PC_HAND_NEXT);

    case PC_HAND_NEXT:
        if (++l->i < l->members)
            return go(l, PC_HAND_IN);
        l->i = 0;
        l->w = 0;
        l->fresh = 1;
        return go(l, l->members == 2 ? PC_PRIVATE : PC_USERS);

    /* -- pinned by another: does the round hold this contribution? ---------------------------- */
    case PC_FRESH_IN:
        /* acquire: HEAD of the same life of the round; pairs with PC_PIN_RECORD. If the round was
         * reused since, this may be garbage, which PC_FRESH_HEAD finds out. */
        word = round_load(m, ROUND_IN, l->c, l->position, memory_order_acquire);
        if (round_version(word) == l->t)
            return go(l, PC_FRESH_HEAD);
        return go(l, PC_LATE_HOLD);

    case PC_FRESH_HEAD:
        /* relaxed: ordered by the acquire above */
        word = round_load(m, ROUND_HEAD, l->c, 0, memory_order_relaxed);
        if (round_version(word) != l->t)
            return go(l, PC_LATE_HOLD);
        if ((round_low(word) & 1) != l->sync) {
            l->other = l->leader;
            return ask(l, PC_RETURN, ROUND_MISMATCH);
        }
        l->fresh = 1; /* and so one of its references is this rank's */
        l->slot = 0;
        return go(l, l->members == 2 ? PC_PRIVATE : PC_USERS);

    /* -- late: take the newest pinned version u >= t ------------------------------------------ */
    case PC_LATE_HOLD:
        if (l->sync) { /* a sync version has no late ranks: the slot is of another call */
            l->other = l->leader;
            return ask(l, PC_RETURN, ROUND_MISMATCH);
        }
        /* acquire: the round it names; pairs with PC_HAND_SWAP */
        l->w = round_load(m, ROUND_HOLD, x->rank, 0, memory_order_acquire);
        if (round_version(l->w) <= l->t)
            l->w = l->slot;
        l->u = round_version(l->w);
        l->c = round_low(l->w);
        if (l->u <= l->last)
            return finish(l, ROUND_UNMERGED);
        return go(l, PC_LATE_REFS);

    case PC_LATE_REFS:
        /* relaxed: only a guess, PC_LATE_ACQUIRE decides */
        l->w = round_load(m, ROUND_REFS, l->c, 0, memory_order_relaxed);
        return go(l, l->w == 0 ? PC_LATE_HOLD : PC_LATE_ACQUIRE);

    case PC_LATE_ACQUIRE:
        word = l->w;
        /* acq_rel: HEAD of the life that is referenced; pairs with PC_RESET_REFS and PC_UNREF */
        if (!round_cas(m, ROUND_REFS, l->c, 0, &word, l->w + 1, memory_order_acq_rel)) {
            l->w = word;
            return go(l, word == 0 ? PC_LATE_HOLD : PC_LATE_ACQUIRE);
        }
        l->w = 0;
        return go(l, PC_LATE_VERIFY);

    case PC_LATE_VERIFY:
        /* relaxed: ordered by the acquire above */
        word = round_load(m, ROUND_HEAD, l->c, 0, memory_order_relaxed);
        if (round_version(word) != l->u) /* reused since the pointer was read */
            return unref(l, l->c, 1, PC_LATE_HOLD);
        l->slot = 0;
        return go(l, PC_USERS);

    /* -- two members, both fresh: each reduces for itself (3N of traffic instead of 3.5N). The
     * inputs stay pinned by this rank's reference, since DONE stays empty
     * ---------------------------- */
    case PC_PRIVATE:
        /* relaxed: ordered by PC_FRESH_IN, or this rank's own */
        word = round_load(m, ROUND_IN, l->c, 1 - l->position, memory_order_relaxed);
        if (round_version(word) != l->t)
            return go(l, PC_USERS);
        return ask(l, PC_LEAVE, ROUND_PRIVATE);

    /* -- reduce: slices are claimed, the shared result is written by the claimers only ----------
     */
    case PC_USERS:
        /* acquire: 0 means complete, and PC_COPY must see it so, because the inputs are gone; pairs
         * with PC_DROP. Else only a guess, PC_USERS_ENTER decides */
        l->w = round_load(m, ROUND_USERS, l->c, 0, memory_order_acquire);
        return go(l, l->w == 0 ? PC_COPY : PC_USERS_ENTER);

    case PC_USERS_ENTER:
        word = l->w;
        /* acq_rel: keeps the chain to PC_DROP */
        if (!round_cas(m, ROUND_USERS, l->c, 0, &word, l->w + 1, memory_order_acq_rel)) {
            l->w = word;
            return go(l, word == 0 ? PC_COPY : PC_USERS_ENTER);
        }
        l->w = 0;
        l->inputs = 1;
        return go(l, PC_CLAIM);

    case PC_CLAIM:
        /* relaxed: uniqueness is all; inputs and result were acquired with the round */
        word = round_add(m, ROUND_NEXT, l->c, 0, 1, memory_order_relaxed);
        if (word >= x->slices)
            return go(l, PC_COPY);
        l->s = (uint32_t)word;
        return ask(l, PC_MARK, ROUND_REDUCE);

    case PC_MARK:
        /* seq_cst: the event before the ring of ROUND_COMPLETE; release is included: the slice, and
         * acquire: the others', for who completes; pairs with PC_COPY */
        word = round_or(m, ROUND_DONE, l->c, 0, UINT64_C(1) << l->s, memory_order_seq_cst);
        l->copied |= UINT64_C(1) << l->s;
        word |= UINT64_C(1) << l->s;
        l->s = 0;
        if (word != all_slices(x))
            return go(l, PC_CLAIM);
        (void)drop(l, l->c, PC_COPY); /* the token */
        return ROUND_COMPLETE;

    case PC_COPY:
        if (l->copied == all_slices(x)) {
            l->copied = l->ready = l->s = 0;
            return go(l, PC_LEAVE);
        }
        if (!(l->ready & ~l->copied)) {
            /* acquire: slices and, once complete, all; pairs with PC_MARK */
            l->ready = round_load(m, ROUND_DONE, l->c, 0, memory_order_acquire);
            if (l->ready & ~l->copied)
                return go(l, PC_COPY);
            if (!in.redo)
                return pause_for(l, PC_COPY, ROUND_WHY_SLICES);
            l->s = (uint32_t)__builtin_ctzll(~l->copied);
            l->copied |= UINT64_C(1) << l->s;
            return ask(l, PC_COPY, ROUND_REDO);
        }
        l->s = (uint32_t)__builtin_ctzll(l->ready & ~l->copied);
        l->copied |= UINT64_C(1) << l->s;
        return ask(l, PC_COPY, ROUND_COPY);

    /* -- leave ------------------------------------------------------------------------------- */
    case PC_LEAVE:
        return ask(l, PC_LEAVE_USERS, ROUND_COLLECT);

    case PC_LEAVE_USERS:
        if (l->inputs)
            return drop(l, l->c, PC_LEAVE_ROUND);
        __attribute__((fallthrough)); /* nothing was accessed */

    case PC_LEAVE_ROUND:
        took(l, l->u);
        return unref(l, l->c, 1, PC_RETURN);

    case PC_RETURN:
        return finish(l, l->t == 0 ? ROUND_GONE : l->fresh ? ROUND_FRESH : ROUND_LATE);

    /* -- departure ---------------------------------------------------------------------------- */
    case PC_DEPART:
        /* seq_cst: as PC_PUBLISH */
        round_store(m, ROUND_PUB, x->rank, 0, ROUND_DEPARTED, memory_order_seq_cst);
        return go(l, PC_DEPART_HOLD);

    case PC_DEPART_HOLD:
        /* acq_rel: the round it names; pairs with PC_HAND_SWAP */
        word = round_swap(m, ROUND_HOLD, x->rank, 0, ROUND_DEPARTED, memory_order_acq_rel);
        if (word != 0)
            return unref(l, round_low(word), 1, PC_RETURN);
        return go(l, PC_RETURN);

    /* -- subroutine: give back references ------------------------------------------------------ */
    case PC_UNREF:
        /* acq_rel: everything done with the round happens before its reuse; pairs with itself */
        word = round_sub(m, ROUND_REFS, l->unref_c, 0, l->unref_k, memory_order_acq_rel);
        return word == l->unref_k ? go(l, PC_UNREF_DONE) : unref_over(l);

    case PC_UNREF_DONE:
        /* relaxed: ordered by the acquire above */
        word = round_load(m, ROUND_DONE, l->unref_c, 0, memory_order_relaxed);
        if (word != all_slices(x))
            return drop(l, l->unref_c, PC_UNREF_FREE); /* nobody completed it: the token */
        return go(l, PC_UNREF_FREE);

    case PC_UNREF_FREE:
        /* release: the life is over; pairs with PC_FREE */
        round_store(m, ROUND_FREE, l->unref_c, 0, 1, memory_order_release);
        return unref_over(l);

    /* -- subroutine: stop using the inputs ------------------------------------------------------
     */
    case PC_DROP:
        /* acq_rel: all reads of the inputs happen before the buffers' reuse; pairs with itself */
        word = round_sub(m, ROUND_USERS, l->drop_c, 0, 1, memory_order_acq_rel);
        return word == 1 ? go(l, PC_DROP_HEAD) : drop_over(l);

    case PC_DROP_HEAD:
        /* relaxed: constant while the round is referenced */
        l->drop_head = round_load(m, ROUND_HEAD, l->drop_c, 0, memory_order_relaxed);
        return go(l, PC_DROP_IN);

    case PC_DROP_IN:
        /* relaxed: constant while the round is referenced */
        l->drop_in = round_load(m, ROUND_IN, l->drop_c, l->drop_i, memory_order_relaxed);
        return go(l, PC_DROP_CREF);

    case PC_DROP_CREF: {
        const int n = round_members_of(x, round_version(l->drop_head), round_low(l->drop_head) >> 1,
                                       round_low(l->drop_head) & 1, x->scratch);
        if (l->drop_in != ROUND_DEPARTED)
            /* acq_rel: reads before reuse; pairs with PC_BUFFER */
            round_sub(m, ROUND_CREF, (uint32_t)x->scratch[l->drop_i], round_buffer(l->drop_in), 1,
                      memory_order_acq_rel);
        return ++l->drop_i == (uint32_t)n ? drop_over(l) : go(l, PC_DROP_IN);
    }
    }
    __builtin_unreachable();
}

enum round_action round_run(const struct round_context *x, struct round_local *l,
                            const int32_t *members, struct round_input in) {
    enum round_action action;
    do
        action = round_step(x, l, members, in);
    while (action == ROUND_STEP);
    return action;
}
