/* A handle that goes on by itself: a mutex, and a thread that drives the engine under it while its
 * owner computes.
 *
 *   owner    progress_enter() ... its call, which drives the engine as well ... progress_leave()
 *   thread   poll - pause - poll - pause ...
 *
 * The thread stands aside while the owner is in (`wanted`): it takes the mutex for a poll only, and
 * pauses without it, so that neither waits for the other but for the end of a poll. One thread per
 * handle: handles do not wait for each other's polls, and each one's ends with it.
 *
 * Waking the thread costs two changes of the process on a core. An owner that calls without a break
 * drives by itself: it leaves the thread asleep, which looks by itself after `sleep`.
 *
 * A pause depends on what the poll found (progress_pause(), pure): nothing in flight: `sleep` at
 * once; something in flight: none at first, so that data moves on; but the longer nothing moves,
 * the longer the pauses, up to `sleep`, at most 1/64 of the time that it has taken already. */
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

/* Polls once; *deadline (ns, CLOCK_MONOTONIC; 0: none): when it wants to be called at the latest.
 */
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

/* How long to pause after a poll that found `found`, when the last one that moved something was
 * `still` ns ago: ns; 0: not at all. */
uint64_t progress_pause(enum progress_found found, uint64_t still, uint64_t sleep);

/* Makes the mutex. WAGMA_OK or an error. All others do nothing before it has. */
int progress_create(struct progress *p, const wagma_options *options, progress_poll *poll,
                    void *context);
/* Starts the thread, unless the mode is WAGMA_PROGRESS_MAIN. WAGMA_OK or an error. */
int progress_start(struct progress *p, int cpu);
/* The thread polls no more, and ends as soon as it can; the owner may be in. */
void progress_end(struct progress *p);
/* It has ended; the owner must not be in. Both are harmless when repeated. */
void progress_join(struct progress *p);
void progress_destroy(struct progress *p); /* joins */

void progress_enter(struct progress *p);
/* Polls once for the owner between two calls, unless the thread polls at this moment. This is no
 * call: it leaves `left` and `away` as they are, however often the owner looks. */
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

/* Gives the core away, unless somebody else had it since the last time: some MPIs give it away
 * themselves in a poll that finds nothing, and a second round of all others would only be lost.
 * 1: gave it away. */
int progress_take_turns(struct progress_turns *t, uint64_t now);

#endif
