/* Progress of a handle while its owner computes: a mutex, and a thread that drives the engine under
 * it.
 *
 *   owner    progress_enter() ... its call, which drives the engine as well ... progress_leave()
 *   thread   poll - pause - poll - pause ...
 *
 * The thread stands aside while the owner is in a call (`wanted`). The thread holds the mutex only
 * during a poll and pauses without it, so owner and thread wait for each other at most until a poll
 * ends. Each handle has its own thread: handles do not wait for each other's polls, and a thread
 * ends with its handle.
 *
 * Waking the thread costs two context switches. An owner that calls without a break drives the
 * engine itself and leaves the thread asleep; the thread wakes up after `sleep`.
 *
 * The result of a poll determines the next pause (progress_pause(), pure). Nothing in flight:
 * `sleep` at once. Something in flight: no pause at first, so that data moves; the longer nothing
 * moves, the longer the pauses, up to `sleep` and at most 1/64 of the time since the last movement.
 */
#ifndef WAGMA_MESSAGES_PROGRESS_H
#define WAGMA_MESSAGES_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "include/wagma.h"

enum progress_found {
    PROGRESS_IDLE,  /* nothing in flight */
    PROGRESS_STILL, /* something in flight, and nothing moved */
    PROGRESS_MOVED, /* something moved: look again at once */
};

/* Polls once. *deadline (ns, CLOCK_MONOTONIC; 0: none) is the latest time for the next poll. */
typedef enum progress_found progress_poll(void *context, uint64_t *deadline);

struct progress {
    pthread_mutex_t mutex; /* recursive: a hook of the owner may ask for counters */
    pthread_mutex_t door;  /* of the bell; taken last */
    pthread_cond_t bell;   /* the thread sleeps on it */
    pthread_t thread;
    int exists, running; /* the mutexes and the bell; the thread */
    atomic_int stop;     /* it shall end */
    int rung;            /* under the door: it shall poll, not sleep */
    atomic_int wanted;   /* owners in, or about to come in: the thread stands aside */
    uint64_t moved;      /* ns: when something moved, or the owner left work behind */
    uint64_t left, away; /* ns: when the owner left, and for how long it was away before its call */
    int back_at_once;    /* how it left */
    _Atomic uint64_t wakeups; /* polls of the thread; read by any other */
    int mode;                 /* wagma_progress */
    uint64_t sleep;           /* ns */
    progress_poll *poll;
    void *context;
};

/* Return the pause (ns; 0: none) after a poll that found `found`, when the last movement was
 * `still` ns ago. */
uint64_t progress_pause(enum progress_found found, uint64_t still, uint64_t sleep);

/* Make the mutex. WAGMA_OK or an error. The other functions do nothing before that. */
int progress_create(struct progress *p, const wagma_options *options, progress_poll *poll,
                    void *context);
/* Starts the thread, unless the mode is WAGMA_PROGRESS_MAIN. WAGMA_OK or an error. */
int progress_start(struct progress *p, int cpu);
/* Make the thread stop polling and end as soon as it can; the owner may be in a call. */
void progress_end(struct progress *p);
/* Wait until the thread has ended; the owner must not be in a call. Both functions are harmless
 * when repeated. */
void progress_join(struct progress *p);
void progress_destroy(struct progress *p); /* joins */

void progress_enter(struct progress *p);
/* Poll once for the owner between two calls, unless the thread is polling. This does not count as a
 * call: `left` and `away` do not change. */
void progress_peek(struct progress *p);
enum progress_left {
    PROGRESS_NOTHING_LEFT, /* the thread goes on as it was */
    PROGRESS_WORK_LEFT,    /* it wakes up, if the owner takes its time between calls */
    PROGRESS_POSTED,       /* it wakes up: the owner is about to do something else */
    PROGRESS_BACK_AT_ONCE, /* the owner is about to come in again: a thread that wakes up meanwhile
                              would only be in its way */
};
void progress_leave(struct progress *p, enum progress_left left);

/* Pauses for `ns` on the owner's thread, which stays in. 0: only gives the core away. */
void progress_rest(uint64_t ns);

/* Turns of a thread that polls on a core which others may need. */
struct progress_turns {
    uint64_t resumed; /* ns: when its turn began */
    long switches;    /* of threads on the core until then, so far as was looked */
    int yields;       /* its own since, each of which may have been one */
};

/* Yield the core, unless another thread has run on it since the last yield: some MPIs yield in a
 * poll that finds nothing, and a second yield would only lose time. Return 1 after a yield. */
int progress_take_turns(struct progress_turns *t, uint64_t now);

#endif
