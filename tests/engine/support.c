/* See support.h. */
#define _GNU_SOURCE /* pthread, MAP_ANONYMOUS */
#include "support.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "digest.h"
#include "engine/handle.h"
#include "place.h"
#include "protocol/round.h"
#include "transport_sim.h"

enum { KEPT_WARNINGS = 512 }; /* a creation that takes long gives many */

const char *const kind_name[] = {"threads", "processes", "messages"};
int messages_for_threads;

enum kind processes_if_seen(void) {
    return SEES_PROCESSES && !messages_for_threads ? PROCESSES : THREADS;
}

/* ---- watchdog -------------------------------------------------------------------------------- */

/* Every other one delays messages. */
static struct sim *make_sim(const wagma_options *options) {
    static uint64_t made;
    made++;
    return sim_create(options->size, made,
                      (struct sim_options){.delay = made % 2 ? 20 : 0, .threads = 1});
}

/* They were used as they should be; `clean`: all handles have been closed, so that nothing is on
 * its way. */
static void end_sim(struct sim *s, int clean) {
    EXPECT(!sim_trouble(s), "%s", sim_trouble(s));
    if (clean)
        EXPECT(sim_pending(s) == 0, "%" PRId64 " messages are left", sim_pending(s));
    sim_free(s);
}

static wagma_segment *watched; /* only the starting thread's process has a watchdog */

static void watchdog(int signum) {
    (void)signum;
    char text[256];
    int n = snprintf(text, sizeof text, "  hang: no end after %d s\n", WATCHDOG_SECONDS);
    ssize_t written = write(STDOUT_FILENO, text, (size_t)n);
    for (int r = 0; watched && r < watched->size; r++) {
        n = snprintf(text, sizeof text, "  rank %d: published version %" PRId64 ", state %u\n", r,
                     published(watched, r), atomic_load(&segment_presence_of(watched, r)->state));
        written = write(STDOUT_FILENO, text, (size_t)n);
    }
    (void)written;
    _exit(3); /* forked ranks are killed with their parent */
}

static void watch(wagma_segment *s) {
    watched = s;
    signal(SIGALRM, watchdog);
    alarm(s ? WATCHDOG_SECONDS : 0);
}

/* ---- teams ----------------------------------------------------------------------------------- */

struct rank_place {
    rank me;
    pthread_t thread;
    pid_t pid;
    int gone; /* has been waited for */
};

struct team_news { /* shared with forked ranks */
    _Atomic int warnings[RANKS_MAX];
    char warning[RANKS_MAX][KEPT_WARNINGS][512];
};

struct team {
    enum kind kind;
    double timeout; /* of handles that have been made */
    void (*body)(rank *);
    wagma_segment *segment;
    struct team_news *news;
    struct rank_place place[RANKS_MAX];
};

wagma_options options_of(int size, int group_size, int quorum, int64_t count) {
    wagma_options o;
    wagma_options_init(&o);
    o.size = size;
    o.group_size = group_size;
    o.quorum = quorum;
    o.count = count;
    o.dtype = WAGMA_F64;
    o.average = 0;
    o.grace = 0;
    o.memory = arrays_on_devices;
    return o;
}

static wagma_options patient_options(const wagma_options *options) {
    wagma_options o = *options;
    if (o.timeout >= 0 && o.timeout < PATIENCE_SECONDS)
        o.timeout = PATIENCE_SECONDS;
    return o;
}

void have_patience(wagma_handle *h, double timeout) {
    h->options.timeout = timeout;
}

static void note_warning(void *context, const char *message) {
    rank *me = context;
    struct team_news *news = me->team->news;
    const int n = atomic_load(&news->warnings[me->rank]);
    if (n == KEPT_WARNINGS)
        return;
    snprintf(news->warning[me->rank][n], sizeof news->warning[0][0], "%s", message);
    atomic_store(&news->warnings[me->rank], n + 1);
}

static void *run_thread(void *argument) {
    struct rank_place *place = argument;
    place->me.team->body(&place->me);
    return NULL;
}

static pid_t run_process(struct rank_place *place) {
    const pid_t pid = fork_child();
    if (pid != 0)
        return pid;
    place->me.team->body(&place->me);
    wagma_segment_close(place->me.segment);
    fflush(stdout);
    _exit(0);
}

team *team_start(enum kind kind, const wagma_options *options, void (*body)(rank *), void *shared) {
    team *t = calloc(1, sizeof *t);
    if (!EXPECT(t, "no memory"))
        return NULL;
    t->kind = kind = kind == THREADS && messages_for_threads ? MESSAGES : kind;
    t->timeout = options->timeout;
    const wagma_options patient = patient_options(options);
    t->body = body;
    t->news = shared_memory(sizeof *t->news);
    if (!EXPECT(wagma_segment_create(&patient, NULL, &t->segment) == WAGMA_OK, "%s",
                wagma_last_error())) {
        free(t);
        return NULL;
    }
    watch(t->segment);
    struct sim *sim = kind == MESSAGES ? make_sim(options) : NULL;
    for (int r = 0; r < options->size; r++) {
        struct rank_place *place = &t->place[r];
        place->me = (rank){
            .rank = r,
            .size = options->size,
            .segment = t->segment,
            .sim = sim,
            .shared = shared,
            .random = (uint32_t)r * 2654435761u + 12345,
            .team = t,
        };
        place->me.hooks = (wagma_hooks){.context = &place->me, .warn = note_warning};
        if (kind == PROCESSES)
            place->pid = run_process(place);
        else
            pthread_create(&place->thread, NULL, run_thread, place);
    }
    return t;
}

wagma_segment *team_segment(team *t) {
    return t->segment;
}

static void end(team *t, int clean) {
    if (!t)
        return;
    for (int r = 0; r < t->segment->size; r++) {
        struct rank_place *place = &t->place[r];
        int status = 0;
        if (t->kind != PROCESSES)
            pthread_join(place->thread, NULL);
        else if (!place->gone)
            EXPECT(waitpid(place->pid, &status, 0) == place->pid && status == 0,
                   "rank %d ended with wait status %#x", r, (unsigned)status);
    }
    if (t->kind == MESSAGES)
        end_sim(t->place[0].me.sim, clean);
    else if (clean)
        expect_clean(t->segment);
    watch(NULL);
    wagma_segment_close(t->segment);
    munmap(t->news, sizeof *t->news);
    free(t);
}

void team_join(team *t) {
    end(t, 0);
}

void team_join_clean(team *t) {
    end(t, 1);
}

void team_stop(team *t, int r) {
    kill(t->place[r].pid, SIGSTOP);
    team_await_stopped(t, r);
}

void team_continue(team *t, int r) {
    kill(t->place[r].pid, SIGCONT);
}

void team_kill(team *t, int r) {
    kill(t->place[r].pid, SIGKILL);
    team_await_killed(t, r);
}

void team_await_stopped(team *t, int r) {
    int status = 0;
    EXPECT(waitpid(t->place[r].pid, &status, WUNTRACED) == t->place[r].pid && WIFSTOPPED(status),
           "rank %d has wait status %#x instead of stopped", r, (unsigned)status);
}

void team_await_killed(team *t, int r) {
    int status = 0;
    EXPECT(waitpid(t->place[r].pid, &status, 0) == t->place[r].pid && WIFSIGNALED(status) &&
               WTERMSIG(status) == SIGKILL,
           "rank %d has wait status %#x instead of killed", r, (unsigned)status);
    t->place[r].gone = 1;
}

void team_await_exit(team *t, int r) {
    int status = 0;
    EXPECT(waitpid(t->place[r].pid, &status, 0) == t->place[r].pid && status == 0,
           "rank %d ended with wait status %#x", r, (unsigned)status);
    t->place[r].gone = 1;
}

int team_warnings(team *t, int r, const char *text) {
    int n = 0;
    for (int i = atomic_load(&t->news->warnings[r]); i-- > 0;)
        n += strstr(t->news->warning[r][i], text) != NULL;
    return n;
}

const char *team_warning(team *t, int r) {
    const int n = atomic_load(&t->news->warnings[r]);
    return n ? t->news->warning[r][n - 1] : "";
}

wagma_handle *rank_join(rank *me, const void *initial) {
    wagma_handle *h = NULL;
    wagma_transport *over = me->sim ? sim_transport(me->sim, me->rank) : NULL;
    const int status = place_join(me->segment, over, me->rank, initial, &me->hooks, &h);
    if (EXPECT(status == WAGMA_OK, "rank %d: %s", me->rank, wagma_last_error()))
        have_patience(h, me->team->timeout);
    return h;
}

uint64_t digest_of(uint64_t digest, const void *data, size_t bytes) {
    return digest_add(digest, data, bytes) | 1;
}

uint32_t random_below(rank *me, uint32_t n) {
    me->random = me->random * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)me->random * n >> 32);
}

void jitter(rank *me) {
    const uint32_t what = random_below(me, 16);
    if (what == 0)
        sleep_ms(0.05 * random_below(me, 20));
    else if (what < 5)
        sched_yield();
}

/* ---- casts ----------------------------------------------------------------------------------- */

struct entrance {
    cast *c;
    int rank;
    const void *initial;
    const wagma_hooks *hooks;
    double timeout;
};

static void *enter(void *argument) { /* waits for the others, so each needs a thread */
    const struct entrance *e = argument;
    cast *c = e->c;
    wagma_handle **h = &c->handle[e->rank];
    wagma_transport *over = c->sim ? sim_transport(c->sim, e->rank) : NULL;
    const int status = place_join(c->segment, over, e->rank, e->initial, e->hooks, h);
    if (!EXPECT(status == WAGMA_OK, "rank %d: %s", e->rank, wagma_last_error()))
        return NULL;
    have_patience(*h, e->timeout);
    return h;
}

int cast_open(cast *c, const wagma_options *options, const void *const *initial,
              const wagma_hooks *hooks) {
    struct entrance entrance[RANKS_MAX];
    pthread_t thread[RANKS_MAX];
    int made = 1;
    *c = (cast){.size = options->size};
    const wagma_options patient = patient_options(options);
    if (!EXPECT(wagma_segment_create(&patient, NULL, &c->segment) == WAGMA_OK, "%s",
                wagma_last_error()))
        return 0;
    watch(c->segment);
    c->sim = messages_for_threads ? make_sim(options) : NULL;
    for (int r = 0; r < c->size; r++) {
        entrance[r] = (struct entrance){c, r, initial ? initial[r] : NULL, hooks, options->timeout};
        pthread_create(&thread[r], NULL, enter, &entrance[r]);
    }
    for (int r = 0; r < c->size; r++) {
        void *entered;
        pthread_join(thread[r], &entered);
        made &= entered != NULL;
    }
    return made;
}

static void *close_one(void *argument) { /* over a transport it waits for the others */
    return wagma_close(argument), NULL;
}

static void leave(cast *c, int clean) {
    pthread_t thread[RANKS_MAX];
    for (int r = 0; r < c->size; r++)
        pthread_create(&thread[r], NULL, close_one, c->handle[r]);
    for (int r = 0; r < c->size; r++)
        pthread_join(thread[r], NULL);
    if (clean && !c->sim)
        expect_clean(c->segment);
    for (int r = 0; r < c->size; r++)
        wagma_free(c->handle[r]);
    if (c->sim)
        end_sim(c->sim, clean);
    watch(NULL);
    wagma_segment_close(c->segment);
}

void cast_close(cast *c) {
    leave(c, 1);
}

void cast_drop(cast *c) {
    leave(c, 0);
}

/* ---- the segment ----------------------------------------------------------------------------- */

int64_t published(const wagma_segment *s, int r) {
    const uint64_t word = atomic_load(segment_pub(s, r));
    return word == ROUND_DEPARTED ? INT64_MAX : (int64_t)round_version(word) - 1;
}

uint64_t file_bytes(const wagma_segment *s) {
    struct stat file;
    return fstat(s->fd, &file) == 0 ? (uint64_t)file.st_blocks * 512 : 0;
}

int expect_clean(wagma_segment *s) {
    int clean = 1;
    for (int r = 0; r < s->size && s->rounds; r++) { /* graphs and quorum "all" have none */
        clean &= EXPECT(published(s, r) == INT64_MAX, "rank %d has published %" PRId64, r,
                        published(s, r));
        for (int b = 0; b < s->buffers; b++)
            clean &= EXPECT(atomic_load(segment_cref(s, r, b)) == 0,
                            "contribution %d of rank %d is pinned %" PRIu64 " times", b, r,
                            atomic_load(segment_cref(s, r, b)));
        for (int i = 0; i < s->rounds; i++) {
            const uint32_t c = (uint32_t)(r * s->rounds + i);
            const segment_round *round = segment_round_of(s, c);
            const uint64_t refs = atomic_load(&round->refs), users = atomic_load(&round->users),
                           is_free = atomic_load(&round->free), head = atomic_load(&round->head);
            /* one that was not committed has never been touched; ordered results stay until their
             * owner needs the memory */
            const int untouched = head == 0 && i >= segment_joined_rounds(s);
            const int kept = s->options.late != WAGMA_LATE_STALE && head != 0;
            clean &= EXPECT(users == 0 && ((refs == 0 && (is_free == 1 || untouched)) || kept),
                            "round %d of rank %d: refs %" PRIu64 " users %" PRIu64 " free %" PRIu64,
                            i, r, refs, users, is_free);
        }
    }
    return clean;
}
