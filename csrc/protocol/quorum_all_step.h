/* Places of the quorum-"all" protocol's program, and what its parts share; see quorum_all.c. */
#ifndef WAGMA_PROTOCOL_QUORUM_ALL_STEP_H
#define WAGMA_PROTOCOL_QUORUM_ALL_STEP_H

#include "protocol/quorum_all.h"

enum quorum_all_pc {
    PC_ADMIT,
    PC_ADMIT_STATE,
    PC_WINDOW,
    PC_WINDOW_STATE,
    PC_ARRIVE,
    PC_PUBLISH,
    PC_GATHER,
    PC_GATHER_STATE,
    PC_GATHER_AGAIN,
    PC_REST,
    PC_REST_AGAIN,
    PC_RISE,
    PC_CLAIM,
    PC_CLAIM_TAKE,
    PC_DONE,
    PC_DONE_COUNT,
    PC_SLICED,
    PC_DRAIN,
    PC_WELL,
    PC_WELL_FINISH,
    PC_FINISH,
    PC_RETURN,
    /* while waiting */
    PC_SEEK,
    PC_SEEK_ARRIVE,
    PC_SEEK_FINISH,
    PC_SEEK_STAMP,
    PC_SEEK_SLICED,
    PC_SEEK_DONE,
};

/* Goes on at `pc` with the next step. */
static inline enum quorum_all_action go(struct quorum_all_local *l, enum quorum_all_pc pc) {
    l->pc = pc;
    return QUORUM_ALL_STEP;
}

/* Asks for `action`; the step after it is `pc`. */
static inline enum quorum_all_action ask(struct quorum_all_local *l, enum quorum_all_pc pc,
                                         enum quorum_all_action action) {
    l->pc = pc;
    return action;
}

static inline enum quorum_all_action pause_for(struct quorum_all_local *l, enum quorum_all_pc pc,
                                               enum quorum_all_why why) {
    l->why = why;
    return ask(l, pc, QUORUM_ALL_WAIT);
}

static inline int parity_of(int64_t version) {
    return (int)(version & 1);
}

/* Slices that a stamped word counts for `version`; a word of a later version counts more than any.
 */
static inline uint64_t counted(uint64_t word, int64_t version) {
    const uint64_t base = ((uint64_t)version + 1) << QUORUM_ALL_SLICE_BITS;
    return word < base ? 0 : word - base;
}

static inline uint64_t count_of(int64_t version, uint64_t slices) {
    return (((uint64_t)version + 1) << QUORUM_ALL_SLICE_BITS) + slices;
}

static inline int32_t leader_of(const struct quorum_all_local *l) {
    return l->present[0];
}

#endif
