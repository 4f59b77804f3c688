/* Children that are forked by a process with handles: what they write stays with them, they cannot
 * call, and their parent goes on as if they were not there. */
/* short run: c */
#define _GNU_SOURCE
#include "check.h"
#include "shm/avoiding/executor.h"
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 3 * 512 + 1, SIZE = 2 }; /* doubles: not a whole number of pages */

#include "uniform.h"

static int wait_status(pid_t pid) {
    int status = -1;
    EXPECT(waitpid(pid, &status, 0) == pid, "%s", strerror(errno));
    return status;
}

/* ---- what a child may do --------------------------------------------------------------------- */

static void write_everywhere(const wagma_segment *s, double *const *x, double *buffer) {
    for (int r = 0; r < SIZE; r++)
        memset(segment_region(s, r), 0xa5, s->region_bytes);
    if (buffer)
        fill(buffer, -1);
    for (int r = 0; r < SIZE; r++)
        fill(x[r], -1);
    for (int r = 0; r < SIZE; r++)
        EXPECT(holds(x[r], -1), "%g", x[r][0]);
}

static void try_calls(cast *c, double *x) {
    wagma_handle *made;
    void *buffer;
    REFUSED(wagma_allreduce(c->handle[0], x, 1, NULL), WAGMA_ECLOSED, "handle", "forked");
    REFUSED(wagma_post(c->handle[0], x, 1, 0), WAGMA_ECLOSED, "handle", "forked");
    REFUSED(wagma_next_contribution(c->handle[0], &buffer), WAGMA_ECLOSED, "handle", "forked");
    REFUSED(wagma_close(c->handle[0]), WAGMA_ECLOSED, "handle", "forked");
    REFUSED(wagma_create(c->segment, 0, x, 1, NULL, &made), WAGMA_ECLOSED, "segment", "forked");
    REFUSED(wagma_segment_fail(c->segment, 0), WAGMA_ECLOSED, "segment", "forked");
    for (int r = 0; r < SIZE; r++) {
        wagma_fail(c->handle[r]);
        wagma_free(c->handle[r]);
    }
}

/* Its own child has a copy of the copy. */
static void fork_again(double *x) {
    const pid_t pid = fork_child();
    if (pid == 0) {
        fill(x, 5);
        _exit(!holds(x, 5));
    }
    EXPECT(wait_status(pid) == 0 && holds(x, -1), "%g", x[0]);
}

/* ---- one process with all ranks -------------------------------------------------------------- */

static double *array_of(cast *c, int r) {
    double *x = wagma_shared_array(c->handle[r]);
    EXPECT(x, "%s", wagma_last_error());
    return x;
}

/* Posts, so that one thread can do it with every rank. `sum`: what the ranks then have. */
static void check_version(cast *c, double *const *x, double sum) {
    for (int r = 0; r < SIZE; r++)
        EXPECT(wagma_post(c->handle[r], x[r], 1, 1) == WAGMA_INPROGRESS, "%s", wagma_last_error());
    for (int r = 0; r < SIZE; r++) {
        EXPECT(wagma_wait(c->handle[r], x[r], -1, NULL) == WAGMA_OK, "%s", wagma_last_error());
        EXPECT(holds(x[r], sum), "rank %d has %g instead of %g", r, x[r][0], sum);
    }
}

static void check_child(int quorum) {
    const wagma_options o = options_of(SIZE, SIZE, quorum, COUNT);
    double *x[SIZE];
    void *buffer = NULL;
    cast c;
    CHECK(cast_open(&c, &o, NULL, NULL), "see above");
    EXPECT(quorum == 0 || c.segment->remap, "its arrays show no other memory by turns");
    for (int r = 0; r < SIZE; r++)
        fill(x[r] = array_of(&c, r), r + 1);
    check_version(&c, x, 3);
    if (quorum != 0) {
        EXPECT(wagma_next_contribution(c.handle[0], &buffer) == WAGMA_OK, "%s", wagma_last_error());
        fill(buffer, 7);
    }
    const pid_t pid = fork_child();
    if (pid == 0) {
        EXPECT(holds(x[0], 3) && holds(x[1], 3), "a child reads %g and %g", x[0][0], x[1][0]);
        write_everywhere(c.segment, x, buffer);
        try_calls(&c, x[0]);
        fork_again(x[0]);
        wagma_segment_close(c.segment);
        _exit(0);
    }
    CHECK(wait_status(pid) == 0, "the child");
    EXPECT(holds(x[0], 3) && holds(x[1], 3) && (!buffer || holds(buffer, 7)), "%g %g", x[0][0],
           x[1][0]);
    check_version(&c, x, 6);
    check_version(&c, x, 12);
    cast_close(&c);
    CHECK(expectations_failed() == 0, "quorum %d", quorum);
}

static void test_what_a_child_writes_is_its_own(void) {
    check_child(0);
    check_child(1);
}

/* Only those segments over which its parent has a handle. */
static void test_several_segments(void) {
    const wagma_options o = options_of(SIZE, SIZE, 0, COUNT);
    wagma_segment *shared;
    cast c[2];
    double *x[2];
    CHECK(cast_open(&c[0], &o, NULL, NULL) && cast_open(&c[1], &o, NULL, NULL), "see above");
    CHECK(wagma_segment_create(&o, NULL, &shared) == WAGMA_OK, "%s", wagma_last_error());
    unsigned char *common = segment_region(shared, 1) + shared->o_flat;
    EXPECT(segment_join(shared, 1) == WAGMA_OK, "%s", wagma_last_error());
    for (int i = 0; i < 2; i++)
        fill(x[i] = array_of(&c[i], 1), 2);
    const pid_t pid = fork_child();
    if (pid == 0) {
        fill(x[0], -1);
        fill(x[1], -1);
        *common = 77;
        _exit(0);
    }
    CHECK(wait_status(pid) == 0, "the child");
    EXPECT(holds(x[0], 2) && holds(x[1], 2), "%g %g", x[0][0], x[1][0]);
    EXPECT(*common == 77, "a child that may be a rank wrote %d", *common);
    wagma_segment_close(shared);
    cast_close(&c[1]);
    cast_close(&c[0]);
    CHECK(expectations_failed() == 0, "see above");
}

/* The file cannot be mapped again: the child can read, and a write ends it. */
static void test_a_closed_descriptor(void) {
    const wagma_options o = options_of(SIZE, SIZE, 0, COUNT);
    cast c;
    CHECK(cast_open(&c, &o, NULL, NULL), "see above");
    double *x = array_of(&c, 1);
    fill(x, 2);
    const int kept = dup(c.segment->fd);
    close(c.segment->fd);
    const int other = memfd_create("other", 0); /* gets the number */
    for (int writes = 0; writes <= 1; writes++) {
        const pid_t pid = fork_child();
        if (pid == 0) {
            signal(SIGSEGV, SIG_DFL); /* a sanitizer would report it */
            if (writes)
                fill(x, -1);
            _exit(!holds(x, 2));
        }
        const int status = wait_status(pid);
        EXPECT(writes ? WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV : status == 0,
               "writes %d, wait status %#x", writes, (unsigned)status);
    }
    EXPECT(holds(x, 2), "%g", x[0]);
    EXPECT(other == c.segment->fd && dup2(kept, other) == other, "%d %d", other, c.segment->fd);
    close(kept);
    cast_close(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- ranks that call while another thread forks ---------------------------------------------- */

enum { CHILDREN = 30 };

typedef struct news {
    _Atomic int over;
    double *_Atomic x[SIZE];
} news;

static double code_of(int r, int64_t version) {
    return r + 1 + 8.0 * (double)(version + 1);
}

/* Calls with what tells who wrote it, until the test is over. */
static void run_rank(rank *me) {
    news *n = me->shared;
    wagma_outcome o;
    double *initial = shared_memory(COUNT * sizeof *initial);
    fill(initial, code_of(me->rank, -1));
    wagma_handle *h = rank_join(me, initial);
    double *x = h ? wagma_shared_array(h) : NULL;
    atomic_store(&n->x[me->rank], x);
    while (x && !atomic_load(&n->over)) {
        const double mine = code_of(me->rank, wagma_version(h));
        fill(x, mine);
        if (!EXPECT(wagma_allreduce(h, x, 1, &o) == WAGMA_OK, "%s", wagma_last_error()))
            break;
        double sum = o.late ? mine : 0;
        for (int k = 0; k < o.contributors_count; k++)
            sum += code_of(o.contributors[k], o.versions[k]);
        EXPECT(!o.merged || holds(x, sum), "rank %d, version %ld: %g instead of %g", me->rank,
               (long)o.version, x[0], sum);
        jitter(me);
    }
    munmap(initial, COUNT * sizeof *initial);
    EXPECT(wagma_close(h) == WAGMA_OK, "%s", wagma_last_error());
    wagma_free(h);
}

static void *make_segments(void *argument) {
    news *n = argument;
    const wagma_options o = options_of(SIZE, SIZE, 1, 10);
    while (!atomic_load(&n->over)) {
        wagma_segment *s;
        if (EXPECT(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error()))
            wagma_segment_close(s);
    }
    return NULL;
}

static void test_forks_while_ranks_call(void) {
    static news n;
    const wagma_options o = options_of(SIZE, SIZE, 1, COUNT);
    pthread_t maker;
    team *t = team_start(THREADS, &o, run_rank, &n);
    CHECK(t, "see above");
    pthread_create(&maker, NULL, make_segments, &n);
    while (!atomic_load(&n.x[0]) || !atomic_load(&n.x[1]))
        sleep_ms(1);
    double *x[] = {atomic_load(&n.x[0]), atomic_load(&n.x[1])};
    for (int i = 0; i < CHILDREN; i++) {
        const pid_t pid = fork_child();
        if (pid == 0) {
            wagma_segment *made;
            write_everywhere(team_segment(t), x, NULL);
            if (wagma_segment_create(&o, NULL, &made) == WAGMA_OK) /* no lock is held for ever */
                wagma_segment_close(made);
            _exit(0);
        }
        CHECK(wait_status(pid) == 0, "child %d", i);
        sleep_ms(2);
    }
    atomic_store(&n.over, 1);
    pthread_join(maker, NULL);
    team_join(t);
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    segment_remap_min = 1024;
    RUN(test_what_a_child_writes_is_its_own);
    RUN(test_several_segments);
    RUN(test_a_closed_descriptor);
    RUN(test_forks_while_ranks_call);
    return check_summary();
}
