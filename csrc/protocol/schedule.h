/* Which data a member of a group sends, receives and reduces, in which order. Pure: a schedule
 * follows from (algorithm, members, index, count), so that all members have matching ones.
 *
 * A schedule is a row of phases, first those that reduce, then those that copy. In a phase a member
 * exchanges ranges of elements with some peers, each of which a step names:
 *
 *   reduce   sends what it has of ranges that others go on with (phase 0: its contribution, else
 * its partial sum), receives theirs of the range that it keeps, and sums: its own and all that it
 * received, in the order of the members copy     sends what it has of the result, receives other
 * parts of it
 *
 * The algorithms (pictures and counts are in docs/schedules.md):
 *
 *   direct    one phase of each kind, with all other members: everybody reduces a part of the
 *             elements, from all contributions at once, and sends it to all
 *   halving   one phase of each kind per prime factor f of n, over groups of f members that differ
 *             in one digit of their index: n a power of two: recursive halving and doubling
 *   doubling  all elements to one peer per phase, log2 n phases; nothing is left to copy. Where n
 * is no power of two, some members hand theirs to a neighbour first, and get the result
 *
 * direct and halving send and receive 2 N (1 - 1/n) of N elements, doubling N ceil(log2 n) or a bit
 * more, in fewer messages.
 *
 * What a member has summed up are always the contributions of members with consecutive indices: it
 * tells their records before it sends the sum (tell), and hears those of its peers' (hear). */
#ifndef WAGMA_PROTOCOL_SCHEDULE_H
#define WAGMA_PROTOCOL_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

typedef enum schedule_algorithm {
    SCHEDULE_DOUBLING,
    SCHEDULE_HALVING,
    SCHEDULE_DIRECT,
    SCHEDULE_ALGORITHMS
} schedule_algorithm;

enum {
    SCHEDULE_PHASES_MAX = 24, /* of up to 2^11 and some members */
    SCHEDULE_ALIGN = 32,      /* parts of a range begin at multiples of so many elements of it */
};

typedef struct schedule_range { /* elements or members begin..end-1; none: begin == end */
    size_t begin, end;
} schedule_range;

typedef struct schedule_step { /* one peer of a phase */
    int peer;                  /* index of the member */
    int after; /* copy: what is received lies where the sends of this step were from; -1: nowhere */
    schedule_range send, receive;
    schedule_range tell, hear; /* members whose records go with it */
} schedule_step;

typedef struct schedule_phase {
    int begin, end;      /* its steps, by ascending peer */
    schedule_range kept; /* reduce: what this member sums up; what it receives is this range. copy:
                            of what it has the result afterwards */
} schedule_phase;

typedef struct schedule {
    schedule_algorithm algorithm;
    int n, index;
    size_t count;
    int phases, reduces; /* phases 0..reduces-1 reduce, the others copy; the same on all members */
    schedule_phase phase[SCHEDULE_PHASES_MAX];
    schedule_step *step; /* the caller's memory */
} schedule;

/* Steps that a schedule over n members has, at most. */
int schedule_steps(schedule_algorithm algorithm, int n);

/* Phases that one over up to n members has, at most. */
int schedule_phases(int n);

/* Fills s; s->step has room for schedule_steps(). 0 <= index < n <= 2^11 and some. */
void schedule_make(schedule *s, schedule_algorithm algorithm, int n, int index, size_t count);

/* The options schedule_*, by the same names. */
typedef struct schedule_limits {
    size_t switch_bytes, part; /* 1 or more */
    int direct;
} schedule_limits;

/* Which algorithm is fast for n members with so many bytes each: doubling up to `switch_bytes`;
 * then direct up to `direct` members if a member's part has `part` bytes, otherwise halving. */
schedule_algorithm schedule_choose(int n, size_t bytes, const schedule_limits *limits);

const char *schedule_name(schedule_algorithm algorithm);

#endif
