/* See progress.h. */
#define _GNU_SOURCE /* affinity, names and resources of threads */
#include "messages/progress.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"

enum {
    PATIENCE_NS = 5000000, /* from then on it pays to sleep: a 64th of it is more than the 55 us
                              that the shortest sleep takes */
    PATIENCE_SHARE = 64,
    POLL_NS = 2000,   /* a poll that takes longer may have given the core away */
    AWAY_NS = 200000, /* between two calls: from then on a thread that is woken does something in
                         that time */
};

uint64_t progress_pause(enum progress_found found, uint64_t still, uint64_t sleep) {
    if (found == PROGRESS_MOVED)
        return 0;
    if (found == PROGRESS_IDLE)
        return sleep;
    const uint64_t pause = still < PATIENCE_NS ? 0 : still / PATIENCE_SHARE;
    return pause < sleep ? pause : sleep;
}

void progress_rest(uint64_t ns) {
    const struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    if (ns == 0)
        sched_yield();
    else
        nanosleep(&time, NULL); /* a signal only makes it shorter */
}

static long switches_of_this_thread(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw + usage.ru_nivcsw : 0;
}

int progress_take_turns(struct progress_turns *t, uint64_t now) {
    int gave = 0;
    if (now - t->resumed >= POLL_NS) {
        const long switches = switches_of_this_thread();
        gave = switches - t->switches > t->yields;
        t->switches = switches;
        t->yields = 0;
    }
    if (!gave) {
        sched_yield();
        t->yields++;
    }
    t->resumed = gave ? now : clock_now();
    return !gave;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* On the bell, until `until` (ns; 0: for ever), if it did not ring before, and in any case only
 * while somebody `wants` the engine, if that is the reason. */
static void sleep_on_bell(struct progress *p, uint64_t until, int while_wanted) {
    const struct timespec time = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    int error = 0;
    pthread_mutex_lock(&p->door);
    /* relaxed: a thread that changes either takes the door afterwards, to ring */
    while (error == 0 && !p->rung && !atomic_load_explicit(&p->stop, memory_order_relaxed) &&
           (!while_wanted || atomic_load_explicit(&p->wanted, memory_order_relaxed) > 0))
        error = until == 0 ? pthread_cond_wait(&p->bell, &p->door)
                           : pthread_cond_timedwait(&p->bell, &p->door, &time);
    p->rung = 0;
    pthread_mutex_unlock(&p->door);
}

static void ring(struct progress *p) {
    pthread_mutex_lock(&p->door);
    p->rung = 1;
    pthread_cond_signal(&p->bell);
    pthread_mutex_unlock(&p->door);
}

/* One poll; ns, when the next one is due, and 0: at once. */
static uint64_t poll_once(struct progress *p, enum progress_found *result) {
    uint64_t deadline = 0;
    const enum progress_found found = *result = p->poll(p->context, &deadline);
    const uint64_t now = clock_now();
    p->wakeups++;
    if (found == PROGRESS_MOVED)
        p->moved = now;
    const uint64_t pause =
        p->mode == WAGMA_PROGRESS_SLEEP ? progress_pause(found, now - p->moved, p->sleep) : 0;
    uint64_t until = now + pause;
    if (deadline != 0 && deadline < until)
        until = deadline;
    return until > now ? until : 0;
}

/* The owner is in. One that polls hard is rung when that leaves; one that sleeps anyway looks by
 * itself whether it has left. */
static void stand_aside(struct progress *p) {
    if (p->mode == WAGMA_PROGRESS_SLEEP)
        sleep_on_bell(p, clock_now() + p->sleep, 0);
    else
        sleep_on_bell(p, 0, 1);
}

static void *run(void *argument) {
    struct progress *p = argument;
    while (!atomic_load_explicit(&p->stop, memory_order_relaxed)) { /* the mutex orders the rest */
        enum progress_found found = PROGRESS_MOVED;
        uint64_t until = 0;
        /* relaxed: only a hint; the owner that set it waits for the mutex for one poll at most */
        if (atomic_load_explicit(&p->wanted, memory_order_relaxed) > 0) {
            stand_aside(p);
            continue;
        }
        pthread_mutex_lock(&p->mutex);
        /* `stop` is set under the mutex: no poll begins after that. */
        if (!atomic_load_explicit(&p->stop, memory_order_relaxed))
            until = poll_once(p, &found);
        pthread_mutex_unlock(&p->mutex);
        if (until != 0)
            sleep_on_bell(p, until, 0);
        else if (found != PROGRESS_MOVED && p->mode != WAGMA_PROGRESS_SPIN)
            sched_yield();
    }
    return NULL;
}

static int create_thread(struct progress *p) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL}; /* of the thread itself */
    sigset_t all, before;
    sigfillset(&all); /* signals are the program's: Python's handlers run on its main thread */
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&p->thread, NULL, run, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int progress_start(struct progress *p, int cpu) {
    if (p->mode == WAGMA_PROGRESS_MAIN)
        return WAGMA_OK;
    int error = create_thread(p);
    if (error != 0)
        return error_set(WAGMA_ESYS, "no progress thread: %s; set progress to WAGMA_PROGRESS_MAIN",
                         strerror(error));
    p->running = 1;
    pthread_setname_np(p->thread, "wagma-progress");
    if (cpu < 0)
        return WAGMA_OK;
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET((unsigned)cpu, &mask);
    error = pthread_setaffinity_np(p->thread, sizeof mask, &mask);
    if (error == 0)
        return WAGMA_OK;
    progress_end(p);
    progress_join(p);
    return error_set(WAGMA_EINVAL,
                     "progress_cpu is %d: the progress thread cannot be bound to this core (%s); "
                     "name one that the process may use, or leave it unset for any core",
                     cpu, strerror(error));
}

void progress_end(struct progress *p) {
    if (!p->exists)
        return;
    progress_enter(p);
    atomic_store_explicit(&p->stop, 1, memory_order_relaxed); /* see run() */
    ring(p);
    progress_leave(p, PROGRESS_NOTHING_LEFT);
}

void progress_join(struct progress *p) {
    if (p->running)
        pthread_join(p->thread, NULL);
    p->running = 0;
}

/* ---- the owner ------------------------------------------------------------------------------- */

int progress_create(struct progress *p, const wagma_options *options, progress_poll *poll,
                    void *context) {
    pthread_mutexattr_t recursive;
    pthread_condattr_t monotonic;
    *p = (struct progress){.mode = options->progress,
                           .sleep = (uint64_t)(options->progress_sleep * 1e9),
                           .poll = poll,
                           .context = context};
    if (pthread_mutexattr_init(&recursive) != 0)
        return error_set(WAGMA_ESYS, "no mutex for the handle");
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    int error = pthread_mutex_init(&p->mutex, &recursive);
    pthread_mutexattr_destroy(&recursive);
    if (error != 0)
        return error_set(WAGMA_ESYS, "no mutex for the handle: %s", strerror(error));
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    error = pthread_cond_init(&p->bell, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (error != 0) {
        pthread_mutex_destroy(&p->mutex);
        return error_set(WAGMA_ESYS, "no condition for the handle: %s", strerror(error));
    }
    error = pthread_mutex_init(&p->door, NULL);
    if (error != 0) {
        pthread_cond_destroy(&p->bell);
        pthread_mutex_destroy(&p->mutex);
        return error_set(WAGMA_ESYS, "no mutex for the handle: %s", strerror(error));
    }
    p->exists = 1;
    return WAGMA_OK;
}

void progress_destroy(struct progress *p) {
    if (!p->exists)
        return;
    progress_end(p);
    progress_join(p);
    pthread_cond_destroy(&p->bell);
    pthread_mutex_destroy(&p->door);
    pthread_mutex_destroy(&p->mutex);
    p->exists = 0;
}

void progress_enter(struct progress *p) {
    if (!p->exists)
        return;
    /* relaxed: the mutex orders everything else; see run() */
    atomic_fetch_add_explicit(&p->wanted, 1, memory_order_relaxed);
    pthread_mutex_lock(&p->mutex);
    if (!p->back_at_once)
        p->away = clock_now() - p->left;
    p->back_at_once = 0;
}

void progress_peek(struct progress *p) {
    uint64_t deadline;
    if (!p->exists || pthread_mutex_trylock(&p->mutex) != 0)
        return;
    /* relaxed: see run() */
    const int moved = !atomic_load_explicit(&p->stop, memory_order_relaxed) &&
                      p->poll(p->context, &deadline) == PROGRESS_MOVED;
    if (moved)
        p->moved = clock_now();
    const int rings = moved && p->mode == WAGMA_PROGRESS_SLEEP && p->away >= AWAY_NS;
    pthread_mutex_unlock(&p->mutex);
    if (rings)
        ring(p);
}

/* Whether a thread that may sleep has to look now. */
static int is_pressing(const struct progress *p, enum progress_left what) {
    if (p->mode != WAGMA_PROGRESS_SLEEP)
        return 1;
    return what == PROGRESS_POSTED || (what == PROGRESS_WORK_LEFT && p->away >= AWAY_NS);
}

void progress_leave(struct progress *p, enum progress_left what) {
    if (!p->exists)
        return;
    /* relaxed: `wanted` is changed back before the mutex is released and the bell rings, so the
     * thread that gets either next sees that */
    const int left = atomic_fetch_sub_explicit(&p->wanted, 1, memory_order_relaxed) - 1;
    p->back_at_once = what == PROGRESS_BACK_AT_ONCE;
    p->left = clock_now();
    if (what == PROGRESS_WORK_LEFT || what == PROGRESS_POSTED)
        p->moved = p->left;
    /* Do not ring a stopped thread: the thread that stops it rings, and may destroy it from here
     * on. */
    const int rings = left == 0 && !p->back_at_once && is_pressing(p, what) &&
                      !atomic_load_explicit(&p->stop, memory_order_relaxed);
    pthread_mutex_unlock(&p->mutex);
    if (rings)
        ring(p);
}
