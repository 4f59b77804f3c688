/* See trial.h. */
#include "trial.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "element.h"
#include "periodic.h"

uint32_t draw(uint64_t *random, uint32_t n) {
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*random >> 33) % n);
}

/* ---- arrays ---------------------------------------------------------------------------------- */

int array_is_integer(int dtype) {
    return dtype == WAGMA_I32 || dtype == WAGMA_I64;
}

int array_is_half(int dtype) {
    return dtype == WAGMA_F16 || dtype == WAGMA_BF16;
}

size_t array_element_bytes(int dtype) {
    return array_is_half(dtype) ? 2 : dtype == WAGMA_F64 || dtype == WAGMA_I64 ? 8 : 4;
}

static void fill(const wagma_options *o, void *array, double value) {
    const size_t bytes = array_element_bytes(o->dtype);
    for (int64_t i = 0; i < o->count && i < TRIAL_PERIOD; i++)
        element_put((wagma_dtype)o->dtype, array, (size_t)i, value * (double)(1 + i));
    periodic_repeat(array, TRIAL_PERIOD * bytes, (size_t)o->count * bytes);
}

/* One element more than is used, so that there are some. */
size_t trial_bytes(const trial *g) {
    return (size_t)(g->options.count + 1) * array_element_bytes(g->options.dtype);
}

/* ---- trials ---------------------------------------------------------------------------------- */

/* As little shared memory as some draw allows. */
static void draw_limit(trial *g) {
    wagma_options *o = &g->options;
    wagma_segment *s = NULL;
    const uint64_t array = 16 * (uint64_t)(o->count ? o->count : 1);
    o->shm_limit = (40000 + array) * (6 + draw(&g->random, 8));
    while (wagma_segment_create(o, NULL, &s) != WAGMA_OK && o->shm_limit < UINT64_C(1) << 30)
        o->shm_limit *= 2;
    wagma_segment_close(s);
}

/* Ranks whose counters jump: groups in which some members do not come any more. */
static void draw_jumps(trial *g) {
    wagma_options *o = &g->options;
    o->size = 5 + (int)draw(&g->random, 2);
    o->group_size = 3;
    o->grouping = WAGMA_GROUPING_DYNAMIC;
    o->activation = WAGMA_ACTIVATION_GROUP;
    o->late = WAGMA_LATE_STALE;
    o->missed = WAGMA_MISSED_FAST_FORWARD;
    o->window = o->sync_period = 0; /* far, and until a quorum is missed */
    o->count = 1;
    o->quorum = draw(&g->random, 3) ? 2 : WAGMA_QUORUM_MAJORITY;
}

static void draw_options(trial *g, enum trial_kind kind) {
    static const int32_t dtypes[] = {WAGMA_F64, WAGMA_F64,  WAGMA_F64, WAGMA_F32,
                                     WAGMA_F16, WAGMA_BF16, WAGMA_I32, WAGMA_I64};
    static const int64_t counts[] = {0, 1, 3, 100, 600, 3000, 20000};
    wagma_options *o = &g->options;
    uint64_t *random = &g->random;
    wagma_options_init(o);
    o->memory = arrays_on_devices;
    const int size = o->size = 1 + (int)draw(random, TRIAL_RANKS);
    o->late = (int)draw(random, 3);
    o->grouping = (int)draw(random, 3);
    o->group_size = o->grouping == WAGMA_GROUPING_PAIRS ? size < 2 ? size : 2
                    : draw(random, 3)                   ? 1 + (int)draw(random, (uint32_t)size)
                                                        : size;
    o->activation = (int)draw(random, 2);
    o->missed = (int)draw(random, 2);
    if (o->late != WAGMA_LATE_STALE) {
        o->missed = WAGMA_MISSED_ONCE;
        o->activation = WAGMA_ACTIVATION_GROUP;
    }
    const int most = o->activation == WAGMA_ACTIVATION_WORLD ? size : o->group_size;
    o->quorum = draw(random, 3)   ? 1 + (int)draw(random, (uint32_t)most)
                : draw(random, 2) ? WAGMA_QUORUM_MAJORITY
                                  : 1;
    o->dtype = dtypes[draw(random, 8)];
    o->average = array_is_integer(o->dtype) ? 0 : draw(random, 4) != 0;
    o->count = counts[draw(random, 7)];
    o->seed = draw(random, 1u << 30);
    o->schedule_chunk = o->seed % 2 ? 256 << o->seed / 2 % 6 : 0; /* many parts, or one */
    o->window = draw(random, 3) ? 1 + draw(random, 5) : 0;
    o->sync_period = draw(random, 2) ? 1 + draw(random, 9) : 0;
    o->grace = draw(random, 3) ? 0 : draw(random, 2) ? -1 : 20e-6;
    o->redo_after = draw(random, 2) ? 0 : 200e-6;
    o->timeout = 20;
    o->stall_warning = -1;
    if (kind == TRIAL_JUMPS)
        draw_jumps(g);
    if (draw(random, 3) == 0)
        draw_limit(g);
}

void trial_begin(trial *g, uint64_t seed, enum trial_kind kind) {
    *g = (trial){.random = seed * 7919 + 13};
    wagma_options *o = &g->options;
    pthread_mutex_init(&g->lock, NULL);
    for (int i = 0; i < 5; i++)
        draw(&g->random, 2);
    draw_options(g, kind);
    g->versions = 10 + draw(&g->random, TRIAL_VERSIONS - 10);
    snprintf(g->name, sizeof g->name,
             "seed %" PRIu64 ": P=%d S=%d grouping %d activation %d quorum %d late %d missed %d "
             "dtype %d average %d window %d sync %d grace %g count %d chunk %d limit %" PRIu64,
             seed, o->size, o->group_size, o->grouping, o->activation, o->quorum, o->late,
             o->missed, o->dtype, o->average, (int)o->window, (int)o->sync_period, o->grace,
             (int)o->count, (int)o->schedule_chunk, o->shm_limit);
    EXPECT(wagma_options_check(o) == WAGMA_OK, "%s [%s]", wagma_last_error(), g->name);
    const int all = o->activation == WAGMA_ACTIVATION_GROUP && o->quorum == o->group_size &&
                    o->memory != WAGMA_MEMORY_DEVICE;
    places_begin(o->size, seed, trial_bytes(g));
    g->buffers = !all && !(o->average && array_is_half(o->dtype)) &&
                 !(kind == TRIAL_ONE_THREAD && o->shm_limit);
    if (draw(&g->random, 4) == 0)
        for (int i = 0; i < 3; i++)
            g->explicit_sync[draw(&g->random, (uint32_t)g->versions)] = 1;
    for (int r = 0; r < o->size; r++) {
        player *p = &g->player[r];
        *p = (player){.trial = g, .rank = r, .t = -1, .random = g->random + (uint64_t)r * 77777};
        p->departs = draw(&g->random, 3) ? g->versions : draw(&g->random, (uint32_t)g->versions);
        p->place = place_of(r);
        p->x = place_new(p->place, trial_bytes(g));
        p->host = p->place->device ? malloc(trial_bytes(g)) : p->x;
        g->value[r][0] = 1 + draw(&g->random, 8);
        g->weight[r][0] = 1;
        fill(o, p->host, g->value[r][0]);
        place_put(p->place, p->x, p->host, trial_bytes(g));
    }
}

void trial_end(trial *g) {
    for (int r = 0; r < g->options.size; r++) {
        player *p = &g->player[r];
        if (p->host != p->x)
            free(p->host);
        place_free(p->place, p->x);
    }
    places_end();
    pthread_mutex_destroy(&g->lock);
}

int trial_is_sync(const trial *g, int64_t t) {
    const int64_t period = g->options.sync_period;
    return g->explicit_sync[t] || (period && (t + 1) % period == 0);
}

/* Members of the version that rank r takes; the first of them into *leader. */
int trial_members_of(const trial *g, int r, int64_t t, int *leader) {
    const wagma_options *o = &g->options;
    int32_t members[TRIAL_RANKS] = {0};
    int n = o->size;
    if (!trial_is_sync(g, t))
        n = wagma_group_of(r, o->size, o->group_size, o->grouping, o->seed, t, members);
    *leader = members[0];
    return n;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static double draw_weight(player *p) {
    static const double weights[] = {0, 0.5, 1, 1, 1, 2};
    const wagma_options *o = &p->trial->options;
    const double weight = weights[draw(&p->random, 6)];
    /* what is carried grows by ratios of weights: too much for 16 bits */
    const int plain =
        o->late == WAGMA_LATE_CARRY && (array_is_integer(o->dtype) || array_is_half(o->dtype));
    return (array_is_integer(o->dtype) && weight == 0.5) || (plain && weight != 0) ? 1 : weight;
}

int player_contribute(player *p, wagma_handle *h) {
    trial *g = p->trial;
    const wagma_options *o = &g->options;
    const int exact = array_is_integer(o->dtype) || array_is_half(o->dtype);
    p->t = wagma_version(h);
    p->sync = g->explicit_sync[p->t];
    p->weight = draw_weight(p);
    p->value = exact ? 1 + draw(&p->random, 9) : 1 + draw(&p->random, 1000) / 7.0;
    if (p->place->device && draw(&p->random, 4) == 0) {
        place_switch(p->place);
        wagma_set_stream(h, p->place->stream[p->place->used]);
    }
    p->array = !p->place->device && o->count && draw(&p->random, 2) ? wagma_shared_array(h) : p->x;
    p->out_of_place = 0;
    if (g->buffers && draw(&p->random, 3) == 0) {
        void *buffer;
        const int status = wagma_next_contribution(h, &buffer);
        if (status != WAGMA_OK)
            return status;
        if (draw(&p->random, 4)) { /* otherwise it stays reserved */
            p->array = buffer;
            p->out_of_place = 1;
        }
    }
    void *written = p->place->device ? p->host : p->array;
    fill(o, written, p->weight == 0 && !array_is_integer(o->dtype) ? (double)NAN : p->value);
    place_put(p->place, p->array, written, (size_t)o->count * array_element_bytes(o->dtype));
    g->weight[p->rank][p->t + 1] = p->weight;
    g->value[p->rank][p->t + 1] =
        p->value + (p->weight == 0 ? 0 : p->carried_weight / p->weight * p->carried);
    return WAGMA_OK;
}
