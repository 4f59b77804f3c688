/* See device_sim.h. The calls of device.h but those of memory (device_sim_memory.c);
 * device_sim_work.c does the work. */
#include "device_sim.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "device_sim_state.h"
#include "kernels/reduce.h"

struct device *machine_lock(wagma_device *device) {
    struct device *d = (struct device *)device;
    pthread_mutex_lock(&d->machine->lock);
    return d;
}

int machine_unlock(struct device *d, int status) {
    pthread_mutex_unlock(&d->machine->lock);
    return status;
}

int machine_injected(struct device *d, enum machine_call call) {
    if (d->fails[call] == 0 || --d->fails[call] != 0)
        return WAGMA_OK;
    return d->device.error(call == MACHINE_ALLOC || call == MACHINE_PIN ? WAGMA_ENOMEM : WAGMA_ESYS,
                           "device %d: injected failure %d", d->number, (int)call);
}

/* ---- streams and events ---------------------------------------------------------------------- */

static int new_stream(wagma_device *device, void **stream) {
    struct device *d = machine_lock(device);
    struct machine *m = d->machine;
    const int status = machine_injected(d, MACHINE_STREAM);
    if (status != WAGMA_OK)
        return machine_unlock(d, status);
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    *s = (struct stream){.next = m->streams, .device = d->number, .allowed = -1};
    s->last = &s->first;
    m->streams = *stream = s;
    m->streams_n++;
    return machine_unlock(d, WAGMA_OK);
}

static void free_stream(wagma_device *device, void *stream) {
    struct device *d = machine_lock(device);
    struct machine *m = d->machine;
    struct stream **p = &m->streams, *s = stream;
    while (*p && *p != s)
        p = &(*p)->next;
    if (!*p || s->first)
        machine_blame(m, "device %d frees a stream that is %s", d->number, *p ? "busy" : "gone");
    if (*p) {
        *p = s->next;
        m->streams_n--;
        free(s);
    }
    machine_unlock(d, WAGMA_OK);
}

static int new_event(wagma_device *device, void **event) {
    struct device *d = machine_lock(device);
    const int status = machine_injected(d, MACHINE_EVENT);
    if (status != WAGMA_OK)
        return machine_unlock(d, status);
    struct event *e = calloc(1, sizeof *e);
    if (!e)
        abort();
    e->next = d->machine->events;
    d->machine->events = *event = e;
    return machine_unlock(d, WAGMA_OK);
}

static void free_event(wagma_device *device, void *event) {
    struct device *d = machine_lock(device);
    struct event **p = &d->machine->events;
    while (*p && *p != event)
        p = &(*p)->next;
    if (*p)
        *p = (*p)->next;
    free(event);
    machine_unlock(d, WAGMA_OK);
}

static struct work *new_work(enum work_kind kind) {
    struct work *w = calloc(1, sizeof *w);
    if (!w)
        abort();
    w->kind = kind;
    return w;
}

static int queue_event(wagma_device *device, void *event, void *stream, enum work_kind kind,
                       enum machine_call call) {
    struct device *d = machine_lock(device);
    const int status = machine_injected(d, call);
    if (status != WAGMA_OK)
        return machine_unlock(d, status);
    struct work *w = new_work(kind);
    w->event = event;
    w->at = kind == WORK_RECORD ? ++w->event->recorded : w->event->recorded;
    machine_queue(d, stream, w);
    return machine_unlock(d, WAGMA_OK);
}

static int record(wagma_device *device, void *event, void *stream) {
    return queue_event(device, event, stream, WORK_RECORD, MACHINE_RECORD);
}

static int wait_for(wagma_device *device, void *stream, void *event) {
    return queue_event(device, event, stream, WORK_WAIT, MACHINE_WAIT);
}

static int failed(struct device *d) {
    return d->device.error(WAGMA_ESYS, "device %d: its work has failed", d->number);
}

static int query(wagma_device *device, void *event) {
    struct device *d = machine_lock(device);
    const struct event *e = event;
    machine_do(d->machine, machine_draw(d->machine, 16));
    if (d->broken)
        return machine_unlock(d, failed(d));
    return machine_unlock(d, machine_is_complete(d->machine, e, e->recorded) ? WAGMA_OK
                                                                             : WAGMA_INPROGRESS);
}

static int synchronise(wagma_device *device, void *stream) {
    struct device *d = machine_lock(device);
    const struct stream *s = stream;
    while (s->first) {
        machine_do(d->machine, 8);
        machine_unlock(d, WAGMA_OK); /* another thread may have to release it */
        sched_yield();
        machine_lock(device);
    }
    return machine_unlock(d, d->broken ? failed(d) : WAGMA_OK);
}

/* ---- copies and sums ------------------------------------------------------------------------- */

static int queue(wagma_device *device, void *stream, struct work *w) {
    struct device *d = machine_lock(device);
    const int status = w->kind <= WORK_SUM ? machine_injected(d, MACHINE_QUEUE) : WAGMA_OK;
    if (status == WAGMA_OK)
        machine_queue(d, stream, w);
    else
        free(w);
    return machine_unlock(d, status);
}

static int copy(wagma_device *d, void *stream, void *out, const void *in, size_t bytes) {
    struct work *w = new_work(WORK_COPY);
    w->out = out;
    w->in[w->n++] = in;
    w->bytes = bytes;
    return queue(d, stream, w);
}

static int sum(wagma_device *d, void *stream, wagma_dtype dtype, void *out, const void *const *in,
               const double *weights, int n, double divisor, size_t count) {
    struct work *w = new_work(WORK_SUM);
    if (n > INPUTS_MAX)
        abort();
    w->out = out;
    w->n = n;
    for (int k = 0; k < n; k++) {
        w->in[k] = in[k];
        w->weights[k] = weights[k];
    }
    w->divisor = divisor;
    w->dtype = dtype;
    w->bytes = count * reduce_dtype_size(dtype);
    return queue(d, stream, w);
}

static unsigned char *copy_of(const void *data, size_t bytes) {
    unsigned char *made = malloc(bytes + 1);
    if (!made)
        abort();
    memcpy(made, data, bytes);
    return made;
}

void machine_write(wagma_device *d, void *stream, void *memory, const void *data, size_t bytes) {
    struct work *w = new_work(WORK_WRITE);
    w->out = memory;
    w->bytes = bytes;
    w->data = copy_of(data, bytes);
    (void)queue(d, stream, w);
}

void machine_read(wagma_device *d, void *stream, void *data, const void *memory, size_t bytes) {
    struct work *w = new_work(WORK_READ);
    w->in[w->n++] = memory;
    w->bytes = bytes;
    w->data = data;
    (void)queue(d, stream, w);
}

void machine_expect(wagma_device *d, void *stream, const void *memory, const void *data,
                    size_t bytes) {
    struct work *w = new_work(WORK_EXPECT);
    w->in[w->n++] = memory;
    w->bytes = bytes;
    w->data = copy_of(data, bytes);
    (void)queue(d, stream, w);
}

void machine_hold(wagma_device *device, void *stream) {
    struct device *d = machine_lock(device);
    d->held = 1;
    machine_queue(d, stream, new_work(WORK_HOLD));
    machine_unlock(d, WAGMA_OK);
}

void machine_release(wagma_device *device) {
    struct device *d = machine_lock(device);
    d->held = 0;
    machine_unlock(d, WAGMA_OK);
}

void machine_allow(wagma_device *device, void *stream, int n) {
    struct device *d = machine_lock(device);
    ((struct stream *)stream)->allowed = n;
    machine_unlock(d, WAGMA_OK);
}

/* ---- the machine ----------------------------------------------------------------------------- */

static const device_calls calls = {
    .alloc = machine_alloc,
    .free = machine_free_memory,
    .export = machine_export,
    .open = machine_open,
    .close = machine_close,
    .pin = machine_pin,
    .unpin = machine_unpin,
    .stream_new = new_stream,
    .stream_free = free_stream,
    .event_new = new_event,
    .event_free = free_event,
    .record = record,
    .wait = wait_for,
    .query = query,
    .synchronise = synchronise,
    .copy = copy,
    .sum = sum,
};

static int no_error(int status, const char *format, ...) {
    (void)format;
    return status;
}

struct machine *machine_new(int devices, uint64_t seed) {
    struct machine *m = calloc(1, sizeof *m);
    if (!m || !(m->device = calloc((size_t)devices, sizeof *m->device)))
        abort();
    pthread_mutex_init(&m->lock, NULL);
    m->random = seed * 2654435761u + 7;
    m->devices = devices;
    for (int r = 0; r < devices; r++)
        m->device[r] = (struct device){
            .device = {.abi = DEVICE_ABI, .calls = &calls, .name = "simulation", .error = no_error},
            .machine = m,
            .number = r};
    return m;
}

wagma_device *machine_device(struct machine *m, int rank) {
    return &m->device[rank].device;
}

void machine_fail(wagma_device *device, enum machine_call call, int nth) {
    struct device *d = machine_lock(device);
    d->fails[call] = nth;
    machine_unlock(d, WAGMA_OK);
}

int machine_pending(struct machine *m) {
    pthread_mutex_lock(&m->lock);
    const int pending = m->pending;
    pthread_mutex_unlock(&m->lock);
    return pending;
}

const char *machine_trouble(struct machine *m) {
    pthread_mutex_lock(&m->lock);
    const char *trouble = m->trouble[0] ? m->trouble : NULL;
    pthread_mutex_unlock(&m->lock);
    return trouble;
}

const char *machine_free(struct machine *m) {
    static char trouble[TROUBLE_BYTES];
    int mappings = 0, events = 0;
    for (const struct mapping *p = m->mappings; p; p = p->next)
        mappings++;
    for (const struct event *e = m->events; e; e = e->next)
        events++;
    if (mappings || events || m->streams_n)
        machine_blame(m, "%d pieces of memory, %d events and %d streams are left", mappings, events,
                      m->streams_n);
    memcpy(trouble, m->trouble, sizeof trouble);
    pthread_mutex_destroy(&m->lock);
    free(m->device);
    free(m);
    return trouble[0] ? trouble : NULL;
}
