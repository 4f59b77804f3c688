/* Layout of an exchange: its streams and the places of their data, and the values derived from the
 * members' records. See exchange_state.h. */
#include "engine/merge.h"
#include "messages/exchange_state.h"

#include <string.h>

#include "base/error.h"

/* ---- records --------------------------------------------------------------------------------- */

static int carries(const struct exchange *e, schedule_range members) {
    for (size_t m = members.begin; m < members.end; m++)
        if (e->records[m].weight != 0)
            return 1;
    return 0;
}

/* Whether this member has data when a phase begins: of itself, and of whom it heard before. */
static void weigh_own(struct exchange *e, int p) {
    schedule_range own = {(size_t)e->schedule.index, (size_t)e->schedule.index + 1};
    for (int q = 0; q < p; q++)
        for (int i = e->schedule.phase[q].begin; i < e->schedule.phase[q].end; i++) {
            const schedule_range hear = e->schedule.step[i].hear;
            if (length(hear) == 0)
                continue;
            own.begin = hear.begin < own.begin ? hear.begin : own.begin;
            own.end = hear.end > own.end ? hear.end : own.end;
        }
    e->phase[p].carries = carries(e, own);
}

/* Whether its peers have. */
static void weigh_peers(struct exchange *e, int p) {
    const schedule_phase *phase = &e->schedule.phase[p];
    phase_state *state = &e->phase[p];
    state->sums = state->carries;
    for (int i = phase->begin; i < phase->end; i++) {
        e->transfers[i].carries = carries(e, e->schedule.step[i].hear);
        state->sums |= e->transfers[i].carries;
    }
}

/* All records are known: what is to be copied, and by what the sum is divided. */
static void open_copies(struct exchange_pool *pool, struct exchange *e) {
    const schedule *s = &e->schedule;
    double total = 0;
    for (int m = 0; m < s->n; m++)
        total += e->records[m].share;
    e->carries = carries(e, (schedule_range){0, (size_t)s->n});
    e->divisor = merge_stored(e->start.divide, total);
    e->left--;
    if (!e->carries) {
        if (total != 0 && pool->count > 0) /* of members that are absent: their sum is 0 */
            memset(e->start.result, 0, pool->count * sum_size(pool->dtype, SUM_DATA));
        return; /* nothing is copied */
    }
    for (int i = s->phase[s->reduces - 1].end; i < s->phase[s->phases - 1].end; i++)
        e->left += e->transfers[i].out.chunks + e->transfers[i].in.chunks;
}

void exchange_heard(struct exchange_pool *pool, struct exchange *e, int phase) {
    const int before = e->heard;
    while (e->heard < e->schedule.reduces && e->phase[e->heard].unheard == 0) {
        weigh_peers(e, e->heard);
        if (++e->heard < e->schedule.reduces)
            weigh_own(e, e->heard);
    }
    if (e->unknown == 0 && !e->opened) {
        e->opened = 1;
        open_copies(pool, e);
    }
    /* the phases that can go on, and the one behind them, which can tell */
    const uint32_t from = before < phase ? (uint32_t)before : (uint32_t)phase;
    exchange_mark(pool, e,
                  ((UINT32_C(1) << e->schedule.phases) - 1) & ~((UINT32_C(1) << from) - 1));
}

/* ---- layout ---------------------------------------------------------------------------------- */

/* Chunks of equal length: those of a range are the same wherever it is sent or received. */
static stream lay_out_stream(const struct exchange_pool *pool, schedule_range range, size_t size) {
    stream s = {.range = range};
    const size_t count = length(range), bytes = count * size;
    if (count == 0)
        return s;
    s.eager = bytes <= exchange_eager_bytes();
    const size_t pieces = s.eager ? 1 : (bytes + pool->chunk - 1) / pool->chunk;
    const size_t units = (count + SCHEDULE_ALIGN - 1) / SCHEDULE_ALIGN;
    s.chunk = (units + pieces - 1) / pieces * SCHEDULE_ALIGN;
    s.chunks = (uint32_t)((count + s.chunk - 1) / s.chunk);
    return s;
}

static uint32_t slots_of(const stream *s) {
    return s->chunks < EXCHANGE_AHEAD ? s->chunks : EXCHANGE_AHEAD;
}

/* Phases p and q use the same memory for the same elements: p sends from where q writes. */
static int overlaps(const struct exchange_pool *pool, const struct exchange *e, int p,
                    const unsigned char *written) {
    return source(pool, e, p, e->partial_at) == written;
}

static void lay_out_phase(const struct exchange_pool *pool, struct exchange *e, int p,
                          size_t *bytes) {
    const schedule_phase *phase = &e->schedule.phase[p];
    phase_state *state = &e->phase[p];
    const size_t size = size_in(pool, e, p);
    *state = (phase_state){0};
    if (phase_is_reduce(e, p)) {
        const stream kept = lay_out_stream(pool, phase->kept, size);
        state->chunk = kept.chunk, state->chunks = kept.chunks;
        e->left += kept.chunks;
    }
    for (int i = phase->begin; i < phase->end; i++) {
        const schedule_step *step = &e->schedule.step[i];
        transfer *t = &e->transfers[i];
        *t = (transfer){.out = lay_out_stream(pool, step->send, size),
                        .in = lay_out_stream(pool, step->receive, size),
                        .hears_left = (int)length(step->hear)};
        t->in.ring = e->memory ? e->memory + *bytes : NULL; /* right in the second pass */
        if (phase_is_reduce(e, p) || t->in.eager)
            *bytes += slots_of(&t->in) * padded(t->in.chunk * size);
        e->has_messages |=
            (t->in.chunks > 0 && !t->in.eager) || (t->out.chunks > 0 && !t->out.eager);
        state->unheard += t->hears_left > 0;
        e->left += t->hears_left;
        if (phase_is_reduce(e, p))
            e->left += t->out.chunks + t->in.chunks;
    }
}

int exchange_lay_out(struct exchange_pool *pool, struct exchange *e) {
    const schedule *s = &e->schedule;
    const int separate =
        s->reduces > 1 && sum_size(pool->dtype, SUM_PARTIAL) != sum_size(pool->dtype, SUM_DATA);
    const schedule_range kept = s->phase[0].kept;
    for (int pass = 0; pass < 2; pass++) { /* how much memory, and then where */
        size_t bytes = 0;
        e->left = 1; /* until all records are known */
        e->has_messages = 0;
        for (int p = 0; p < s->phases; p++)
            lay_out_phase(pool, e, p, &bytes);
        e->partial = separate ? e->memory + bytes : e->start.result;
        e->partial_at = separate ? kept.begin : 0;
        if (separate)
            bytes += length(kept) * sum_size(pool->dtype, SUM_PARTIAL);
        if (bytes <= e->memory_room)
            continue;
        /* No other exchange can use the old memory. From version to version little changes (the
         * group's size by one, the index in the group), so a reallocation adds room for such
         * changes. */
        const size_t room = e->memory ? bytes + bytes / 8 : bytes;
        e->memory = arena_part(pool->arena, room);
        e->memory_room = e->memory ? room : 0;
        if (!e->memory)
            return error_set(WAGMA_ENOMEM, "no memory for an exchange: %zu bytes", bytes);
    }
    const unsigned char *result =
        (const unsigned char *)e->start.result + e->partial_at * sum_size(pool->dtype, SUM_DATA);
    for (int p = s->reduces; p < s->phases; p++)
        for (int i = s->phase[p].begin; i < s->phase[p].end; i++)
            if (s->step[i].after >= 0)
                e->transfers[i].guarded = overlaps(pool, e, phase_of(e, s->step[i].after), result);
    e->heard = 0;
    e->copied = s->reduces;
    e->unknown = s->n - 1;
    e->opened = e->carries = 0;
    weigh_own(e, 0);
    exchange_heard(pool, e, 0);
    return WAGMA_OK;
}
