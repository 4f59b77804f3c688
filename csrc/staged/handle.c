/* Makes and frees what staged handles have beside their executor's state. See staged.h. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/pages.h"
#include "staged/staged.h"

/* ---- memory ---------------------------------------------------------------------------------- */

static int pin(const struct staged *s, void *memory) {
    return s->device->calls->pin(s->device, memory, pages_whole(s->bytes));
}

/* Say how less memory is needed, if that is what failed. Return the status. */
static int advise(const wagma_handle *h, int status) {
    char said[512];
    if (status != WAGMA_ENOMEM)
        return status;
    snprintf(said, sizeof said, "%s", wagma_last_error());
    return error_set(status,
                     "rank %d has no memory for an array of %zu bytes (%s): use fewer "
                     "elements%s",
                     h->rank, h->staged->bytes, said,
                     h->policy.ordered ? ", or a smaller window, which keeps fewer results" : "");
}

int staged_add_array(const wagma_handle *h, void **memory) {
    struct staged *s = h->staged;
    if (*memory)
        return WAGMA_OK;
    void *made;
    const int status = s->device->calls->alloc(s->device, s->bytes ? s->bytes : 1, &made);
    if (status != WAGMA_OK)
        return advise(h, status);
    *memory = made;
    s->memory += s->bytes;
    return WAGMA_OK;
}

int staged_add_pinned(const wagma_handle *h, void **memory) {
    struct staged *s = h->staged;
    if (*memory)
        return WAGMA_OK;
    void *made = pages_alone(s->bytes);
    const int status = made ? pin(s, made) : error_set(WAGMA_ENOMEM, "the host has none");
    if (status != WAGMA_OK) {
        free(made);
        return advise(h, status);
    }
    *memory = made;
    s->memory += s->bytes;
    return WAGMA_OK;
}

int staged_reach(const wagma_handle *h, const void *array) {
    struct staged *s = h->staged;
    int (*const pages_of)(const wagma_handle *, const void *, void **, size_t *) =
        h->executor->calls.pages_of;
    struct staged_pages *p = s->pages;
    while (p && (uintptr_t)array - (uintptr_t)p->at >= p->bytes)
        p = p->next;
    if (p)
        return p->pinned;
    void *at;
    size_t bytes;
    if (!pages_of || !pages_of(h, array, &at, &bytes) || !(p = malloc(sizeof *p)))
        return 0;
    const int pinned = s->device->calls->pin(s->device, at, bytes) == WAGMA_OK;
    *p = (struct staged_pages){s->pages, at, bytes, pinned};
    s->pages = p;
    return pinned;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Unlock the executor's memory, which it is about to free. */
static void unpin_pages(struct staged *s) {
    for (struct staged_pages *p = s->pages, *next; p; p = next) {
        next = p->next;
        if (p->pinned)
            s->device->calls->unpin(s->device, p->at);
        free(p);
    }
    s->pages = NULL;
}

static int views_of(const wagma_handle *h) {
    return h->policy.ordered ? (int)h->options.window + 1 : 1;
}

static void free_views(const wagma_handle *h, const struct staged *s) {
    for (int k = 0; s->views && k < views_of(h); k++) {
        if (s->views[k].array)
            s->device->calls->free(s->device, s->views[k].array);
        if (s->views[k].pinned)
            s->device->calls->unpin(s->device, s->views[k].pinned);
        free(s->views[k].pinned);
    }
    free(s->views);
    free(s->results);
}

static void free_device(struct staged *s) {
    const device_calls *calls = s->device->calls;
    void *const events[] = {s->called, s->delivered};
    if (s->reserved)
        calls->free(s->device, s->reserved);
    if (s->is_pinned)
        calls->unpin(s->device, s->x);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i])
            calls->event_free(s->device, events[i]);
    for (int k = 0; k < s->parts_n; k++)
        if (s->copied[k])
            calls->event_free(s->device, s->copied[k]);
    if (s->stream)
        calls->stream_free(s->device, s->stream);
    if (s->back)
        calls->stream_free(s->device, s->back);
}

void staged_free(wagma_handle *h) {
    struct staged *s = h->staged;
    if (!s)
        return;
    free_views(h, s);
    free_device(s);
    h->staged = NULL;
    if (h->keeps_arrays) {
        kept_add(&s->kept);
        return;
    }
    free(s->x);
    free(s);
}

static void destroy(wagma_handle *h) {
    struct staged *s = h->staged;
    if (s->delivered) { /* before, nothing is queued */
        /* The caller's work may still read results. */
        if (staged_follow(s) != WAGMA_OK)
            (void)s->device->calls->synchronise(s->device, s->caller);
        staged_drain(s);
    }
    unpin_pages(s);
    h->executor->calls.free(h);
    staged_free(h);
}

/* ---- creation -------------------------------------------------------------------------------- */

static uint64_t bytes(const wagma_handle *h) {
    return h->executor->calls.bytes(h) + h->staged->memory;
}

static struct executor_calls calls_over(const struct executor_calls *host) {
    struct executor_calls calls = *host;
    calls.start = staged_start;
    calls.post = staged_post;
    calls.poll = staged_poll;
    calls.finish = staged_finish;
    calls.next_contribution = host->next_contribution ? staged_next_contribution : NULL;
    calls.close = staged_close;
    calls.set_stream = staged_set_stream;
    calls.array = NULL;
    calls.bytes = bytes;
    calls.free = destroy;
    return calls;
}

int staged_new(wagma_handle *h, const struct executor_request *request) {
    const wagma_options *o = request->options;
    const size_t views = (size_t)views_of(h);
    struct staged *s = h->staged = calloc(1, sizeof *s);
    if (s) {
        s->device = request->device;
        s->caller = request->stream;
        s->initial = request->initial;
        s->views = calloc(views, sizeof *s->views);
        s->results = calloc(views, sizeof *s->results);
        if (!__builtin_mul_overflow(reduce_dtype_size((wagma_dtype)o->dtype), (size_t)o->count,
                                    &s->bytes))
            s->x = pages_alone(s->bytes);
    }
    if (!s || !s->views || !s->results || !s->x) {
        staged_free(h);
        return error_set(WAGMA_ENOMEM, "no memory for a copy of %lld elements on the host",
                         (long long)o->count);
    }
    s->memory = s->bytes;
    staged_lay_out(h);
    s->calls = calls_over(&h->executor->calls);
    h->calls = &s->calls;
    return WAGMA_OK;
}

static int make_streams(struct staged *s) {
    const device_calls *calls = s->device->calls;
    int status = calls->stream_new(s->device, &s->stream);
    if (status == WAGMA_OK)
        status = calls->stream_new(s->device, &s->back);
    if (status == WAGMA_OK)
        status = calls->event_new(s->device, &s->called);
    for (int k = 0; k < s->parts_n && status == WAGMA_OK; k++)
        status = calls->event_new(s->device, &s->copied[k]);
    return status == WAGMA_OK ? calls->event_new(s->device, &s->delivered) : status;
}

static int pin_x(const wagma_handle *h) {
    struct staged *s = h->staged;
    char said[256];
    const int status = pin(s, s->x);
    s->is_pinned = status == WAGMA_OK;
    if (s->is_pinned)
        return WAGMA_OK;
    snprintf(said, sizeof said, "%s", wagma_last_error());
    return error_set(status,
                     "rank %d could not pin %zu bytes of the host's memory, through which arrays "
                     "of devices are copied (%s): use fewer elements, or raise ulimit -l",
                     h->rank, s->bytes, said);
}

static int copy_initial(const struct staged *s) {
    if (!s->initial || s->bytes == 0)
        return WAGMA_OK;
    int status = staged_follow(s);
    if (status == WAGMA_OK)
        status = s->device->calls->copy(s->device, s->stream, s->x, s->initial, s->bytes);
    return status == WAGMA_OK ? s->device->calls->synchronise(s->device, s->stream) : status;
}

/* In the executor's create(), which tells the others of an error. */
static int prepare(wagma_handle *h) {
    struct staged *s = h->staged;
    int status = make_streams(s);
    if (status == WAGMA_OK)
        status = pin_x(h);
    if (status == WAGMA_OK && h->policy.ordered)
        status = staged_add_array(h, &s->views[0].array);
    return status == WAGMA_OK ? copy_initial(s) : status;
}

struct executor_request staged_request(const wagma_handle *h,
                                       const struct executor_request *request) {
    struct executor_request host = *request;
    host.prepare = prepare;
    host.initial = request->initial ? h->staged->x : NULL;
    return host;
}
