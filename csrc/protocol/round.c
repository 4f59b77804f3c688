/* The round protocol; see round.h. One case per step, at most one shared access in each; the file
 * is long because the protocol is one state machine, and this switch is all of it.
 *
 * No object is made of this file alone: a file that defines round_load() and the other accesses to
 * memory includes it (shm/avoiding/memory.c, tests/explore/round.c). */
#include "protocol/round.h"

#include <stdatomic.h>
#include <string.h>

#include "protocol/starter.h"
#include "protocol/topology.h"

enum round_pc {
    PC_UNVIEW,
    PC_DISPUTE,
    PC_AT,
    PC_WINDOW,
    PC_WINDOW_AT,
    PC_PASSED,
    PC_BUFFER,
    PC_RESERVE,
    PC_PUBLISH,
    PC_ALONE,
    PC_SLOT,
    PC_LET_GO,
    PC_LET_GO_SWAP,
    PC_QUORUM,
    PC_QUORUM_AT,
    PC_QUORUM_NEXT,
    PC_FREE,
    PC_OLD,
    PC_HORIZON,
    PC_RETIRE,
    PC_RETIRED,
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
    PC_LATE_HEAD,
    PC_DISPUTE_SET,
    PC_LATE_REFS,
    PC_LATE_ACQUIRE,
    PC_LATE_VERIFY,
    PC_TO_ALL,
    PC_PRIVATE,
    PC_USERS,
    PC_USERS_ENTER,
    PC_CLAIM,
    PC_MARK,
    PC_COPY,
    PC_SPARE,
    PC_LEAVE_ARRAY,
    PC_LEAVE_IN,
    PC_LEAVE,
    PC_LEAVE_USERS,
    PC_LEAVE_ROUND,
    PC_NEXT,
    PC_JUMP,
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
    PC_DROP_LEFT,
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
 * rank that is waited for waits for, if fewer rounds than the bound were committed. Where quorums
 * vary there are no holds, and the rank that is waited for may have found a dispute. */
static inline enum round_action wait_for(const struct round_context *x, struct round_local *l,
                                         enum round_pc pc, enum round_why why) {
    l->why = why;
    l->resume_pc = pc;
    return ask(l, x->varies ? PC_DISPUTE : PC_LET_GO, ROUND_WAIT);
}

/* Subroutine: gives back k references of round c, then goes on at `pc`. */
static inline enum round_action unref(struct round_local *l, uint32_t c, uint32_t k,
                                      enum round_pc pc) {
    l->unref_c = c;
    l->unref_k = k;
    l->resume_pc = pc;
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
    const uint32_t pc = l->resume_pc;
    l->unref_c = l->unref_k = l->resume_pc = 0;
    return go(l, pc);
}

static inline enum round_action drop_over(struct round_local *l) {
    const uint32_t pc = l->drop_return;
    l->drop_c = l->drop_i = l->drop_return = 0;
    l->drop_head = l->drop_in = 0;
    return go(l, pc);
}

/* Member drop_i of the round, and how many it has. */
static uint32_t dropped_member(const struct round_context *x, const struct round_local *l,
                               uint32_t *n) {
    *n = x->size;
    if (x->world || x->varies || round_low(l->drop_head) & 1)
        return l->drop_i; /* of all ranks */
    *n = (uint32_t)round_members_of(x, round_version(l->drop_head), round_low(l->drop_head) >> 1, 0,
                                    x->scratch);
    return (uint32_t)x->scratch[l->drop_i];
}

/* It is done with; on to the next one of n. */
static inline enum round_action dropped(struct round_local *l, uint32_t n) {
    return ++l->drop_i == n ? drop_over(l) : go(l, PC_DROP_IN);
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

void round_init(struct round_local *l, int array) {
    memset(l, 0, sizeof *l);
    l->array = array ? 2 : 0;
}

/* Forgets everything but what lasts, so that equal situations are equal states. */
static void round_reset(struct round_local *l) {
    const struct round_local lasting = {.last = l->last,
                                        .horizon = l->horizon,
                                        .own = l->own,
                                        .reserved = l->reserved,
                                        .array = l->array,
                                        .jumped = l->jumped,
                                        .kept = l->kept};
    *l = lasting;
}

void round_begin(const struct round_context *x, struct round_local *l, uint64_t t, int sync,
                 enum round_source source, const int32_t *members, int count) {
    round_reset(l);
    l->t = t;
    l->sync = sync != 0;
    l->out_of_place = source == ROUND_FROM_RESERVED;
    l->from_array = source == ROUND_FROM_ARRAY;
    l->view = x->ordered || l->out_of_place;
    l->members = (uint32_t)count;
    l->leader = (uint32_t)members[0];
    while ((uint32_t)members[l->position] != x->rank)
        l->position++;
    l->low = ROUND_DEPARTED_VERSION;
    l->pc = l->kept ? PC_UNVIEW : x->ordered ? PC_AT : PC_WINDOW;
}

void round_begin_reserve(struct round_local *l, uint64_t t) {
    round_reset(l);
    l->t = t;
    l->pc = PC_RESERVE;
}

void round_begin_departure(struct round_local *l) {
    round_reset(l);
    l->pc = l->kept ? PC_UNVIEW : PC_DEPART;
}

/* Update the member that starts the version, of those seen so far, and whether it has arrived. */
static void draw(const struct round_context *x, struct round_local *l, const int32_t *members,
                 int here) {
    const int found = l->drawn ? members[l->drawn - 1] : -1;
    if (starter(x->topology.seed, l->t, l->leader, found, members[l->i]) == found)
        return;
    l->drawn = l->i + 1;
    l->drawn_here = (uint32_t)here;
}

/* Forgets a scan of the members. */
static void scan_again(struct round_local *l) {
    l->i = l->present = l->gone = l->awaited = l->drawn = l->drawn_here = 0;
}

/* At the window: rank l->i has gone as far as `version`. */
static enum round_action passed(const struct round_context *x, struct round_local *l,
                                uint64_t version) {
    if (version + x->window < l->t)
        return wait_for(x, l, PC_WINDOW, ROUND_WHY_WINDOW);
    if (version < l->low)
        l->low = version;
    if (++l->i < x->size)
        return go(l, PC_WINDOW);
    l->horizon = l->low;
    l->low = ROUND_DEPARTED_VERSION;
    l->i = 0;
    return go(l, PC_PASSED);
}

/* Leader of this rank's group of version v, which is no sync version. */
static uint32_t leader_at(const struct round_context *x, uint64_t v) {
    (void)round_members_of(x, v, x->rank, 0, x->scratch);
    return (uint32_t)x->scratch[0];
}

/* A round of this rank's group is taken, and not by its array's being written by all: where the
 * result comes from. With two fresh members each reduces for itself (3N of traffic instead of
 * 3.5N), unless one of them wants to look at the result; in a round of all ranks there is no shared
 * result, for there are many groups. */
static inline enum round_pc result_of(const struct round_context *x, const struct round_local *l) {
    return x->world || (l->fresh && l->members == 2 && !l->view) ? PC_PRIVATE : PC_USERS;
}

/* A round of this rank's group is taken. */
static inline enum round_pc reduce_of(const struct round_context *x, const struct round_local *l) {
    return l->fresh && l->takes ? PC_TO_ALL : result_of(x, l);
}

/* HEAD of the round of this version says that it was pinned with another quorum. */
static inline int is_disputed(const struct round_context *x, const struct round_local *l,
                              uint64_t head) {
    return x->varies && !l->sync && round_low(head) >> 1 != x->quorum;
}

/* The first buffer from l->i on that is neither published nor promised to a rank. */
static inline void skip_own(struct round_local *l) {
    while (l->i == l->own || l->i + 1 == l->reserved || l->i + 1 == l->array)
        l->i++;
}

enum round_action round_step(const struct round_context *x, struct round_local *l,
                             const int32_t *members, struct round_input in) {
    struct round_memory *m = x->memory;
    uint64_t word;

    switch ((enum round_pc)l->pc) {
    /* -- the view of the last result ends ------------------------------------------------------ */
    case PC_UNVIEW: {
        const uint32_t c = l->kept - 1;
        l->kept = 0;
        return unref(l, c, 1, l->t == 0 ? PC_DEPART : PC_WINDOW); /* ordered: nothing is kept */
    }

    /* -- varies, first and after each wait: was a version called with different quorums? ------- */
    case PC_DISPUTE: {
        const enum round_pc pc = (enum round_pc)l->resume_pc;
        /* acquire: the quorum of the rank that found it; pairs with PC_DISPUTE_SET */
        word = round_load(m, ROUND_DISPUTE, 0, 0, memory_order_acquire);
        l->resume_pc = 0;
        if (word == 0)
            return go(l, pc);
        l->w = word;
        return ask(l, PC_RETURN, ROUND_DISPUTED);
    }

    /* -- ordered: the results up to t - 1 are not looked at any more --------------------------- */
    case PC_AT:
        l->pc = x->varies ? PC_DISPUTE : PC_WINDOW;
        l->resume_pc = x->varies ? PC_WINDOW : 0;
        if (l->last + 1 == l->t && l->jumped) { /* others may wait for it at the window */
            /* seq_cst: the event before a ring; release is included: all reads of the results;
             * pairs with PC_WINDOW_AT */
            round_store(m, ROUND_AT, x->rank, 0, l->t - 1, memory_order_seq_cst);
            return ask(l, (enum round_pc)l->pc, ROUND_PASSED);
        }
        if (x->varies)
            return ROUND_STEP;
        __attribute__((fallthrough)); /* nothing was accessed */

    /* -- run-ahead window -------------------------------------------------------------------- */
    case PC_WINDOW:
        /* ordered: always, since the horizon says which rounds are old (PC_OLD) */
        if (x->ordered || l->t > l->horizon + x->window) {
            /* acquire: a rank seen at t - window has left the versions whose slot and arrival
             * cells this version reuses; pairs with the store in PC_PUBLISH */
            word = round_load(m, ROUND_PUB, l->i, 0, memory_order_acquire);
            if ((x->ordered || x->forward) && round_version(word) + 1 < l->t) {
                l->w = word;
                return go(l, PC_WINDOW_AT);
            }
            return passed(x, l, round_version(word));
        }
        l->low = ROUND_DEPARTED_VERSION;
        return go(l, PC_PASSED); /* nothing was read */

    case PC_WINDOW_AT: {
        const uint64_t published = round_version(l->w);
        l->w = 0;
        /* acquire: as in PC_WINDOW; pairs with PC_AT and PC_JUMP */
        word = round_load(m, ROUND_AT, l->i, 0, memory_order_acquire);
        return passed(x, l, word > published ? word : published);
    }

    case PC_PASSED:
        if (x->world) { /* a hold keeps the inputs of all ranks: not one that is of no use */
            l->resume_pc = PC_BUFFER;
            return go(l, PC_LET_GO);
        }
        __attribute__((fallthrough)); /* nothing was read */

    /* -- contribution ------------------------------------------------------------------------ */
    case PC_BUFFER:
        if (l->out_of_place) {
            l->buffer = l->reserved - 1;
            l->reserved = 0;
            return ask(l, PC_PUBLISH, ROUND_WRITE);
        }
        __attribute__((fallthrough)); /* nothing was accessed */

    case PC_RESERVE: {
        const enum round_pc pc = l->pc == PC_RESERVE ? PC_RESERVE : PC_BUFFER;
        skip_own(l);
        if (l->i >= x->buffers_usable) {
            l->i = 0;
            return wait_for(x, l, pc, ROUND_WHY_BUFFER);
        }
        /* seq_cst: Dekker with PC_PIN_REFER/PC_PIN_CHECK: either this load sees the pinner's
         * reference, or the pinner sees that PUB names another buffer. acquire is included: the
         * readers of the buffer are done; pairs with PC_DROP_CREF and PC_PIN_UNDO */
        if (round_load(m, ROUND_CREF, x->rank, l->i, memory_order_seq_cst) != 0) {
            l->i++;
            return go(l, pc);
        }
        if (pc == PC_RESERVE) {
            l->reserved = l->i + 1;
            l->i = 0;
            return finish(l, ROUND_RESERVED);
        }
        l->buffer = l->i;
        if (l->from_array) {
            l->buffer = l->array - 1;
            l->array = l->i + 1;
            if (x->spare && !x->world && !x->ordered && l->array <= ROUND_TAKES_MAX)
                l->takes = l->array;
        }
        l->i = 0;
        return ask(l, PC_PUBLISH, ROUND_WRITE);
    }

    case PC_PUBLISH:
        /* seq_cst: the store side of the Dekker above (for the buffer published before), and
         * store-then-scan of PC_QUORUM: of k arrivals the last one in the total order sees all k.
         * release is included: the contribution is readable; pairs with PC_PIN_CHECK */
        round_store(m, ROUND_PUB, x->rank, 0,
                    round_pack(l->t, l->buffer | l->takes << ROUND_BUFFER_BITS |
                                         (l->sync ? ROUND_PUB_SYNC : 0) |
                                         (l->view ? ROUND_PUB_VIEW : 0)),
                    memory_order_seq_cst);
        l->own = l->buffer;
        l->buffer = 0;
        return go(l, l->members == 1 ? PC_ALONE : PC_SLOT);

    case PC_ALONE: /* a step of its own, so that a posted call can end before it */
        took(l, l->t);
        return finish(l, ROUND_ALONE);

    /* -- give back a hold of an older version -------------------------------------------------- */
    case PC_LET_GO: {
        const enum round_pc pc = (enum round_pc)l->resume_pc;
        /* acquire: the round that the hold names; pairs with PC_HAND_SWAP */
        word = round_load(m, ROUND_HOLD, x->rank, 0, memory_order_acquire);
        if (word != 0 && round_version(word) < l->t) {
            l->w = word;
            return go(l, PC_LET_GO_SWAP);
        }
        l->resume_pc = 0;
        return go(l, pc);
    }

    case PC_LET_GO_SWAP: {
        const enum round_pc pc = (enum round_pc)l->resume_pc;
        word = l->w;
        l->w = 0;
        l->resume_pc = 0;
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
        const int past = x->forward && !l->sync && round_version(word) > l->t;
        if (word == ROUND_DEPARTED || past) { /* past: without t, which its counter jumped over */
            l->gone++;
        } else if (round_version(word) > l->t) {
            l->other = q + 1; /* it has left t, so the slot must be set: look again */
            scan_again(l);
            return go(l, PC_SLOT);
        } else if (round_version(word) == l->t) {
            if (!(round_low(word) & ROUND_PUB_SYNC) != !l->sync) {
                l->other = q;
                return ask(l, PC_RETURN, ROUND_MISMATCH);
            }
            l->present++;
        } else if (x->forward && !l->sync) { /* it may be about to go past t */
            l->w = word;
            return go(l, PC_QUORUM_AT);
        } else if (round_version(word) + 1 == l->t) {
            l->awaited++; /* one further behind cannot arrive in time */
        }
        if (x->quorum == 0 && word != ROUND_DEPARTED && !past)
            draw(x, l, members, round_version(word) == l->t);
        l->i++;
        return go(l, PC_QUORUM_NEXT);
    }

    case PC_QUORUM_AT: {
        const uint64_t published = round_version(l->w);
        l->w = 0;
        /* seq_cst: as PC_QUORUM; pairs with PC_JUMP */
        word = round_load(m, ROUND_AT, (uint32_t)members[l->i], 0, memory_order_seq_cst);
        if (word >= l->t) {
            l->gone++;
        } else {
            l->awaited += (word > published ? word : published) + 1 == l->t;
            if (x->quorum == 0)
                draw(x, l, members, 0);
        }
        l->i++;
        return go(l, PC_QUORUM_NEXT);
    }

    case PC_QUORUM_NEXT: {
        if (l->i < l->members)
            return go(l, PC_QUORUM);
        const uint32_t all = l->members - l->gone;
        const uint32_t need = l->sync || x->quorum > all ? all : x->quorum;
        const int too_few = l->present < need || (x->quorum == 0 && !l->drawn_here);
        const int awaiting = l->awaited && !in.grace_over;
        scan_again(l);
        if (!too_few && !awaiting)
            return go(l, PC_FREE);
        l->slot = 0;
        return wait_for(x, l, PC_SLOT, too_few ? ROUND_WHY_QUORUM : ROUND_WHY_GRACE);
    }

    /* -- pin: lock-free, the losers undo ------------------------------------------------------ */
    case PC_FREE:
        if (l->i >= x->rounds_usable) {
            l->i = 0;
            l->slot = 0;
            return wait_for(x, l, x->ordered ? PC_HORIZON : PC_SLOT, ROUND_WHY_ROUND);
        }
        l->c = x->rank * x->rounds + l->i;
        /* acquire: all users of its last life are gone; pairs with PC_UNREF_FREE */
        if (!round_load(m, ROUND_FREE, l->c, 0, memory_order_acquire)) {
            if (x->ordered)
                return go(l, PC_OLD);
            l->i++;
            return go(l, PC_FREE);
        }
        l->i = 0;
        return go(l, PC_TAKE);

    /* -- ordered: a round is kept until every rank has gone past its version ------------------- */
    case PC_OLD:
        /* relaxed: written by this rank. That all are done with an old one: acquire in PC_WINDOW */
        word = round_load(m, ROUND_HEAD, l->c, 0, memory_order_relaxed);
        if (round_version(word) >= l->horizon) {
            l->i++;
            return go(l, PC_FREE);
        }
        l->i = 0;
        return go(l, PC_RETIRE);

    case PC_HORIZON: /* they were too few: some may be old by now */
        /* acquire: as PC_WINDOW */
        word = round_load(m, ROUND_PUB, l->i, 0, memory_order_acquire);
        if (round_version(word) < l->low)
            l->low = round_version(word);
        if (++l->i < x->size)
            return go(l, PC_HORIZON);
        l->horizon = l->low;
        l->low = ROUND_DEPARTED_VERSION;
        l->i = 0;
        return go(l, PC_SLOT);

    case PC_RETIRE:
        /* relaxed: nobody looks at it any more */
        round_store(m, ROUND_REFS, l->c, 0, 0, memory_order_relaxed);
        return go(l, PC_RETIRED);

    case PC_RETIRED:
        round_store(m, ROUND_FREE, l->c, 0, 1, memory_order_relaxed); /* of interest to this rank */
        return go(l, PC_TAKE);

    case PC_TAKE:
        /* relaxed: only the owner reads 1 here, and only others' PC_UNREF_FREE sets it again */
        round_store(m, ROUND_FREE, l->c, 0, 0, memory_order_relaxed);
        return go(l, PC_HEAD);

    case PC_HEAD:
        /* relaxed, but before IN (release): a rank that reads IN of this life sees this HEAD */
        round_store(m, ROUND_HEAD, l->c, 0,
                    round_pack(l->t, (x->varies ? x->quorum : l->leader) << 1 | l->sync),
                    memory_order_relaxed);
        return go(l, PC_PIN_READ);

    case PC_PIN_READ:
        /* relaxed: only a guess, PC_PIN_CHECK decides */
        l->w = round_load(m, ROUND_PUB, (uint32_t)members[l->i], 0, memory_order_relaxed);
        if (x->forward && round_version(l->w) > l->t)
            l->w = ROUND_DEPARTED; /* from this version */
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
        if (x->ordered) { /* a late rank finds it in the slot */
            l->fresh = 1;
            return ask(l, PC_USERS, ROUND_PINNED);
        }
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
        return go(l, reduce_of(x, l));

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
        if (is_disputed(x, l, word))
            return go(l, PC_DISPUTE_SET);
        l->fresh = 1; /* and so one of its references is this rank's */
        l->slot = 0;
        return go(l, reduce_of(x, l));

    /* -- late: take the newest pinned version u >= t ------------------------------------------ */
    case PC_LATE_HOLD:
        if (l->sync) { /* a sync version has no late ranks: the slot is of another call */
            l->other = l->leader;
            return ask(l, PC_RETURN, ROUND_MISMATCH);
        }
        l->late = 1;
        if (x->ordered) { /* its results stay until this rank has gone past them */
            l->slot = 0;
            return go(l, x->varies ? PC_LATE_HEAD : PC_USERS);
        }
        l->view = 0; /* the result is merged with this rank's own */
        /* acquire: the round it names; pairs with PC_HAND_SWAP */
        l->w = round_load(m, ROUND_HOLD, x->rank, 0, memory_order_acquire);
        if (round_version(l->w) <= l->t)
            l->w = l->slot;
        l->u = round_version(l->w);
        l->c = round_low(l->w);
        if (l->u <= l->last)
            return finish(l, ROUND_UNMERGED);
        return go(l, PC_LATE_REFS);

    /* ---- varies: with which quorum was it pinned? -------------------------------------------- */
    case PC_LATE_HEAD:
        /* relaxed: ordered by PC_SLOT, and the round is kept until this rank has gone past it */
        word = round_load(m, ROUND_HEAD, l->c, 0, memory_order_relaxed);
        return go(l, is_disputed(x, l, word) ? PC_DISPUTE_SET : PC_USERS);

    case PC_DISPUTE_SET:
        word = 0;
        /* acq_rel: release: this rank's quorum, which others name; pairs with PC_DISPUTE; acquire:
         * that of a rank that was first */
        l->w = round_pack(l->t, x->rank + 1);
        if (!round_cas(m, ROUND_DISPUTE, 0, 0, &word, l->w, memory_order_acq_rel))
            l->w = word;
        return ask(l, PC_RETURN, ROUND_DISPUTED);

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
        return go(l, reduce_of(x, l));

    /* ---- are all members there from their arrays? The answer is the same for each ------------ */
    case PC_TO_ALL:
        /* relaxed: ordered by PC_SLOT, or this rank's own. PC_LEAVE_IN changes nothing here */
        word = round_load(m, ROUND_IN, l->c, l->i, memory_order_relaxed);
        if (round_version(word) != l->t || !round_takes(word)) {
            l->i = 0;
            return go(l, result_of(x, l));
        }
        if (++l->i < l->members)
            return go(l, PC_TO_ALL);
        l->i = 0;
        l->to_all = 1;
        return go(l, PC_USERS);

    /* -- each reduces for itself: the inputs stay pinned by this rank's reference, since DONE stays
     * empty ----------------------------------------------------------------------------------- */
    case PC_PRIVATE:
        if (x->world)
            return ask(l, PC_LEAVE, ROUND_PRIVATE);
        /* relaxed: ordered by PC_FRESH_IN, or this rank's own */
        word = round_load(m, ROUND_IN, l->c, 1 - l->position, memory_order_relaxed);
        if (round_version(word) != l->t || (round_low(word) & ROUND_PUB_VIEW))
            return go(l, PC_USERS);
        return ask(l, PC_LEAVE, ROUND_PRIVATE);

    /* ---- reduce: slices are claimed, the shared result is written by the claimers only ------- */
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
        if (!l->view && !l->to_all)
            l->copied |= UINT64_C(1) << l->s;
        word |= UINT64_C(1) << l->s;
        l->s = 0;
        if (word != all_slices(x))
            return go(l, PC_CLAIM);
        (void)drop(l, l->c, PC_COPY); /* the token */
        return ROUND_COMPLETE;

    case PC_COPY:
        if ((l->view || l->to_all) && !l->copying) {
            /* acquire: the slices; pairs with PC_MARK */
            word = round_load(m, ROUND_DONE, l->c, 0, memory_order_acquire);
            if (word == all_slices(x))
                return go(l, PC_LEAVE);
            if (!in.redo)
                return pause_for(l, PC_COPY, ROUND_WHY_SLICES);
            if (l->to_all)
                return go(l, PC_SPARE);
            l->copying = 1; /* who has a slice may be stopped: a copy of this rank's own */
            l->ready = word;
            return go(l, PC_COPY);
        }
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

    /* -- who has a slice may be stopped, and write it later: this rank's array shows another buffer
     * then, and what it was to show stays with the round, of which that rank is a user -----------
     */
    case PC_SPARE:
        skip_own(l);
        if (l->i >= x->buffers_usable) { /* there may be more, and the slice may be done */
            l->i = 0;
            return pause_for(l, PC_COPY, ROUND_WHY_BUFFER);
        }
        /* seq_cst: as PC_RESERVE */
        if (round_load(m, ROUND_CREF, x->rank, l->i, memory_order_seq_cst) != 0) {
            l->i++;
            return go(l, PC_SPARE);
        }
        l->copying = 1;
        return go(l, PC_LEAVE_ARRAY);

    case PC_LEAVE_ARRAY:
        /* relaxed: before this rank leaves the users (acq_rel); pairs with PC_DROP */
        round_add(m, ROUND_CREF, x->rank, l->array - 1, 1, memory_order_relaxed);
        l->array = l->i + 1;
        l->i = 0;
        return go(l, PC_LEAVE_IN);

    case PC_LEAVE_IN:
        /* relaxed: likewise. Nobody else changes this word, and nobody else cares before PC_DROP */
        round_or(m, ROUND_IN, l->c, l->position, ROUND_PUB_LEFT, memory_order_relaxed);
        return go(l, PC_COPY);

    /* -- leave ------------------------------------------------------------------------------- */
    case PC_LEAVE: return ask(l, PC_LEAVE_USERS, ROUND_COLLECT);

    case PC_LEAVE_USERS:
        if (l->inputs)
            return drop(l, l->c, PC_LEAVE_ROUND);
        __attribute__((fallthrough)); /* nothing was accessed */

    case PC_LEAVE_ROUND:
        took(l, l->u);
        if (x->ordered) /* a sync version ends the call: x is its result, not that of a newer one */
            return go(l, l->sync ? PC_RETURN : PC_NEXT);
        if (x->forward && l->u > l->t)
            return unref(l, l->c, 1, PC_JUMP);
        if (l->view && !l->copying && !x->world) { /* until the next call */
            l->kept = l->c + 1;
            return go(l, PC_RETURN);
        }
        return unref(l, l->c, 1, PC_RETURN);

    /* -- ordered: is the next version pinned, too? This rank cannot be in it ------------------- */
    case PC_NEXT:
        /* acquire: as PC_SLOT */
        word = round_load(m, ROUND_SLOT, leader_at(x, l->u + 1), (uint32_t)((l->u + 1) % x->slots),
                          memory_order_acquire);
        if (round_version(word) != l->u + 1)
            return go(l, PC_RETURN);
        l->u++;
        l->c = round_low(word);
        l->fresh = l->sync = l->inputs = l->copying = 0;
        return go(l, PC_USERS);

    /* -- forward: the versions up to u are skipped --------------------------------------------- */
    case PC_JUMP:
        /* seq_cst: the event before a ring; pairs with PC_WINDOW_AT */
        round_store(m, ROUND_AT, x->rank, 0, l->u, memory_order_seq_cst);
        return ask(l, PC_RETURN, ROUND_PASSED);

    case PC_RETURN:
        l->jumped = x->ordered && l->u > l->t;
        return finish(l, l->t == 0 ? ROUND_GONE : l->late ? ROUND_LATE : ROUND_FRESH);

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

    /* ---- subroutine: stop using the inputs --------------------------------------------------- */
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
        uint32_t n;
        const uint32_t member = dropped_member(x, l, &n);
        if (l->drop_in != ROUND_DEPARTED)
            /* acq_rel: reads before reuse; pairs with PC_BUFFER */
            round_sub(m, ROUND_CREF, member, round_buffer(l->drop_in), 1, memory_order_acq_rel);
        return round_low(l->drop_in) & ROUND_PUB_LEFT ? go(l, PC_DROP_LEFT) : dropped(l, n);
    }

    case PC_DROP_LEFT: {
        uint32_t n;
        const uint32_t member = dropped_member(x, l, &n);
        /* acq_rel: writes before reuse; pairs with PC_BUFFER and PC_SPARE */
        round_sub(m, ROUND_CREF, member, round_takes(l->drop_in) - 1, 1, memory_order_acq_rel);
        return dropped(l, n);
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
