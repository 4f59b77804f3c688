/* See schedule.h. */
#include "protocol/schedule.h"

/* ---- numbers --------------------------------------------------------------------------------- */

/* The largest prime that divides n > 1: the first phase, whose members are neighbours, leaves them
 * the smallest parts to go on with. */
static int largest_factor(int n) {
    int largest = 1;
    for (int f = 2; f * f <= n; f++)
        for (; n % f == 0; n /= f)
            largest = f;
    return n > 1 ? n : largest;
}

static int power_of_two(int n) { /* the largest <= n */
    int m = 1;
    while (m <= n / 2)
        m *= 2;
    return m;
}

static schedule_range range_of(size_t begin, size_t end) {
    return (schedule_range){begin, end};
}

/* Part `digit` of `radix` parts of a range. */
static schedule_range part(schedule_range whole, int radix, int digit) {
    const size_t count = whole.end - whole.begin;
    const size_t units = count / SCHEDULE_ALIGN + (count % SCHEDULE_ALIGN != 0);
    const size_t f = (size_t)radix, d = (size_t)digit;
    size_t begin = units / f * d + units % f * d / f;
    size_t end = units / f * (d + 1) + units % f * (d + 1) / f;
    begin *= SCHEDULE_ALIGN, end *= SCHEDULE_ALIGN;
    return range_of(whole.begin + begin, end < count ? whole.begin + end : whole.end);
}

/* ---- parts of the schedule ------------------------------------------------------------------- */

static schedule_phase *add_phase(schedule *s, schedule_range kept) {
    schedule_phase *p = &s->phase[s->phases];
    p->begin = p->end = s->phases == 0 ? 0 : p[-1].end;
    p->kept = kept;
    s->phases++;
    return p;
}

static schedule_step *add_step(schedule *s, int peer) {
    schedule_step *step = &s->step[s->phase[s->phases - 1].end++];
    *step = (schedule_step){.peer = peer, .after = -1};
    return step;
}

/* ---- halving and direct ---------------------------------------------------------------------- */

/* Members whose contributions member i has before the phase in which `block` members have the same
 * ones. */
static schedule_range block_of(int i, int block) {
    return range_of((size_t)(i / block * block), (size_t)(i / block * block + block));
}

/* The phases of radices whose product is n. The digit of a phase says which part of the range of
 * the phase before a member keeps. */
static void make_parts(schedule *s, const int *radix, int phases) {
    schedule_range whole[SCHEDULE_PHASES_MAX]; /* of which the parts of a phase are */
    schedule_range range = range_of(0, s->count);
    int block[SCHEDULE_PHASES_MAX];
    for (int k = 0, size = 1; k < phases; size *= radix[k++]) {
        const int digit = s->index / size % radix[k];
        const schedule_range kept = part(range, radix[k], digit);
        add_phase(s, kept);
        for (int d = 0; d < radix[k]; d++) {
            if (d == digit)
                continue;
            schedule_step *step = add_step(s, s->index + (d - digit) * size);
            step->send = part(range, radix[k], d);
            step->receive = kept;
            step->tell = block_of(s->index, size);
            step->hear = block_of(step->peer, size);
        }
        whole[k] = range, block[k] = size;
        range = kept;
    }
    s->reduces = s->phases;
    for (int k = phases - 1; k >= 0; k--) {
        add_phase(s, whole[k]);
        const int digit = s->index / block[k] % radix[k];
        for (int i = s->phase[k].begin; i < s->phase[k].end; i++) {
            schedule_step *step = add_step(s, s->step[i].peer);
            step->after = i;
            step->send = part(whole[k], radix[k], digit);
            step->receive = s->step[i].send;
        }
    }
}

static void make_halving(schedule *s) {
    int radix[SCHEDULE_PHASES_MAX], phases = 0;
    for (int rest = s->n; rest > 1; rest /= radix[phases++])
        radix[phases] = largest_factor(rest);
    make_parts(s, radix, phases);
}

/* ---- doubling -------------------------------------------------------------------------------- */

/* The core is the largest power of two, n - extra members. Members 2c and 2c + 1, c < extra, are
 * one in the core: c. */
static int core_first(int c, int extra) { /* the member that core c stands for, or its first */
    return c < extra ? 2 * c : c + extra;
}

static void make_doubling(schedule *s) {
    const int core = power_of_two(s->n), extra = s->n - core;
    const schedule_range all = range_of(0, s->count), none = range_of(0, 0);
    const int folded = s->index < 2 * extra && s->index % 2;
    const int mine = s->index < 2 * extra ? s->index / 2 : s->index - extra;
    const schedule_range self = range_of((size_t)s->index, (size_t)s->index + 1);
    if (extra > 0 || core == 1) {
        add_phase(s, folded ? none : all);
        if (folded) {
            schedule_step *step = add_step(s, s->index - 1);
            step->send = all, step->tell = self;
        } else if (s->index < 2 * extra) {
            schedule_step *step = add_step(s, s->index + 1);
            step->receive = all;
            step->hear = range_of((size_t)step->peer, (size_t)step->peer + 1);
        }
    }
    for (int size = 1; size < core; size *= 2) {
        add_phase(s, folded ? none : all);
        if (folded)
            continue;
        const int peer = mine ^ size;
        const schedule_range own = block_of(mine, size), theirs = block_of(peer, size);
        schedule_step *step = add_step(s, core_first(peer, extra));
        step->send = step->receive = all;
        step->tell = range_of((size_t)core_first((int)own.begin, extra),
                              (size_t)core_first((int)own.end, extra));
        step->hear = range_of((size_t)core_first((int)theirs.begin, extra),
                              (size_t)core_first((int)theirs.end, extra));
    }
    s->reduces = s->phases;
    if (extra == 0)
        return;
    add_phase(s, all);
    const schedule_range everybody = range_of(0, (size_t)s->n);
    if (folded) {
        schedule_step *step = add_step(s, s->index - 1);
        step->receive = all, step->hear = everybody, step->after = s->phase[0].begin;
    } else if (s->index < 2 * extra) {
        schedule_step *step = add_step(s, s->index + 1);
        step->send = all, step->tell = everybody;
    }
}

/* ---- the interface --------------------------------------------------------------------------- */

int schedule_phases(int n) {
    int log2 = 0;
    while (1 << (log2 + 1) <= n)
        log2++;
    return 2 * log2 + 2; /* halving: 2 log2 n at most; doubling: log2 n + 2 */
}

int schedule_steps(schedule_algorithm algorithm, int n) {
    if (algorithm == SCHEDULE_DIRECT)
        return 2 * (n - 1);
    if (algorithm == SCHEDULE_DOUBLING)
        return schedule_phases(n);
    int steps = 0;
    for (int rest = n, f; rest > 1; rest /= f)
        steps += 2 * ((f = largest_factor(rest)) - 1);
    return steps;
}

void schedule_make(schedule *s, schedule_algorithm algorithm, int n, int index, size_t count) {
    *s = (schedule){.algorithm = n == 1 ? SCHEDULE_DOUBLING : algorithm,
                    .n = n,
                    .index = index,
                    .count = count,
                    .step = s->step};
    switch (s->algorithm) {
    case SCHEDULE_DIRECT: make_parts(s, &n, 1); break;
    case SCHEDULE_HALVING: make_halving(s); break;
    default: make_doubling(s); break;
    }
}

schedule_range schedule_kept(schedule_algorithm algorithm, int n, int index, size_t count) {
    const schedule_range all = range_of(0, count);
    if (n == 1 || algorithm == SCHEDULE_DOUBLING)
        return all;
    const int radix = algorithm == SCHEDULE_DIRECT ? n : largest_factor(n);
    return part(all, radix, index % radix);
}

schedule_algorithm schedule_choose(int n, size_t bytes, const schedule_limits *limits) {
    if (n == 1 || bytes <= limits->switch_bytes)
        return SCHEDULE_DOUBLING;
    const size_t part = (bytes - 1) / (size_t)n + 1;
    return n <= limits->direct && part >= limits->part ? SCHEDULE_DIRECT : SCHEDULE_HALVING;
}

const char *schedule_name(schedule_algorithm algorithm) {
    static const char *const names[] = {"doubling", "halving", "direct"};
    return names[algorithm];
}
