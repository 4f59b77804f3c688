/* Waiting: spin, yield, sleep. The phases of one wait, by the time since its first pause:
 *
 *   0 ............ SPIN_NS ............ YIELD_NS ...................................
 *   cpu pause      sched_yield          futex, 200 us doubling to WAIT_SLEEP_MAX_NS
 *   (only if every rank can have a core, otherwise sched_yield from the start)
 */
#define _GNU_SOURCE /* syscall */
#include "shm/wait.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SPIN_NS = 15000,  /* a futex wake costs about as much */
    YIELD_NS = 45000, /* from the first pause */
    SLEEP_FIRST_NS = 200000,
    SLEEP_WORTH_NS = 60000, /* shorter ones would end too late: yield */
    SPINS_PER_LOOK = 16,    /* pauses between two looks at the clock (25 ns each) */
};

enum { AWAKE, ASLEEP, ASLEEP_WINDOW }; /* values of `asleep` */

static inline void cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* `yield` returns at once on most cores */
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t ns) {
    struct timespec timeout = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT, value, &timeout, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void wait_begin(wait_state *w, wagma_segment *s, int rank) {
    w->segment = s;
    w->rank = rank;
    w->armed = 0;
    w->window = 0;
    w->pauses = 0;
    w->spinning = 0;
    w->began = 0;
}

static void arm(wait_state *w) {
    segment_presence *me = segment_presence_of(w->segment, w->rank);
    w->armed = 1;
    /* seq_cst: pairs with the event and the load in ring(). */
    atomic_store(&me->asleep, w->window ? ASLEEP_WINDOW : ASLEEP);
    /* Before the condition too: a ring after it changes the word, and the futex does not sleep. */
    w->bell = atomic_load(&me->bell);
    /* Conditions may be acquire loads, which a processor may move before a seq_cst store and load
     * of other words (LDAPR of ARM). After this fence they see every event whose ringer's load in
     * ring() came before the store above. */
    atomic_thread_fence(memory_order_seq_cst);
}

static void sleep_until_rung(wait_state *w, uint64_t now, uint64_t not_after) {
    uint64_t ns = w->sleep;
    if (not_after && not_after - now < ns)
        ns = not_after - now;
    if (w->heartbeat - now < ns)
        ns = w->heartbeat - now;
    futex_wait(&segment_presence_of(w->segment, w->rank)->bell, w->bell, ns);
    w->sleep = 2 * w->sleep < WAIT_SLEEP_MAX_NS ? 2 * w->sleep : WAIT_SLEEP_MAX_NS;
    arm(w);
}

int wait_step_aside(wait_state *w) {
    /* relaxed: only the owner writes it; release: after what the owner has written */
    const int busy = atomic_load_explicit(&w->busy, memory_order_relaxed);
    atomic_store_explicit(&w->busy, 0, memory_order_release);
    return busy;
}

void wait_step_back(wait_state *w, int busy) {
    /* seq_cst: before the owner asks whether the handle was ended; pairs with wagma_fail() */
    atomic_store(&w->busy, busy);
}

static void first_pause(wait_state *w) {
    w->spinning = w->spin > 0;
    w->began = clock_now();
    w->heartbeat = w->began + WAIT_HEARTBEAT_NS;
    w->sleep = SLEEP_FIRST_NS;
}

enum wait_event wait_pause(wait_state *w, uint64_t not_after) {
    if (w->pauses++ == 0)
        first_pause(w);
    if (w->spinning && w->pauses % SPINS_PER_LOOK) {
        cpu_pause();
        return WAIT_AGAIN;
    }
    uint64_t now = clock_now(), waited = now - w->began;
    if (now >= w->heartbeat) {
        w->heartbeat = now + WAIT_HEARTBEAT_NS;
        return WAIT_HEARTBEAT;
    }
    if (not_after && now >= not_after)
        return WAIT_AGAIN;
    w->spinning = w->spin > 0 && waited < SPIN_NS;
    if (w->spinning) {
        cpu_pause();
        return WAIT_AGAIN;
    }
    const int busy = wait_step_aside(w);
    if (waited < YIELD_NS || (not_after && not_after - now < SLEEP_WORTH_NS))
        sched_yield();
    else if (!w->armed)
        arm(w);
    else
        sleep_until_rung(w, now, not_after);
    wait_step_back(w, busy);
    return WAIT_AGAIN;
}

uint64_t wait_end(wait_state *w) {
    if (w->armed) /* relaxed: a ring that still sees 1 only wakes nobody */
        atomic_store_explicit(&segment_presence_of(w->segment, w->rank)->asleep, 0,
                              memory_order_relaxed);
    w->armed = 0;
    return w->began ? clock_now() - w->began : 0;
}

/* One of several ringers wakes the rank, the others find `asleep` cleared. If that one is stopped
 * between the two, the sleeper finds out at the end of its sleep. */
static void ring(wagma_segment *s, int rank, int window_only) {
    segment_presence *presence = segment_presence_of(s, rank);
    /* seq_cst: after the event; pairs with arm(). Either this load sees 1, or the condition that
     * the sleeper evaluates after arming sees the event. */
    const uint32_t asleep = atomic_load(&presence->asleep);
    if (asleep == AWAKE || (window_only && asleep != ASLEEP_WINDOW) ||
        atomic_exchange(&presence->asleep, AWAKE) == AWAKE)
        return;
    atomic_fetch_add(&presence->bell, 1); /* before the wake: a sleeper on its way in stays up */
    futex_wake(&presence->bell);
}

void wait_ring(wagma_segment *s, const int32_t *members, int n, int self) {
    int all = members == NULL;
    for (int i = 0; i < (all ? s->size : n); i++) {
        int rank = all ? i : members[i];
        if (rank != self)
            ring(s, rank, 0);
    }
}

void wait_ring_window(wagma_segment *s, int self) {
    for (int rank = 0; rank < s->size; rank++)
        if (rank != self)
            ring(s, rank, 1);
}
