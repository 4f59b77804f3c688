/* Schedules of all members fit together: every element gets every contribution exactly once, all
 * members get the same bits, and no more is sent than docs/schedules.md says. */
#include "check.h"
#include "protocol/schedule.h"
#include "base/mix.h"
#include "schedule_formula.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 33, COUNTS = 9 };
static const size_t counts[COUNTS] = {0, 1, 2, 31, 33, 100, 257, 1023, 2048};

typedef struct member { /* what one has of each element */
    schedule schedule;
    uint64_t *holds; /* bits: contributions in its partial sum, or in the result */
    float *sum;
    uint64_t heard; /* whose records it knows */
} member;

typedef struct group {
    int n;
    size_t count;
    int elements, messages; /* at most, of a member; sent */
    member member[MOST];
} group;

static float contribution(int i, size_t element) { /* sums of such depend on their order */
    const uint64_t bits = mix((uint64_t)i << 32 | element);
    return (float)((double)(int64_t)bits * 0x1p-63) * (float)(1 << bits % 24);
}

/* Schedules alone. */
static void open_group(group *g, schedule_algorithm algorithm, int n, size_t count) {
    *g = (group){.n = n, .count = count};
    for (int i = 0; i < n; i++) {
        member *m = &g->member[i];
        m->schedule.step = calloc((size_t)schedule_steps(algorithm, n) + 1, sizeof(schedule_step));
        schedule_make(&m->schedule, algorithm, n, i, count);
    }
}

static void contribute(group *g) {
    const size_t count = g->count;
    for (int i = 0; i < g->n; i++) {
        member *m = &g->member[i];
        m->holds = malloc((count + 1) * sizeof *m->holds);
        m->sum = malloc((count + 1) * sizeof *m->sum);
        m->heard = UINT64_C(1) << i;
        for (size_t e = 0; e < count; e++)
            m->holds[e] = m->heard, m->sum[e] = contribution(i, e);
    }
}

static void close_group(group *g) {
    for (int i = 0; i < g->n; i++) {
        free(g->member[i].schedule.step);
        free(g->member[i].holds);
        free(g->member[i].sum);
    }
}

static int same(schedule_range a, schedule_range b) {
    return a.begin == b.begin && a.end == b.end;
}

static uint64_t bits_of(schedule_range r) {
    uint64_t bits = 0;
    for (size_t i = r.begin; i < r.end; i++)
        bits |= UINT64_C(1) << i;
    return bits;
}

/* The step of the peer that has this one's data; NULL: none, or more than one. */
static const schedule_step *partner(const group *g, int from, int phase,
                                    const schedule_step *step) {
    const schedule *s = &g->member[step->peer].schedule;
    const schedule_step *found = NULL;
    for (int k = s->phase[phase].begin; k < s->phase[phase].end; k++)
        if (s->step[k].peer == from) {
            if (found)
                return NULL;
            found = &s->step[k];
        }
    return found;
}

/* Whether all steps are those of their peers, seen from there. */
static const char *mismatch(const group *g) {
    for (int i = 0; i < g->n; i++) {
        const schedule *s = &g->member[i].schedule;
        if (s->phases != g->member[0].schedule.phases ||
            s->reduces != g->member[0].schedule.reduces)
            return "another number of phases";
        if (s->phases > schedule_phases(g->n) || s->phases > SCHEDULE_PHASES_MAX)
            return "too many phases";
        if (s->phase[s->phases - (s->phases > 0)].end > schedule_steps(s->algorithm, g->n))
            return "too many steps";
        for (int p = 0; p < s->phases; p++) {
            if (s->phase[p].begin != (p == 0 ? 0 : s->phase[p - 1].end))
                return "steps between phases";
            for (int k = s->phase[p].begin; k < s->phase[p].end; k++) {
                const schedule_step *mine = &s->step[k], *theirs = partner(g, i, p, mine);
                if (mine->peer == i || !theirs)
                    return "no partner";
                if (k > s->phase[p].begin && mine->peer <= mine[-1].peer)
                    return "peers do not ascend";
                if (!same(mine->send, theirs->receive) || !same(mine->receive, theirs->send))
                    return "other elements";
                if (!same(mine->tell, theirs->hear))
                    return "other records";
                if (p < s->reduces && mine->receive.begin != mine->receive.end &&
                    !same(mine->receive, s->phase[p].kept))
                    return "received and not summed";
            }
        }
    }
    return NULL;
}

/* Runs phase p on all members. */
static const char *run_phase(group *g, int p) {
    const int reduce = p < g->member[0].schedule.reduces;
    uint64_t heard[MOST];
    float *sums[MOST];
    uint64_t *holds[MOST];
    const char *wrong = NULL;
    for (int i = 0; i < g->n; i++) { /* all of it from what there was before the phase */
        const schedule *s = &g->member[i].schedule;
        const schedule_phase *phase = &s->phase[p];
        heard[i] = g->member[i].heard;
        sums[i] = malloc((g->count + 1) * sizeof *sums[i]);
        holds[i] = calloc(g->count + 1, sizeof *holds[i]);
        for (int k = phase->begin; k < phase->end; k++) {
            const schedule_step *step = &s->step[k];
            if (bits_of(step->hear) & ~g->member[step->peer].heard)
                wrong = "tells records that it has not heard";
            heard[i] |= bits_of(step->hear);
            if (!reduce)
                for (size_t e = step->receive.begin; e < step->receive.end; e++) {
                    holds[i][e] = g->member[step->peer].holds[e];
                    sums[i][e] = g->member[step->peer].sum[e];
                    if (step->after < 0 || e < s->step[step->after].send.begin ||
                        e >= s->step[step->after].send.end)
                        wrong = "a result comes to where nothing was sent from";
                }
        }
        for (size_t e = phase->kept.begin; reduce && e < phase->kept.end; e++) {
            int next = phase->begin; /* own and received, by index */
            for (int q = 0; q < g->n; q++) {
                const int step = next < phase->end && s->step[next].peer == q ? next++ : -1;
                const int summed = q == i || (step >= 0 && s->step[step].receive.end > e);
                if (!summed)
                    continue;
                if (holds[i][e] & g->member[q].holds[e])
                    wrong = "a contribution twice";
                if (q != i && g->member[q].holds[e] != bits_of(s->step[step].hear))
                    wrong = "records that are not those of the sum";
                sums[i][e] = holds[i][e] ? sums[i][e] + g->member[q].sum[e] : g->member[q].sum[e];
                holds[i][e] |= g->member[q].holds[e];
            }
        }
    }
    for (int i = 0; i < g->n; i++) {
        member *m = &g->member[i];
        for (size_t e = 0; e < g->count; e++)
            if (holds[i][e])
                m->holds[e] = holds[i][e], m->sum[e] = sums[i][e];
        m->heard = heard[i];
        free(holds[i]);
        free(sums[i]);
    }
    return wrong;
}

static void count_sent(group *g) {
    for (int i = 0; i < g->n; i++) {
        const schedule *s = &g->member[i].schedule;
        int elements = 0, messages = 0;
        for (int k = 0; k < (s->phases ? s->phase[s->phases - 1].end : 0); k++) {
            elements += (int)(s->step[k].send.end - s->step[k].send.begin);
            messages += s->step[k].send.end > s->step[k].send.begin;
        }
        g->elements = elements > g->elements ? elements : g->elements;
        g->messages = messages > g->messages ? messages : g->messages;
    }
}

static const char *run_group(schedule_algorithm algorithm, int n, size_t count) {
    const uint64_t everybody = (UINT64_C(1) << n) - 1;
    group g;
    open_group(&g, algorithm, n, count);
    contribute(&g);
    const char *wrong = mismatch(&g);
    for (int p = 0; !wrong && p < g.member[0].schedule.phases; p++)
        wrong = run_phase(&g, p);
    for (int i = 0; !wrong && i < n; i++) {
        if (g.member[i].heard != everybody)
            wrong = "a record is missing";
        for (size_t e = 0; e < count; e++)
            if (g.member[i].holds[e] != everybody)
                wrong = "a contribution is missing";
        if (memcmp(g.member[i].sum, g.member[0].sum, count * sizeof(float)) != 0)
            wrong = "other bits";
    }
    close_group(&g);
    return wrong;
}

static void test_every_group(void) {
    for (int a = 0; a < SCHEDULE_ALGORITHMS; a++)
        for (int n = 1; n <= MOST; n++)
            for (int c = 0; c < COUNTS; c++) {
                const char *wrong = run_group((schedule_algorithm)a, n, counts[c]);
                CHECK(!wrong, "%s, %d members, %zu elements: %s",
                      schedule_name((schedule_algorithm)a), n, counts[c], wrong);
            }
}

/* The formulas of docs/schedules.md. */
static void test_volume(void) {
    for (int n = 1; n <= MOST; n++) {
        const int count = n * n * SCHEDULE_ALIGN * 2;
        const schedule_formula f = schedule_formula_of(n);
        for (int a = 0; a < SCHEDULE_ALGORITHMS; a++) {
            group g;
            open_group(&g, (schedule_algorithm)a, n, (size_t)count);
            count_sent(&g);
            close_group(&g);
            const int doubling = a == SCHEDULE_DOUBLING;
            const int messages = doubling               ? f.log2 + f.rounded
                                 : a == SCHEDULE_DIRECT ? 2 * (n - 1)
                                                        : 2 * f.factors;
            const int elements = doubling ? messages * count : 2 * (count - count / n);
            CHECK(g.messages == messages, "%s, %d members: %d messages, not %d",
                  schedule_name((schedule_algorithm)a), n, g.messages, messages);
            CHECK(g.elements == elements, "%s, %d members: %d elements, not %d",
                  schedule_name((schedule_algorithm)a), n, g.elements, elements);
        }
    }
}

/* Parts of any count are within one unit of each other. */
static void test_parts_are_even(void) {
    for (int n = 2; n <= MOST; n++)
        for (size_t count = 0; count < 5000; count += 487) {
            group g;
            open_group(&g, SCHEDULE_DIRECT, n, count);
            size_t least = count, most = 0;
            for (int i = 0; i < n; i++) {
                const schedule_range kept = g.member[i].schedule.phase[0].kept;
                const size_t units = (kept.end - kept.begin + SCHEDULE_ALIGN - 1) / SCHEDULE_ALIGN;
                least = units < least ? units : least;
                most = units > most ? units : most;
            }
            close_group(&g);
            CHECK(most - least <= 1, "%d members, %zu elements: %zu and %zu", n, count, least,
                  most);
        }
}

static void test_large(void) { /* indices and phases of the largest group; nothing overflows */
    for (int n = 2800; n <= 2896; n += 16)
        for (int a = 0; a < SCHEDULE_ALGORITHMS; a++) {
            schedule s = {
                .step = calloc((size_t)schedule_steps((schedule_algorithm)a, n), sizeof *s.step)};
            schedule_make(&s, (schedule_algorithm)a, n, n - 1, SIZE_MAX / 8);
            const int phases = s.phases, steps = s.phase[phases - 1].end;
            const schedule_range last = s.phase[s.reduces - 1].kept;
            free(s.step);
            CHECK(phases <= SCHEDULE_PHASES_MAX && phases <= schedule_phases(n) &&
                      steps <= schedule_steps((schedule_algorithm)a, n),
                  "%d members: %d phases, %d steps", n, phases, steps);
            CHECK(last.begin < last.end && last.end == SIZE_MAX / 8, "%d members: %zu..%zu", n,
                  last.begin, last.end);
        }
}

static void test_what_is_kept(void) {
    for (int n = 1; n <= 12; n++)
        for (int a = SCHEDULE_HALVING; a <= SCHEDULE_DIRECT; a++) {
            group g;
            open_group(&g, (schedule_algorithm)a, n, 1001);
            size_t wrong = 0;
            for (int i = 0; i < n; i++) {
                const schedule_range kept = schedule_kept((schedule_algorithm)a, n, i, 1001);
                const schedule_range made = g.member[i].schedule.phase[0].kept;
                wrong += kept.begin != made.begin || kept.end != made.end;
            }
            close_group(&g);
            CHECK(wrong == 0, "%d members, algorithm %d: %zu", n, a, wrong);
        }
}

static void test_choice(void) {
    const schedule_limits any = {.switch_bytes = 4096, .part = 1, .direct = 8};
    CHECK(schedule_choose(1, 1 << 30, &any) == SCHEDULE_DOUBLING, "alone");
    CHECK(schedule_choose(8, 4096, &any) == SCHEDULE_DOUBLING, "small");
    CHECK(schedule_choose(8, 4097, &any) == SCHEDULE_DIRECT, "large");
    CHECK(schedule_choose(9, 4097, &any) == SCHEDULE_HALVING, "large, many");
    const schedule_limits tiny = {.switch_bytes = 1, .part = 1, .direct = 8};
    CHECK(schedule_choose(8, 4, &tiny) == SCHEDULE_DIRECT, "not a byte for each");
    const schedule_limits longer = {.switch_bytes = 4096, .part = 1000, .direct = 8};
    CHECK(schedule_choose(8, 7992, &longer) == SCHEDULE_HALVING, "short parts");
    CHECK(schedule_choose(8, 7993, &longer) == SCHEDULE_DIRECT, "long parts");
    CHECK(schedule_choose(7, 7992, &longer) == SCHEDULE_DIRECT, "long parts of fewer");
    CHECK(schedule_choose(9, 9000, &longer) == SCHEDULE_HALVING, "long parts, many");
    CHECK(schedule_choose(8, SIZE_MAX, &longer) == SCHEDULE_DIRECT, "the longest");
}

int main(void) {
    RUN(test_every_group);
    RUN(test_volume);
    RUN(test_parts_are_even);
    RUN(test_large);
    RUN(test_what_is_kept);
    RUN(test_choice);
    return check_summary();
}
