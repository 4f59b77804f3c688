/* Exchanges give every member the weighted sum of exactly the contributions of its version, and the
 * same bits, records and attachments as the others, whatever the order of messages. */
/* short run: c */
#include "check.h"
#include "exchange_crew.h"
#include "base/mix.h"
#include "periodic.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VERSIONS = 5, ATTACHED = 40 };

typedef struct setting {
    int size;
    wagma_dtype dtype;
    size_t count;
    int average, in_place, sync; /* sync: some versions are over all ranks */
    int64_t switch_bytes, chunk;
    int direct;
    int absent; /* percent of the weights that are 0 */
    int delay;
    int rounding; /* 1: sums are rounded: only compared between members */
} setting;

typedef struct play { /* a setting with its data */
    setting s;
    crew crew;
    part parts[VERSIONS * CREW_RANKS];
    int32_t members[VERSIONS * CREW_RANKS][CREW_RANKS];
    unsigned char *input[VERSIONS * CREW_RANKS], *result[VERSIONS * CREW_RANKS];
    unsigned char attachment[VERSIONS * CREW_RANKS][ATTACHED];
    int64_t first; /* version */
} play;

static size_t bytes_of(const setting *s) {
    return s->count * reduce_dtype_size(s->dtype);
}

/* Returns the bytes that repeat in an array. */
static size_t head_of(const setting *s) {
    return PERIODIC_ELEMENTS * reduce_dtype_size(s->dtype);
}

/* Powers of two that say of whom, times a small number that says of which version and where: sums
 * are exact, and show what they are made of. */
static double exact_value(const play *p, int64_t version, int rank, size_t i) {
    (void)p;
    return (double)(1 << rank) * (double)(1 + ((uint64_t)version + i) % 4);
}

static double rough_value(const play *p, int64_t version, int rank, size_t i) {
    const uint64_t bits = mix((uint64_t)version << 40 ^ (uint64_t)rank << 32 ^ i);
    (void)p;
    return (double)(int64_t)bits * 0x1p-60 * (double)(1 << bits % 8);
}

static void draw_start(play *p, int v, int rank, const int32_t *members, int n, int sync) {
    const int k = v * p->s.size + rank;
    exchange_start *start = &p->parts[k].start;
    const double weights[] = {1, 2, p->s.dtype >= WAGMA_I32 ? 3 : 0.5};
    const int absent = (int)crew_draw(&p->crew, 100) < p->s.absent;
    *start = (exchange_start){.version = p->first + v, .n = n, .sync = sync};
    memcpy(p->members[k], members, (size_t)n * sizeof *members);
    start->members = p->members[k];
    while (members[start->index] != rank)
        start->index++;
    start->mine = (exchange_record){.version = p->first + v - (int64_t)crew_draw(&p->crew, 3),
                                    .weight = absent ? 0 : weights[crew_draw(&p->crew, 3)],
                                    .flags = (uint64_t)rank << 8};
    start->mine.share = absent && crew_draw(&p->crew, 2) ? 1 : start->mine.weight;
    for (size_t i = 0; i < (size_t)periodic_head((int64_t)p->s.count); i++)
        element_put(p->s.dtype, p->input[k], i,
                    absent          ? (double)NAN
                    : p->s.rounding ? rough_value(p, start->version, rank, i)
                                    : exact_value(p, start->version, rank, i));
    periodic_repeat(p->input[k], head_of(&p->s), bytes_of(&p->s));
    start->input = absent && crew_draw(&p->crew, 2) ? NULL : p->input[k];
    memset(p->result[k], 0x5A, bytes_of(&p->s));
    start->result = p->s.in_place ? p->input[k] : p->result[k];
    start->divide = p->s.average;
    memset(p->attachment[k], (int)(start->version * 16 + rank), ATTACHED);
    start->attachment = p->attachment[k];
}

/* Members of each group by drawing the number of a group for each rank. */
static void draw_version(play *p, int v) {
    const int sync = p->s.sync && crew_draw(&p->crew, 3) == 0;
    const int groups = sync ? 1 : 1 + (int)crew_draw(&p->crew, 3);
    int group[CREW_RANKS];
    for (int r = 0; r < p->s.size; r++)
        group[r] = (int)crew_draw(&p->crew, (uint64_t)groups);
    for (int r = 0; r < p->s.size; r++) {
        int32_t members[CREW_RANKS];
        int n = 0;
        for (int q = 0; q < p->s.size; q++)
            if (group[q] == group[r])
                members[n++] = q;
        p->parts[v * p->s.size + r] = (part){0};
        draw_start(p, v, r, members, n, sync);
    }
}

static wagma_options options_for(const setting *s) {
    wagma_options o;
    wagma_options_init(&o);
    o.size = s->size;
    o.dtype = (int32_t)s->dtype;
    o.count = (int64_t)s->count;
    o.average = s->average;
    o.window = 64;
    o.schedule_switch = s->switch_bytes;
    o.schedule_chunk = s->chunk;
    o.schedule_direct = s->direct;
    o.schedule_part = 1;
    wagma_options_check(&o);
    return o;
}

static int open_play(play *p, setting s, uint64_t seed) {
    const wagma_options o = options_for(&s);
    *p = (play){.s = s};
    for (int k = 0; k < VERSIONS * s.size; k++) {
        p->input[k] = malloc(bytes_of(&s) + 1);
        p->result[k] = malloc(bytes_of(&s) + 1);
    }
    return crew_open(&p->crew, &o, ATTACHED, seed, s.delay);
}

static void close_play(play *p) {
    crew_close(&p->crew);
    for (int k = 0; k < VERSIONS * p->s.size; k++) {
        free(p->input[k]);
        free(p->result[k]);
    }
}

/* What the result has to be, rounded as often as the kernels round. */
static double expected(const play *p, const part *first, size_t i, double total) {
    double sum = 0;
    for (int m = 0; m < first->start.n; m++) {
        const int rank = first->start.members[m];
        const part *q = first + (rank - first->start.members[first->start.index]);
        if (q->start.mine.weight != 0)
            sum += q->start.mine.weight * exact_value(p, q->start.version, rank, i);
    }
    if (!p->s.average || total == 0)
        return sum;
    return p->s.dtype == WAGMA_F64 ? sum / total : (double)((float)sum / (float)total);
}

static int is_input(const play *p, const exchange_start *start, const unsigned char *x) {
    const size_t size = reduce_dtype_size(p->s.dtype);
    for (size_t i = 0; i < (size_t)periodic_head((int64_t)p->s.count); i++) {
        unsigned char was[8];
        element_put(p->s.dtype, was, 0,
                    (p->s.rounding ? rough_value : exact_value)(p, start->version,
                                                                start->members[start->index], i));
        if (memcmp(x + i * size, was, size) != 0)
            return 0;
    }
    return periodic_holds(x, head_of(&p->s), bytes_of(&p->s));
}

/* Nobody contributed: the rank's own NaNs, where it knows them. */
static int is_untouched(const play *p, const exchange_start *start) {
    if (!p->s.in_place || start->mine.weight != 0 || p->s.dtype >= WAGMA_I32)
        return 1;
    for (size_t i = 0; i < (size_t)periodic_head((int64_t)p->s.count); i++)
        if (!isnan(element_get(p->s.dtype, start->result, i)))
            return 0;
    return periodic_holds(start->result, head_of(&p->s), bytes_of(&p->s));
}

static int is_sum(const play *p, const part *mine, double total, double weights) {
    const size_t size = reduce_dtype_size(p->s.dtype);
    for (size_t i = 0; i < (size_t)periodic_head((int64_t)p->s.count); i++) {
        unsigned char wanted[8];
        element_put(p->s.dtype, wanted, 0, weights == 0 ? 0 : expected(p, mine, i, total));
        if (memcmp((unsigned char *)mine->start.result + i * size, wanted, size) != 0)
            return 0;
    }
    return periodic_holds(mine->start.result, head_of(&p->s), bytes_of(&p->s));
}

/* NULL, or what is wrong with one rank's result. */
static const char *check_part(const play *p, int k) {
    const part *mine = &p->parts[k];
    const exchange_start *start = &mine->start;
    const int32_t *members;
    int n;
    const exchange_record *records = exchange_records(mine->exchange, &members, &n);
    double total = 0, weights = 0;
    if (n != start->n || memcmp(members, start->members, (size_t)n * sizeof *members) != 0)
        return "other members";
    for (int m = 0; m < n; m++) {
        const int other = k - start->members[start->index] + members[m];
        const void *attachment = exchange_attachment(mine->exchange, m);
        if (memcmp(&records[m], &p->parts[other].start.mine, sizeof records[m]) != 0)
            return "another record";
        if (!start->sync != !attachment ||
            (attachment && memcmp(attachment, p->attachment[other], ATTACHED) != 0))
            return "another attachment";
        total += records[m].share, weights += records[m].weight;
    }
    if (!p->s.in_place && start->mine.weight != 0 && !is_input(p, start, p->input[k]))
        return "the input was changed";
    if (total == 0)
        return is_untouched(p, start) ? NULL : "written although nobody contributed";
    if (!p->s.rounding && !is_sum(p, mine, total, weights))
        return "another sum";
    const part *first = mine + (members[0] - members[start->index]);
    if (memcmp(start->result, first->start.result, bytes_of(&p->s)) != 0)
        return "other bits than the first member";
    return NULL;
}

static const char *round_of(play *p) {
    for (int v = 0; v < VERSIONS; v++)
        draw_version(p, v);
    const char *wrong = crew_run(&p->crew, p->parts, VERSIONS);
    for (int k = 0; !wrong && k < VERSIONS * p->s.size; k++)
        wrong = check_part(p, k);
    crew_release(&p->crew, p->parts, VERSIONS);
    p->first += VERSIONS;
    return wrong ? wrong : crew_leftover(&p->crew);
}

static const char *perform(setting s, uint64_t seed, int rounds) {
    static char text[256];
    play p;
    if (open_play(&p, s, seed))
        return wagma_last_error();
    const char *wrong = NULL;
    for (int k = 0; !wrong && k < rounds; k++)
        wrong = round_of(&p);
    if (wrong) {
        snprintf(text, sizeof text,
                 "%s: %d ranks, %s, count %zu, average %d, in place %d, switch %lld, direct %d, "
                 "chunk %lld, seed %llu",
                 wrong, s.size, reduce_dtype_name(s.dtype), s.count, s.average, s.in_place,
                 (long long)s.switch_bytes, s.direct, (long long)s.chunk, (unsigned long long)seed);
        wrong = text;
        return wrong; /* the exchanges are in an unknown state */
    }
    close_play(&p);
    return NULL;
}

/* The three algorithms: what makes schedule_choose() choose them. */
static setting by_algorithm(int algorithm, int size, size_t count) {
    setting s = {.size = size, .count = count, .chunk = 1024, .absent = 20, .delay = 6, .sync = 1};
    s.switch_bytes = algorithm == 0 ? INT64_MAX : 1;
    s.direct = algorithm == 1 ? 1 : 64;
    return s;
}

static const size_t counts[] = {0, 1, 7, 1000, 6001};

static void run_all(int rounding, int types) {
    uint64_t seed = 1;
    for (int size = 1; size <= 9; size++)
        for (int algorithm = 0; algorithm < 3; algorithm++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                for (int t = 0; t < types; t++, seed++) {
                    const uint64_t draw = mix(seed);
                    if (draw >> 8 & (4 * SLOWDOWN - 1))
                        continue;
                    setting s = by_algorithm(algorithm, size, counts[c]);
                    s.dtype = (wagma_dtype)t;
                    s.average = t < WAGMA_I32 && draw % 3 != 0;
                    s.in_place = draw >> 4 & 1;
                    s.rounding = rounding;
                    const char *wrong = perform(s, seed, 2);
                    CHECK(!wrong, "%s", wrong);
                }
}

static void test_sums(void) {
    run_all(0, 6);
}

static void test_same_bits_where_sums_are_rounded(void) {
    run_all(1, 4);
}

/* Many chunks, and one. */
static void test_large_data(void) {
    for (uint64_t seed = 0; seed < 12 / SLOWDOWN; seed++) {
        setting s = by_algorithm((int)(seed % 3), 2 + (int)(seed / 3 % 4), 160000);
        s.in_place = (int)(seed / 2 % 2);
        s.average = 1;
        s.chunk = seed % 5 ? 20000 : 300000;
        const char *wrong = perform(s, 5000 + seed, 1);
        CHECK(!wrong, "%s", wrong);
    }
}

static void test_orders(void) { /* one case, many orders of events */
    for (uint64_t seed = 0; seed < 300 / SLOWDOWN; seed++) {
        setting s = by_algorithm((int)(seed % 3), 3 + (int)(seed / 3 % 5), 3000);
        s.dtype = seed % 2 ? WAGMA_F32 : WAGMA_BF16;
        s.average = 1;
        s.in_place = (int)(seed / 2 % 2);
        s.delay = (int)(seed % 40);
        const char *wrong = perform(s, 1000 + seed, 1);
        CHECK(!wrong, "%s", wrong);
    }
}

int main(void) {
    RUN(test_sums);
    RUN(test_same_bits_where_sums_are_rounded);
    RUN(test_large_data);
    RUN(test_orders);
    return check_summary();
}
