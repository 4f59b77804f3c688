/* wagma_fail() from another thread, or from a hook, while a call is under way over a segment: the
 * call ends with an error, and when the others learn that the rank has failed, it writes no more.
 */
/* short run: c */
#define _GNU_SOURCE
#include "check.h"
#include "support.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { COUNT = 1 << 20, PLAYERS = 2 };

static times ending; /* from wagma_fail() to the end of the call */

typedef struct plan {
    wagma_options options;
    int from_hook, posts;
    wagma_handle *_Atomic handle; /* of the rank that ends */
    _Atomic int made, ready, over, failed;
    int status[PLAYERS];
    char message[512];
} plan;

static void note(plan *p, int rank, int status) {
    p->status[rank] = status;
    if (rank == 1)
        snprintf(p->message, sizeof p->message, "%s", status == WAGMA_OK ? "" : wagma_last_error());
}

static int end_it(void *context) {
    plan *p = context;
    wagma_handle *h = atomic_load(&p->handle);
    wagma_fail(h); /* not while it is made */
    return 0;
}

static void await(_Atomic int *word, int least) {
    while (atomic_load(word) < least)
        sleep_ms(0.1);
}

/* ---- a call that waits ----------------------------------------------------------------------- */

/* Rank 1 waits for rank 0, which never comes. */
static void wait_for_ever(rank *me) {
    plan *p = me->shared;
    double *x = calloc((size_t)p->options.count + 1, sizeof *x);
    if (me->rank == 1 && p->from_hook)
        me->hooks = (wagma_hooks){.context = p, .interrupted = end_it};
    wagma_handle *h = rank_join(me, x);
    atomic_fetch_add(&p->made, 1);
    await(&p->made, PLAYERS); /* a rank that fails earlier fails the other's creation, too */
    if (me->rank == 1) {
        atomic_store(&p->handle, h);
        if (p->posts)
            EXPECT(wagma_post(h, x, 1, 1) == WAGMA_INPROGRESS, "%s", wagma_last_error());
        atomic_store(&p->ready, 1);
        note(p, 1, p->posts ? wagma_wait(h, x, -1, NULL) : wagma_sync(h, x, 1, NULL));
        EXPECT(wagma_allreduce(h, x, 1, NULL) == WAGMA_ECLOSED, "%s", wagma_last_error());
        atomic_store(&p->over, 1);
    }
    await(&p->over, 1);
    if (me->rank == 0) { /* rank 1 may have published all that a version needs */
        int status = wagma_sync(h, x, 1, NULL);
        if (status == WAGMA_OK)
            status = wagma_sync(h, x, 1, NULL);
        EXPECT(status == WAGMA_EPEER, "%d: %s", status, wagma_last_error());
    }
    await(&p->failed, 1); /* wagma_fail() has returned */
    wagma_free(h);
    free(x);
}

static void check_wait(wagma_options o, int from_hook, int posts) {
    plan p = {.options = o, .from_hook = from_hook, .posts = posts};
    team *t = team_start(THREADS, &o, wait_for_ever, &p);
    CHECK(t, "see above");
    await(&p.ready, 1);
    sleep_ms(5);
    const double began = seconds();
    if (!from_hook)
        wagma_fail(atomic_load(&p.handle));
    atomic_store(&p.failed, 1);
    await(&p.over, 1);
    times_add(&ending, seconds() - began);
    team_join(t);
    EXPECT(p.status[1] == WAGMA_ECLOSED && strstr(p.message, "by another thread"), "%d: %s",
           p.status[1], p.message);
    CHECK(expectations_failed() == 0, "quorum %d, count %ld, from hook %d, posted %d", o.quorum,
          (long)o.count, from_hook, posts);
}

static void test_a_call_that_waits(void) {
    for (int from_hook = 0; from_hook <= 1; from_hook++) {
        for (int posts = 0; posts <= 1; posts++) {
            check_wait(options_of(PLAYERS, PLAYERS, 0, 3), from_hook, posts);
            check_wait(options_of(PLAYERS, PLAYERS, 0, 10000), from_hook, posts);
            check_wait(options_of(PLAYERS, PLAYERS, 1, 3), from_hook, posts);
        }
    }
    CHECK(times_are_soon(&ending, 1, "the end of a call"), "see above");
}

/* ---- a call that writes ---------------------------------------------------------------------- */

enum { PAUSE_MS = 200 }; /* of a thread in a slice: longer than it takes to notice a failure */

static struct {
    unsigned char *at;
    size_t bytes;
    _Atomic int reached;
} barred;

/* The thread that writes into rank 0's array is slow to do so. */
static void on_barred(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    const unsigned char *at = info->si_addr;
    if (at < barred.at || at >= barred.at + barred.bytes)
        abort();
    atomic_store(&barred.reached, 1);
    sleep_ms(PAUSE_MS);
    mprotect(barred.at, barred.bytes, PROT_READ | PROT_WRITE);
}

static void bar(const wagma_segment *s) {
    struct sigaction action = {.sa_sigaction = on_barred, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    const uintptr_t first = ((uintptr_t)segment_array(s, 0) + 4095) & ~(uintptr_t)4095;
    barred.at = (unsigned char *)first;
    barred.bytes = COUNT * sizeof(double) / 2;
    EXPECT(mprotect(barred.at, barred.bytes, PROT_NONE) == 0, "mprotect");
}

static void *end_in_slice(void *handle) {
    await(&barred.reached, 1);
    wagma_fail(handle);
    return NULL;
}

/* What rank 0 has after its error is its own: rank 1, which was in a slice, writes no more. */
static void share_slices(rank *me) {
    wagma_handle *h = rank_join(me, NULL);
    double *x = wagma_shared_array(h);
    pthread_t thread;
    int status;
    for (int i = 0; i < COUNT; i++)
        x[i] = 1;
    if (me->rank == 1) {
        bar(me->segment);
        pthread_create(&thread, NULL, end_in_slice, h);
    }
    while ((status = wagma_allreduce(h, x, 1, NULL)) == WAGMA_OK)
        ;
    if (me->rank == 1) {
        pthread_join(thread, NULL);
        EXPECT(status == WAGMA_ECLOSED, "%d: %s", status, wagma_last_error());
    } else {
        EXPECT(status == WAGMA_EPEER, "%d: %s", status, wagma_last_error());
        memset(x, 0, COUNT * sizeof *x);
        sleep_ms(1.5 * PAUSE_MS);
        int at = 0;
        while (at < COUNT && x[at] == 0)
            at++;
        EXPECT(at == COUNT, "element %d has become %g", at, x[at]);
    }
    wagma_free(h);
}

static void test_a_call_that_writes(void) {
    const wagma_options o = options_of(PLAYERS, PLAYERS, 0, COUNT);
    team_join(team_start(PROCESSES, &o, share_slices, NULL));
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    RUN(test_a_call_that_waits);
    if (SEES_PROCESSES)
        RUN(test_a_call_that_writes);
    return check_summary();
}
