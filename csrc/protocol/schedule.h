/* Schedule of an exchange: the data that a member of a group sends, receives and reduces, in order.
 * Pure: a schedule follows from (algorithm, members, index, count), so that the schedules of all
 * members match.
 *
 * A schedule is a sequence of phases: first those that reduce, then those that copy. In a phase a
 * member exchanges ranges of elements with some peers, one step per peer:
 *
 *   reduce   The member sends its contribution (phase 0) or its partial sum of the ranges that the
 *            peers keep, receives the peers' data of the range that it keeps itself, and sums its
 *            own and all received data in the order of the members.
 *   copy     The member sends the parts of the result that it has, and receives other parts.
 *
 * docs/schedules.md describes the algorithms direct, halving and doubling: their phases, and how
 * much each sends.
 *
 * A partial sum always holds the contributions of members with consecutive indices. Before a member
 * sends a sum, it sends the records of these members (tell); it receives those of its peers' sums
 * (hear). */
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
    SCHEDULE_PHASES_MAX = 24, /* of up to WAGMA_MAX_RANKS members */
    SCHEDULE_ALIGN = 32,      /* parts of a range begin at multiples of so many elements */
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

/* Return the most steps of a schedule over n members. */
int schedule_steps(schedule_algorithm algorithm, int n);

/* Return the most phases of a schedule over up to n members. */
int schedule_phases(int n);

/* Fills s; s->step has room for schedule_steps(). 0 <= index < n <= 2^11 and some. */
void schedule_make(schedule *s, schedule_algorithm algorithm, int n, int index, size_t count);

/* Return what the member keeps in phase 0; it sends the rest of its contribution. */
schedule_range schedule_kept(schedule_algorithm algorithm, int n, int index, size_t count);

/* The options schedule_*, by the same names. */
typedef struct schedule_limits {
    size_t switch_bytes, part; /* 1 or more */
    int direct;
} schedule_limits;

/* Return a fast algorithm for n members with `bytes` each: doubling up to `switch_bytes`; above,
 * direct up to `direct` members if a member's part has at least `part` bytes; otherwise halving. */
schedule_algorithm schedule_choose(int n, size_t bytes, const schedule_limits *limits);

const char *schedule_name(schedule_algorithm algorithm);

#endif
