/* Ranks with arrays on simulated devices that one thread plays. */
#ifndef WAGMA_TESTS_DEVICE_STAGE_H
#define WAGMA_TESTS_DEVICE_STAGE_H

#include "contribution.h"
#include "place.h"
#include "support.h"

enum { COUNT = 20011, BYTES = COUNT * (int)sizeof(double) };

/* x[r] is rank r's array, which holds its contribution -1. */
typedef struct stage {
    cast cast;
    void *x[RANKS_MAX];
    rank me[RANKS_MAX];
} stage;

/* Queues array = the rank's contribution of the version. */
void put(int r, void *array, int64_t version);
/* 1: done, as cast_open(). */
int stage_open(stage *s, const wagma_options *o, uint64_t seed);
void stage_close(stage *s);
/* Likewise, after an error has broken handles. */
void stage_drop(stage *s);
/* Posts the contribution of version t, and goes on until it is published. Returns the call's
 * status. */
int publish(stage *s, int r, void *array, int64_t t);
/* Compares what an array on rank r's device holds with the oracle's result for the outcome. */
void expect_outcome(const stage *s, int r, const void *array, const wagma_outcome *o);
/* Posts a call of rank 0 whose x is not produced: it returns at once, nobody waits for it, and it
 * is late. */
void play_posted_before_x(uint64_t seed);

#endif
