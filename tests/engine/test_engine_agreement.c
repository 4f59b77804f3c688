/* Ranks that run freely, and what their outcomes have to agree on afterwards: I1, I2, I4, I8, I9.
 *
 * Every sum is compared with the contributions that its outcome lists, bit by bit; then the records
 * of all ranks are compared with each other. No barriers between versions. */
#include "check.h"
#include "contribution.h"
#include "support.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { VERSIONS_MAX = 1000 };

/* What rank r's call of version t gave. */
typedef struct record {
    int late, merged, members;
    double weight;
    uint64_t digest; /* of x */
    int32_t contributors[RANKS_MAX];
    int64_t versions[RANKS_MAX];
    int64_t before[RANKS_MAX]; /* versions that had returned when the call began */
    int64_t after[RANKS_MAX];  /* versions that had been called when it returned */
} record;

typedef struct run {
    int64_t versions, count;
    _Atomic int64_t called[RANKS_MAX], returned[RANKS_MAX];
    record records[RANKS_MAX][VERSIONS_MAX];
} run;

static run *shared;

static void run_freely(rank *me) {
    run *g = me->shared;
    const int dtype = me->segment->options.dtype;
    const size_t bytes = (size_t)g->count * (dtype == WAGMA_F64 ? 8 : 4);
    void *x = malloc(bytes + 1);
    contribute(dtype, x, me->rank, -1, g->count);
    wagma_handle *h = rank_join(me, x);
    while (h && wagma_version(h) < g->versions) {
        const int64_t t = wagma_version(h);
        record *mine = &g->records[me->rank][t];
        wagma_outcome o;
        contribute(dtype, x, me->rank, t, g->count);
        jitter(me);
        for (int q = 0; q < me->size; q++)
            mine->before[q] = atomic_load(&g->returned[q]) - 1;
        atomic_store(&g->called[me->rank], t + 1);
        const int status = wagma_allreduce(h, x, 1, &o);
        for (int q = 0; q < me->size; q++)
            mine->after[q] = atomic_load(&g->called[q]) - 1;
        atomic_store(&g->returned[me->rank], t + 1);
        if (!EXPECT(status == WAGMA_OK, "rank %d: %s", me->rank, wagma_last_error()))
            break;
        EXPECT(o.version == t && o.skipped == 0 && wagma_version(h) == t + 1,
               "outcome %" PRId64 " of version %" PRId64, o.version, t);
        expect_result(me, x, &o);
        mine->late = o.late;
        mine->merged = o.merged;
        mine->members = o.contributors_count;
        mine->weight = o.weight;
        mine->digest = digest_of(1, x, bytes);
        memcpy(mine->contributors, o.contributors, (size_t)o.contributors_count * 4);
        memcpy(mine->versions, o.versions, (size_t)o.contributors_count * 8);
    }
    wagma_close(h);
    wagma_free(h);
    free(x);
}

/* ---- what the records have to show ----------------------------------------------------------- */

/* One round: version u of the group led by `leader`, as its first taker saw it. */
typedef struct round_seen {
    const record *first;
    int fresh_at_first;
    uint64_t digest;          /* of a fresh member's x; 0: none seen */
    int64_t since[RANKS_MAX]; /* the pin is newer than these versions of the members */
    int64_t until[RANKS_MAX]; /* and older than the calls after these */
} round_seen;

static int is_sync(const wagma_options *o, int64_t t) {
    return o->sync_period && (t + 1) % o->sync_period == 0;
}

static int group_at(const wagma_options *o, int r, int64_t t, int32_t *members) {
    if (!is_sync(o, t))
        return wagma_group_of(r, o->size, o->group_size, o->grouping, o->seed, t, members);
    for (int q = 0; q < o->size; q++)
        members[q] = q;
    return o->size;
}

static int same_inputs(const record *a, const record *b) {
    return a->members == b->members && a->weight - a->late == b->weight - b->late &&
           memcmp(a->contributors, b->contributors, sizeof a->contributors) == 0 &&
           memcmp(a->versions, b->versions, sizeof a->versions) == 0;
}

/* Version of the round that a merged call took: its newest contribution. */
static int64_t taken(const record *a) {
    int64_t u = -1;
    for (int i = 0; i < a->members; i++)
        u = a->versions[i] > u ? a->versions[i] : u;
    return u;
}

static void check_one(const wagma_options *o, int r, int64_t t, const record *a, int64_t last) {
    int32_t members[RANKS_MAX];
    EXPECT(!is_sync(o, t) || !a->late, "rank %d is late at sync version %" PRId64, r, t);
    if (!a->merged) {
        EXPECT(a->late && last >= t && a->weight == 1 && a->members == 0,
               "rank %d version %" PRId64 " unmerged: late %d, newest taken %" PRId64 ", weight %g",
               r, t, a->late, last, a->weight);
        return;
    }
    const int64_t u = taken(a);
    const int n = group_at(o, r, u, members);
    EXPECT(u >= t && (a->late ? u > last : u == t),
           "rank %d version %" PRId64 " took %" PRId64 " after %" PRId64 ", late %d", r, t, u, last,
           a->late);
    EXPECT(a->members == n && memcmp(a->contributors, members, (size_t)n * 4) == 0,
           "rank %d version %" PRId64 ": %d contributors instead of the %d of version %" PRId64, r,
           t, a->members, n, u);
    EXPECT(a->weight == n + a->late, "rank %d version %" PRId64 ": weight %g of %d members", r, t,
           a->weight, n);
    for (int i = 0; i < a->members; i++) {
        const int64_t v = a->versions[i];
        EXPECT(v >= -1 && v <= u && v >= u - o->window - 1,
               "rank %d version %" PRId64 ": rank %d contributes %" PRId64, r, t,
               a->contributors[i], v);
        EXPECT(a->contributors[i] != r || (a->late ? v < u : v == t),
               "rank %d version %" PRId64 " late %d has its own %" PRId64, r, t, a->late, v);
        EXPECT(!is_sync(o, t) || v == t, "sync version %" PRId64 " holds %" PRId64 " of rank %d", t,
               v, a->contributors[i]);
    }
}

static void check_round(round_seen *g, int r, int64_t t, const record *a) {
    if (!g->first) {
        g->first = a;
        for (int q = 0; q < RANKS_MAX; q++)
            g->since[q] = g->until[q] = INT64_MAX;
    }
    EXPECT(same_inputs(g->first, a),
           "rank %d version %" PRId64 ": other inputs than another taker of the round", r, t);
    if (!a->late) { /* one of the fresh ones has pinned it, during its call */
        EXPECT(g->digest == 0 || g->digest == a->digest,
               "rank %d version %" PRId64 ": other bits than another fresh member", r, t);
        g->digest = a->digest;
    }
    for (int q = 0; q < RANKS_MAX; q++) {
        if (!a->late && a->before[q] < g->since[q])
            g->since[q] = a->before[q];
        if (a->after[q] < g->until[q])
            g->until[q] = a->after[q];
    }
}

/* I2: every contribution was its member's newest at some moment of the pin. */
static void check_ages(const round_seen *g, int64_t u) {
    for (int i = 0; g->first && i < g->first->members; i++) {
        const int q = g->first->contributors[i];
        const int64_t v = g->first->versions[i], since = g->since[q] < u ? g->since[q] : u;
        EXPECT((g->digest == 0 || v >= since) && v <= g->until[q],
               "round %" PRId64 " holds %" PRId64 " of rank %d, newest was %" PRId64 " to %" PRId64,
               u, v, q, g->since[q], g->until[q]);
    }
}

static int check_records(const wagma_options *o, const run *g) {
    round_seen(*rounds)[RANKS_MAX] = calloc((size_t)g->versions, sizeof *rounds);
    int32_t members[RANKS_MAX];
    int late = 0;
    for (int r = 0; r < o->size; r++) {
        int64_t last = -1;
        for (int64_t t = 0; t < g->versions; t++) {
            const record *a = &g->records[r][t];
            check_one(o, r, t, a, last);
            late += a->late;
            if (!a->merged)
                continue;
            const int64_t u = taken(a);
            if (u < 0 || u >= g->versions)
                continue; /* reported above */
            last = u > last ? u : last;
            group_at(o, r, u, members);
            check_round(&rounds[u][members[0]], r, t, a);
        }
    }
    for (int64_t u = 0; u < g->versions; u++)
        for (int leader = 0; leader < o->size; leader++)
            check_ages(&rounds[u][leader], u);
    free(rounds);
    return late;
}

/* Runs and checks one handle; returns the number of late calls, or -1. */
static int free_run(enum kind kind, wagma_options options, int64_t versions) {
    memset(shared, 0, offsetof(run, records)); /* and of those, which are many, what is used */
    for (int r = 0; r < options.size; r++)
        memset(shared->records[r], 0, (size_t)versions * sizeof(record));
    shared->versions = versions;
    shared->count = options.count;
    wagma_options_check(&options);
    team *t = team_start(kind, &options, run_freely, shared);
    team_join_clean(t);
    const int late = check_records(&options, shared);
    return expectations_failed() ? -1 : late;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_sums_decode(void) {
    for (enum kind kind = THREADS; kind <= processes_if_seen(); kind++) {
        wagma_options o = options_of(4, 4, 1, 1000);
        o.sync_period = 10;
        const int late = free_run(kind, o, VERSIONS_MAX / SLOWDOWN);
        CHECK(late > 0, "%s: %d late calls prove nothing", kind_name[kind], late);
    }
}

static void test_rounding_agrees(void) {
    for (enum kind kind = THREADS; kind <= processes_if_seen(); kind++) {
        wagma_options o = options_of(4, 4, 2, 333);
        o.dtype = WAGMA_F32;
        const int late = free_run(kind, o, VERSIONS_MAX / SLOWDOWN);
        CHECK(late > 0, "%s: %d late calls prove nothing", kind_name[kind], late);
    }
}

/* Averages of slices, fresh and late, are divided once. */
static void test_averages(void) {
    for (int size = 2; size <= 4; size++) {
        const int64_t slices =
            messages_for_threads ? 5003 : 50021; /* there are none over messages */
        wagma_options o = options_of(size, size, 1, size == 3 ? slices : 100);
        o.average = 1;
        o.dtype = size == 4 ? WAGMA_F32 : WAGMA_F64;
        int late = 0;
        for (int i = 0; late == 0 && i < 10; i++) /* two ranks may keep step for long */
            late = free_run(THREADS, o, size == 3 ? 40 : 300 / SLOWDOWN);
        CHECK(late > 0, "P=%d: %d late calls", size, late);
    }
}

/* Runs only some of the larger sizes. Over messages ranks meet in the simulation only: the thread
 * sanitizer needs few. */
static void test_every_size_and_group(void) {
    const int few = messages_for_threads && SLOWDOWN > 4, some = few ? 24 : 8;
    const int all = few ? 4 : messages_for_threads ? 6 : 8;
    for (int size = 1; size <= RANKS_MAX; size++)
        for (int group = 1; group <= size; group++) {
            if (size > all && (size + group) % some)
                continue;
            const int quorum = 1 + (size + group) % (group > 1 ? group - 1 : 1);
            wagma_options o = options_of(size, group, quorum, 17);
            o.sync_period = size % 2 ? 7 : 0;
            o.window = group % 2 ? 3 : 0;
            o.dtype = group % 3 ? WAGMA_F32 : WAGMA_F64;
            const int late = free_run(THREADS, o, 80 / SLOWDOWN);
            CHECK(late >= 0, "P=%d S=%d quorum=%d", size, group, quorum);
        }
}

static void test_every_quorum(void) {
    for (int quorum = 1; quorum <= 5; quorum++) {
        wagma_options o = options_of(5, 5, quorum, 33);
        const int late = free_run(THREADS, o, 400 / SLOWDOWN);
        CHECK(quorum < 5 ? late >= 0 : late == 0, "quorum=%d: %d late", quorum, late);
    }
}

static void test_counts(void) {
    static const int64_t counts[] = {0, 1, 3, 8191, 100003, (INT64_C(1) << 20) + 1};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int size = 2; size <= 3; size++) {
            if ((messages_for_threads || SLOWDOWN > 4) && counts[i] > 200000)
                continue; /* the simulation and ThreadSanitizer check every byte several times */
            wagma_options o = options_of(size, size, 1, counts[i]);
            o.dtype = i % 2 ? WAGMA_F32 : WAGMA_F64;
            o.sync_period = 5;
            const int versions = counts[i] > 10000 ? 11 : 200 / SLOWDOWN;
            const int late = free_run(size == 2 ? THREADS : processes_if_seen(), o, versions);
            CHECK(late >= 0, "P=%d count=%" PRId64, size, counts[i]);
        }
}

int main(void) {
    shared = shared_memory(sizeof *shared);
    RUN(test_sums_decode);
    RUN(test_rounding_agrees);
    RUN(test_averages);
    RUN(test_every_size_and_group);
    RUN(test_every_quorum);
    RUN(test_counts);
    return check_summary();
}
