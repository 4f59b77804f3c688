/* Quorum "all" with private arrays, which pass through a few places in the segment, chunk by chunk,
 * or are read from their owners' memory. */
#include "check.h"
#include "shm/quorum_all/executor.h"
#include "periodic.h"
#include "ranks.h"
#include "kernels/reduce.h"
#include "shm/segment.h"

#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the same bits as one sum ---------------------------------------------------------------- */

enum arrays { PRIVATE, MIXED, ODD, ARRAYS }; /* ODD: private, at any address */
static const char *const arrays_name[] = {"private", "mixed", "odd"};

typedef struct plan {
    wagma_options options;
    enum arrays arrays;
    int versions;
    int departs[RANKS_MAX]; /* version before which the rank closes; 0: never */
    int refuses;            /* 1 + rank that does not let its memory be read; 0: none */
    int direct;             /* of rank 0: calls in which arrays were read from their owners */
} plan;

static double weight_of(int rank, int64_t t, int is_integer) {
    const double weight = (double)((rank + 2 * t + 1) % 4);
    return is_integer ? weight : 0.75 * weight;
}

/* Contributions whose sums are rounded; of weight 0 they are not to be read. They are periodic, and
 * so are the sums. */
static void fill(void *x, const wagma_options *o, int rank, int64_t t) {
    const wagma_dtype dtype = (wagma_dtype)o->dtype;
    const int is_integer = reduce_dtype_is_integer(dtype);
    const int unread = weight_of(rank, t, is_integer) == 0;
    const int64_t period = PERIODIC_ELEMENTS;
    for (int64_t i = 0; i < periodic_head(o->count); i++) {
        const int64_t whole = (rank * 31 + i * 7 + t * 13) % period;
        const float fraction = unread ? NAN : 1.0f / (float)(whole + 1);
        uint32_t bits;
        memcpy(&bits, &fraction, sizeof bits);
        switch (dtype) {
        case WAGMA_F32: ((float *)x)[i] = fraction; break;
        case WAGMA_F64: ((double *)x)[i] = unread ? NAN : 1.0 / (double)(whole + 1); break;
        case WAGMA_F16: /* 0x3c00 is 1.0 */
            ((uint16_t *)x)[i] = unread ? 0x7e00 : (uint16_t)(0x3c00 + whole);
            break;
        case WAGMA_BF16: ((uint16_t *)x)[i] = (uint16_t)(bits >> 16); break;
        case WAGMA_I32: ((int32_t *)x)[i] = (int32_t)whole; break;
        case WAGMA_I64: ((int64_t *)x)[i] = whole;
        }
    }
    const size_t element = reduce_dtype_size(dtype);
    periodic_repeat(x, (size_t)period * element, (size_t)o->count * element);
}

/* Returns the plan's options with the elements of one period. */
static wagma_options period_of(const plan *p) {
    wagma_options o = p->options;
    o.count = periodic_head(o.count);
    return o;
}

/* Memory of `expected`: for the sum and for each input. Every array has its own, so that sanitizers
 * see its ends; it is kept, since new memory for each call is most of the time under them. */
static void free_arrays(void **arrays) {
    for (int k = 0; k <= RANKS_MAX; k++)
        free(arrays[k]);
}
static void make_arrays(const plan *p, void **arrays) {
    const size_t element = reduce_dtype_size((wagma_dtype)p->options.dtype);
    for (int k = 0; k <= p->options.size; k++)
        arrays[k] = malloc((size_t)period_of(p).count * element + 1);
}

/* A period of the sum, by whoever asks, in arrays[0]. 0: all weights are. */
static int expected(void *const *arrays, const plan *p, const int32_t *members, int n, int64_t t) {
    const wagma_options o = period_of(p);
    const wagma_dtype dtype = (wagma_dtype)o.dtype;
    double weights[RANKS_MAX], divisor = 0;
    int inputs = 0;
    for (int k = 0; k < n; k++) {
        const double weight = weight_of(members[k], t, reduce_dtype_is_integer(dtype));
        if (weight == 0)
            continue;
        divisor += weights[inputs++] = weight;
        fill(arrays[inputs], &o, members[k], t);
    }
    if (inputs)
        reduce_best()->sum(dtype, arrays[0], (const void *const *)arrays + 1, weights, inputs,
                           o.average ? divisor : 1, (size_t)o.count);
    return inputs;
}

static int members_of(const plan *p, int rank, int64_t t, int32_t *members) {
    const wagma_options *o = &p->options;
    int32_t group[RANKS_MAX];
    const int n = wagma_group_of(rank, o->size, o->group_size, WAGMA_GROUPING_DYNAMIC, 0, t, group);
    int present = 0;
    for (int k = 0; k < n; k++)
        if (!p->departs[group[k]] || t < p->departs[group[k]])
            members[present++] = group[k];
    return present;
}

static void *array_of(const plan *p, wagma_handle *h, unsigned char *own, int rank, int64_t t) {
    const size_t element = reduce_dtype_size((wagma_dtype)p->options.dtype);
    if (p->arrays == MIXED && (t * 3 + rank * 5) % 4 < 2)
        return wagma_shared_array(h);
    /* Elements are aligned, as C wants it; lines and vectors are not. */
    return own + (p->arrays == ODD ? element * (size_t)((rank * 5 + t * 3) % 16) : 0);
}

/* Every other version is stored by streaming stores, and half of them are read from their owners,
 * whatever is faster here. */
static void set_ways(wagma_handle *h, int64_t t) {
    const struct ways second = {.second = 1, .cost = {UINT64_C(1) << 40, 1}}, first = {0};
    for (int q = 0; q < h->size; q++)
        quorum_all_of(h)->chunks.stores[q] = t % 2 ? second : first;
    quorum_all_of(h)->chunks.way = t % 4 < 2 ? second : first;
}

static int sums(wagma_handle *h, int rank, void *context) {
    plan *p = context;
    const wagma_options *o = &p->options;
    const int is_integer = reduce_dtype_is_integer((wagma_dtype)o->dtype);
    const size_t element = reduce_dtype_size((wagma_dtype)o->dtype);
    const size_t bytes = (size_t)o->count * element, head = (size_t)period_of(p).count * element;
    void *arrays[RANKS_MAX + 1] = {0};
    make_arrays(p, arrays);
    const unsigned char *sum = arrays[0];
    unsigned char *own = malloc(bytes + 128);
    unsigned seed = (unsigned)rank * 7919 + 1;
    int result = 0;
    if (p->refuses == rank + 1)
        quorum_all_of(h)->chunks.allowed = CHUNKS_PLACES;
    for (int64_t t = 0; t < p->versions && result == 0; t++) {
        int32_t members[RANKS_MAX];
        wagma_outcome out = {0};
        unsigned char *x = array_of(p, h, own, rank, t);
        if (p->departs[rank] && t == p->departs[rank])
            break;
        const int n = members_of(p, rank, t, members), inputs = expected(arrays, p, members, n, t);
        fill(x, o, rank, t);
        set_ways(h, t);
        if (rand_r(&seed) % 16 == 0)
            usleep((unsigned)rand_r(&seed) % 300);
        const int status = wagma_allreduce(h, x, weight_of(rank, t, is_integer), &out);
        result = !EXPECT(status == WAGMA_OK && out.contributors_count == inputs && !out.late,
                         "%s rank %d version %ld: %d, %d contributors instead of %d; %s",
                         arrays_name[p->arrays], rank, (long)t, status, out.contributors_count,
                         inputs, wagma_last_error());
        if (inputs && (n > 1 || !o->average) && result == 0 &&
            (memcmp(x, sum, head) != 0 || !periodic_holds(x, head, bytes)))
            for (size_t i = 0; i < bytes && result == 0; i++)
                result = !EXPECT(
                    x[i] == sum[i % head], "%s rank %d version %ld byte %zu of %zu: %d, not %d",
                    arrays_name[p->arrays], rank, (long)t, i, bytes, x[i], sum[i % head]);
    }
    if (rank == 0)
        p->direct = (int)h->stats.direct;
    free(own);
    free_arrays(arrays);
    return result;
}

static plan make_plan(int size, int group_size, wagma_dtype dtype, int64_t count, int versions) {
    return (plan){.options = ranks_options(size, group_size, dtype, count), .versions = versions};
}

static void every_shape(enum kind kind, int most, int64_t count, int versions) {
    for (int size = 1; size <= most; size++)
        for (int group = 1; group <= size; group++)
            for (int arrays = PRIVATE; arrays < ARRAYS; arrays++) {
                plan p = make_plan(size, group, WAGMA_F32, count, versions);
                p.arrays = (enum arrays)arrays;
                CHECK(ranks_run(kind, &p.options, sums, &p) == 0, "P=%d S=%d count=%ld %s", size,
                      group, (long)count, arrays_name[arrays]);
            }
}

static void test_few_elements(void) {
    every_shape(THREADS, 3, 0, 10);
    every_shape(THREADS, 3, 1, 20);
    every_shape(THREADS, 3, 3, 20);
    every_shape(THREADS, 3, 123, 20); /* several lines of a record, and a part of one */
}
static void test_one_chunk(void) {
    every_shape(THREADS, 5, SEGMENT_FLAT_MAX / 4 + 1, 30);
}
static void test_some_chunks(void) {
    every_shape(THREADS, SLOWDOWN > 4 ? 4 : 5, 20011, 12);
}
static void test_processes(void) {
    every_shape(PROCESSES, 4, 20011, 12);
}

/* More chunks than places for them. */
static void test_many_chunks(void) {
    static const int shapes[][2] = {{2, 2}, {3, 2}, {4, 4}, {5, 3}, {8, 8}};
    for (size_t i = 0; i<sizeof shapes / sizeof *shapes; i += SLOWDOWN> 1 ? 3 : 1)
        for (int arrays = PRIVATE; arrays < ARRAYS; arrays++)
            for (int kind = THREADS;
                 kind <= (arrays == MIXED && SEES_PROCESSES ? PROCESSES : THREADS); kind++) {
                const int64_t count = (SLOWDOWN > 4 ? 5 << 17 : 1 << 20) + 1;
                plan p = make_plan(shapes[i][0], shapes[i][1], WAGMA_F32, count, 2);
                p.arrays = (enum arrays)arrays;
                CHECK(ranks_run((enum kind)kind, &p.options, sums, &p) == 0, "P=%d %s %s",
                      shapes[i][0], arrays_name[arrays], kind_name[kind]);
            }
}

/* Ranks meet alike whatever the type: the thread sanitizer sees one of each kind. */
static void every_dtype(int64_t count) {
    for (int dtype = WAGMA_F32; dtype <= WAGMA_I64; dtype += SLOWDOWN > 4 ? 2 : 1)
        for (int size = 2; size <= 4; size += SLOWDOWN > 4 ? 2 : 1)
            for (int arrays = PRIVATE; arrays < ARRAYS; arrays++) {
                plan p = make_plan(size, size, (wagma_dtype)dtype, count, 8);
                p.arrays = (enum arrays)arrays;
                p.options.average = !reduce_dtype_is_integer((wagma_dtype)dtype);
                CHECK(ranks_run(THREADS, &p.options, sums, &p) == 0, "%s P=%d count=%ld %s",
                      reduce_dtype_name((wagma_dtype)dtype), size, (long)count,
                      arrays_name[arrays]);
            }
}

static void test_dtypes(void) {
    every_dtype(123); /* with the records */
    every_dtype(30011);
}

/* Ranks leave one after the other, and others take over their parts. */
static void test_departures(void) {
    for (int size = 2; size <= 6; size += 2)
        for (int group = 2; group <= size; group += 2)
            for (int arrays = PRIVATE; arrays < ARRAYS; arrays++) {
                plan p = make_plan(size, group, WAGMA_F32, 9001, 25);
                p.arrays = (enum arrays)arrays;
                for (int r = 0; r < size - 1; r++)
                    p.departs[r] = 3 + 4 * r;
                CHECK(ranks_run(THREADS, &p.options, sums, &p) == 0, "P=%d S=%d %s", size, group,
                      arrays_name[arrays]);
            }
}

/* Memory is read as soon as all owners know each other, and only if all of them may. */
static void test_who_may_read(void) {
    for (int size = 2; size <= 4; size++)
        for (int refuses = 0; refuses <= size; refuses++) {
            plan p = make_plan(size, size, WAGMA_F32, 20011, 9);
            p.refuses = refuses;
            CHECK(ranks_run(THREADS, &p.options, sums, &p) == 0, "P=%d", size);
            /* of 0, 1, 4, 5 and 8: the first one finds out */
            CHECK(p.direct == (refuses || !peers_may_read() ? 0 : 4), "P=%d, rank %d refuses: %d",
                  size, refuses - 1, p.direct);
        }
}

static void test_forbidden(void) {
    plan p = make_plan(2, 2, WAGMA_F32, 20011, 9);
    setenv("WAGMA_CMA", "0", 1);
    CHECK(ranks_run(THREADS, &p.options, sums, &p) == 0, "see above");
    unsetenv("WAGMA_CMA");
    CHECK(p.direct == 0, "%d calls", p.direct);
}

/* ---- posted ---------------------------------------------------------------------------------- */

enum { POSTED = 300000, PATIENCE = 20 /* seconds; without progress it ends then */ };

typedef struct absence {
    wagma_options options;
    int mixed;         /* the others pass their shared arrays */
    _Atomic int ended; /* calls of the others */
} absence;

/* Rank 0 posts a private array and is elsewhere until the others have the result. */
static int post_and_leave(wagma_handle *h, int rank, void *context) {
    absence *a = context;
    const int size = a->options.size;
    float *own = malloc(POSTED * sizeof *own);
    int result = 0;
    for (int t = 0; t < 4 && result == 0; t++) {
        float *x = a->mixed && rank ? wagma_shared_array(h) : own;
        const double began = seconds();
        for (int i = 0; i < PERIODIC_ELEMENTS; i++)
            x[i] = (float)(rank + t + i % 7);
        periodic_repeat(x, PERIODIC_ELEMENTS * sizeof *x, POSTED * sizeof *x);
        int status;
        if (rank) {
            status = wagma_allreduce(h, x, 1, NULL);
            atomic_fetch_add(&a->ended, 1);
        } else {
            status = wagma_post(h, x, 1, 0);
            while (atomic_load(&a->ended) < (t + 1) * (size - 1) && seconds() - began < PATIENCE)
                sleep_ms(0.1);
            EXPECT(atomic_load(&a->ended) == (t + 1) * (size - 1), "the others waited for rank 0");
            if (status == WAGMA_INPROGRESS)
                status = wagma_wait(h, x, PATIENCE, NULL);
        }
        result = !EXPECT(status == WAGMA_OK, "rank %d: %d %s", rank, status, wagma_last_error());
        const int64_t enough = periodic_enough(x, sizeof *x, PERIODIC_ELEMENTS, POSTED);
        for (int i = 0; i < enough && result == 0; i++) {
            const int k = i % PERIODIC_ELEMENTS % 7;
            result = !EXPECT(x[i] == (float)(size * (size - 1) / 2 + size * (t + k)),
                             "rank %d version %d element %d: %g", rank, t, i, (double)x[i]);
        }
    }
    free(own);
    return result;
}

static void test_posted(void) {
    for (int size = 2; size <= 4; size++)
        for (int mixed = 0; mixed <= 1; mixed++) {
            absence a = {.options = ranks_options(size, 0, WAGMA_F32, POSTED), .mixed = mixed};
            a.options.average = 0;
            CHECK(ranks_run(THREADS, &a.options, post_and_leave, &a) == 0, "P=%d mixed %d", size,
                  mixed);
        }
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { ROOMY = (SLOWDOWN > 1 ? 1 : 3) << 20 }; /* f64: much more than the places for chunks */

static int measure(wagma_handle *h, int rank, void *context) {
    uint64_t *grown = context;
    double *x = calloc(ROOMY, sizeof *x);
    wagma_stats before, after;
    wagma_get_stats(h, &before);
    for (int t = 0; t < 2; t++)
        REQUIRE(wagma_allreduce(h, x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
    wagma_get_stats(h, &after);
    grown[rank] = after.segment_bytes - before.segment_bytes;
    free(x);
    return 0;
}

static void test_memory(void) {
    wagma_options o = ranks_options(2, 0, WAGMA_F64, ROOMY);
    uint64_t grown[2] = {0}, array = ROOMY * sizeof(double);
    struct ranks_job *job;
    team *t = ranks_start(THREADS, &o, NULL, measure, grown, &job);
    CHECK(t, "no segment");
    wagma_segment *s = team_segment(t);
    const uint64_t chunks = s->chunks_bytes, joined = segment_joined_bytes(s);
    uint64_t file = 0;
    /* The file is gone with the team. */
    while (atomic_load(&segment_presence_of(s, 0)->state) < SEGMENT_DEPARTED ||
           atomic_load(&segment_presence_of(s, 1)->state) < SEGMENT_DEPARTED)
        sleep_ms(1);
    file = file_bytes(s);
    team_join(t);
    CHECK(expectations_failed() == 0, "see above");
    CHECK(grown[0] == chunks && grown[1] == chunks, "%lu and %lu instead of %lu", (long)grown[0],
          (long)grown[1], (long)chunks);
    CHECK(chunks <= 2 << 20 && chunks < array, "%lu bytes for arrays of %lu", (long)chunks,
          (long)array);
    CHECK(file <= 2 * (joined + chunks) + (64 << 10), "%lu bytes instead of twice %lu", (long)file,
          (long)(joined + chunks));
}

int main(void) {
    RUN(test_few_elements);
    RUN(test_one_chunk);
    RUN(test_some_chunks);
    if (SEES_PROCESSES)
        RUN(test_processes);
    RUN(test_many_chunks);
    RUN(test_dtypes);
    RUN(test_departures);
    RUN(test_who_may_read);
    RUN(test_forbidden);
    RUN(test_posted);
    RUN(test_memory);
    return check_summary();
}
