/* Does the work of the simulated machine. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_sim_state.h"
#include "kernels/reduce.h"

/* A stream is passed over 0 to 3 times for each piece of work, and seldom much longer. */
enum { SELDOM = 12, VERY_LAZY = 100 };

static const char *const names[] = {"copy",  "sum",    "write", "read",
                                    "check", "record", "wait",  "hold"};

uint32_t machine_draw(struct machine *m, uint32_t n) {
    m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((m->random >> 33) % n);
}

void machine_blame(struct machine *m, const char *format, ...) {
    va_list arguments;
    if (m->trouble[0])
        return;
    va_start(arguments, format);
    vsnprintf(m->trouble, sizeof m->trouble, format, arguments);
    va_end(arguments);
}

struct mapping *machine_mapping(struct machine *m, int device, const void *at, size_t bytes) {
    const unsigned char *byte = at;
    for (struct mapping *p = m->mappings; p; p = p->next)
        if (p->device == device && byte >= p->at && byte + bytes <= p->at + p->bytes)
            return p;
    return NULL;
}

/* ---- what work touches ----------------------------------------------------------------------- */

static int is_read(const struct work *w, int k) {
    return k < w->n && (w->kind != WORK_SUM || w->weights[k] != 0);
}

static int inside(const struct mapping *mapping, const void *at) {
    const unsigned char *byte = at;
    return byte && byte >= mapping->at && byte < mapping->at + mapping->bytes;
}

int machine_uses(const struct machine *m, const struct mapping *mapping) {
    for (const struct stream *s = m->streams; s; s = s->next)
        for (const struct work *w = s->first; w; w = w->next) {
            int uses = inside(mapping, w->out);
            for (int k = 0; k < w->n; k++)
                uses |= is_read(w, k) && inside(mapping, w->in[k]);
            if (w->device == mapping->device && uses)
                return 1;
        }
    return 0;
}

/* Do the same bytes lie at a for one device and at b for another? */
static int overlap(struct machine *m, int device_a, const void *a, size_t bytes_a, int device_b,
                   const void *b, size_t bytes_b) {
    const struct mapping *of_a = a ? machine_mapping(m, device_a, a, bytes_a) : NULL;
    const struct mapping *of_b = b ? machine_mapping(m, device_b, b, bytes_b) : NULL;
    if (!of_a || !of_b || of_a->memory != of_b->memory)
        return 0;
    const size_t at_a = (size_t)((const unsigned char *)a - of_a->at),
                 at_b = (size_t)((const unsigned char *)b - of_b->at);
    return at_a < at_b + bytes_b && at_b < at_a + bytes_a;
}

static int conflict(struct machine *m, const struct work *a, const struct work *b) {
    int found = overlap(m, a->device, a->out, a->bytes, b->device, b->out, b->bytes);
    for (int k = 0; k < a->n; k++)
        found |=
            is_read(a, k) && overlap(m, a->device, a->in[k], a->bytes, b->device, b->out, b->bytes);
    for (int k = 0; k < b->n; k++)
        found |=
            is_read(b, k) && overlap(m, a->device, a->out, a->bytes, b->device, b->in[k], b->bytes);
    return found;
}

/* All its memory is there, and no earlier work on it is left: nothing made this work wait for it.
 */
static int check(struct machine *m, const struct work *w) {
    int there = !w->out || machine_mapping(m, w->device, w->out, w->bytes) != NULL;
    for (int k = 0; k < w->n; k++)
        there &= !is_read(w, k) || machine_mapping(m, w->device, w->in[k], w->bytes) != NULL;
    if (!there)
        machine_blame(m, "a %s of device %d uses memory that it does not have", names[w->kind],
                      w->device);
    for (const struct stream *s = m->streams; s; s = s->next)
        for (const struct work *other = s->first; other; other = other->next)
            if (other->number < w->number && conflict(m, w, other))
                machine_blame(m, "a %s of device %d does not wait for a %s of device %d",
                              names[w->kind], w->device, names[other->kind], other->device);
    return there;
}

/* ---- doing it -------------------------------------------------------------------------------- */

static void sum(const struct work *w) {
    const size_t count = w->bytes / reduce_dtype_size(w->dtype);
    reduce_by_name("scalar")->sum(w->dtype, w->out, w->in, w->weights, w->n, w->divisor, count);
}

static void perform(struct machine *m, struct work *w) {
    struct device *d = &m->device[w->device];
    if (w->kind <= WORK_EXPECT && (!check(m, w) || d->broken))
        return;
    if (w->kind <= WORK_SUM && d->fails[MACHINE_WORK] && --d->fails[MACHINE_WORK] == 0) {
        d->broken = 1;
        return;
    }
    switch (w->kind) {
    case WORK_COPY: memmove(w->out, w->in[0], w->bytes); break;
    case WORK_SUM: sum(w); break;
    case WORK_WRITE: memcpy(w->out, w->data, w->bytes); break;
    case WORK_READ: memcpy(w->data, w->in[0], w->bytes); break;
    case WORK_EXPECT:
        if (memcmp(w->in[0], w->data, w->bytes) != 0)
            machine_blame(m, "device %d: a result has changed while it could be looked at",
                          w->device);
        break;
    case WORK_RECORD:
    case WORK_WAIT:
    case WORK_HOLD: break;
    }
}

int machine_is_complete(const struct machine *m, const struct event *event, uint64_t at) {
    for (const struct stream *s = m->streams; s; s = s->next)
        for (const struct work *w = s->first; w; w = w->next)
            if (w->kind == WORK_RECORD && w->event == event && w->at == at)
                return 0;
    return 1;
}

static int is_ready(const struct machine *m, const struct stream *s) {
    const struct work *w = s->first;
    return w && (w->kind != WORK_WAIT || machine_is_complete(m, w->event, w->at)) &&
           (w->kind != WORK_HOLD || !m->device[w->device].held) &&
           (w->kind > WORK_SUM || s->allowed != 0);
}

/* One of the streams that have work to do; NULL: there is none. */
static struct stream *draw_ready(struct machine *m) {
    struct stream *drawn = NULL;
    uint32_t n = 0;
    for (struct stream *s = m->streams; s; s = s->next)
        if (is_ready(m, s) && machine_draw(m, ++n) == 0)
            drawn = s;
    return drawn;
}

void machine_do(struct machine *m, uint32_t most) {
    for (uint32_t i = 0; i < most; i++) {
        struct stream *s = draw_ready(m);
        if (!s)
            return;
        if (machine_draw(m, s->lazy + 1) != 0)
            continue;
        struct work *w = s->first;
        s->allowed -= w->kind <= WORK_SUM && s->allowed > 0;
        s->first = w->next;
        if (!s->first)
            s->last = &s->first;
        s->lazy = machine_draw(m, SELDOM) ? machine_draw(m, 4) : VERY_LAZY;
        perform(m, w);
        m->pending--;
        if (w->kind != WORK_READ)
            free(w->data);
        free(w);
    }
}

void machine_queue(struct device *d, struct stream *s, struct work *w) {
    struct machine *m = d->machine;
    w->number = ++m->works;
    w->device = d->number;
    *s->last = w;
    s->last = &w->next;
    m->pending++;
    machine_do(m, machine_draw(m, 3));
}
