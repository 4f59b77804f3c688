/* Trials: a few ranks, under options drawn at random of every policy, that contribute what is drawn
 * at random. A seed draws the same trial everywhere; failures print it. oracle.h says what the
 * calls have to give.
 *
 * A player belongs to one thread at a time, and players of a trial may run at once. */
#ifndef WAGMA_TESTS_TRIAL_H
#define WAGMA_TESTS_TRIAL_H

#include <pthread.h>

#include "place.h"
#include "support.h"

enum { TRIAL_RANKS = 6, TRIAL_VERSIONS = 80 };
/* Period of an array's elements; it divides none of the sizes that the engine uses. */
enum { TRIAL_PERIOD = 7 };

/* ONE_THREAD: it must not wait, so that it does not reserve buffers where memory is limited. JUMPS:
 * of missed="fast-forward" alone. */
enum trial_kind { TRIAL_ONE_THREAD, TRIAL_THREADS, TRIAL_JUMPS };

typedef struct player {
    struct trial *trial;
    int rank;
    uint64_t random;
    int64_t departs; /* its first version that it does not call */
    void *x;         /* its array; before the first call: its contribution at creation */
    /* the call in progress or just over */
    int64_t t;
    int sync; /* calls wagma_sync() */
    int out_of_place;
    void *array;  /* the call's: x, or a contribution buffer */
    place *place; /* of the arrays */
    void *host;   /* what was put into the array, on the host; x itself where that is there */
    double value, weight;
    double carried, carried_weight; /* CARRY; weight 0: nothing */
} player;

enum trial_digest { DIGEST_AVERAGE, DIGEST_SUM, DIGEST_LIST, DIGESTS };

typedef struct trial {
    char name[256]; /* seed and options */
    wagma_options options;
    int64_t versions;
    uint64_t random;
    int buffers; /* wagma_next_contribution() is allowed */
    char explicit_sync[TRIAL_VERSIONS];
    player player[TRIAL_RANKS];
    /* what was contributed, of versions -1, 0, ...: element i is value * (1 + i % TRIAL_PERIOD) */
    double value[TRIAL_RANKS][TRIAL_VERSIONS + 1], weight[TRIAL_RANKS][TRIAL_VERSIONS + 1];
    pthread_mutex_t lock; /* of what follows: by the first member of the group; 0: not yet known */
    uint64_t digest[DIGESTS][TRIAL_RANKS][TRIAL_VERSIONS];
} trial;

/* 0 .. n - 1 */
uint32_t draw(uint64_t *random, uint32_t n);

void trial_begin(trial *g, uint64_t seed, enum trial_kind kind);
void trial_end(trial *g);
size_t trial_bytes(const trial *g); /* of an array */
int trial_is_sync(const trial *g, int64_t t);
/* Members of the version that rank r takes; the first of them into *leader. */
int trial_members_of(const trial *g, int r, int64_t t, int *leader);

/* EXPECT for a player: prints the trial, rank and version as well. */
#define HOLDS(p, condition, format, ...)                                                           \
    EXPECT(condition, "rank %d version %lld: " format " [%s]", (p)->rank, (long long)(p)->t,       \
           __VA_ARGS__, (p)->trial->name)

/* Draws the next call of h, and writes its contribution to p->array. A status of wagma.h. */
int player_contribute(player *p, wagma_handle *h);

/* ---- arrays ---------------------------------------------------------------------------------- */
int array_is_integer(int dtype);
int array_is_half(int dtype);
size_t array_element_bytes(int dtype);

#endif
