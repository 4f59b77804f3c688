/* Makes and frees handles whose arrays are on devices. See executor.h. */
#include "shm/device/executor.h"

#include <stdlib.h>

#include "base/error.h"

/* ---- private arrays -------------------------------------------------------------------------- */

static unsigned char *private_new(const wagma_handle *h) {
    const struct device_executor *d = device_of(h);
    const uint64_t bytes = handle_segment(h)->bytes_n;
    void *memory;
    return d->device->calls->alloc(d->device, bytes ? bytes : 1, &memory) == WAGMA_OK ? memory
                                                                                      : NULL;
}

static void private_free(const wagma_handle *h, unsigned char *memory) {
    const struct device_executor *d = device_of(h);
    device_drain(h);
    d->device->calls->free(d->device, memory);
}

/* ---- the end --------------------------------------------------------------------------------- */

static int depart(wagma_handle *h) {
    h->call = (call){.version = h->version, .began = clock_now(), .counted = clock_now()};
    int status = device_follow(h);
    if (status == WAGMA_OK)
        status = device_mark(h);
    return status == WAGMA_OK ? device_settle(h, CALL_FINISH) : status;
}

static void destroy(wagma_handle *h) {
    struct device_executor *d = device_of(h);
    const device_calls *calls = d->device->calls;
    device_drain(h);
    if (d->scratch)
        calls->free(d->device, d->scratch);
    device_peers_free(h);
    if (d->called)
        calls->event_free(d->device, d->called);
    if (d->done)
        calls->event_free(d->device, d->done);
    if (d->stream)
        calls->stream_free(d->device, d->stream);
}

static int set_stream(wagma_handle *h, void *stream) {
    const int status = device_follow(h);
    if (status == WAGMA_OK)
        device_of(h)->caller = stream;
    return status;
}

/* ---- creation -------------------------------------------------------------------------------- */

static const struct avoiding_plane plane = {
    .slice_ns = 500000, /* starting a kernel, and sleeps of ORDER_NAP_NS until its end is noticed */
    .contribution = device_contribution,
    .result = device_result,
    .add_contribution = device_add_contribution,
    .add_result = device_add_result,
    .private_new = private_new,
    .private_free = private_free,
    .begin = device_begin,
    .open = device_open,
    .data = device_data,
    .scale = device_scale,
    .settle = device_settle,
    .end = device_end,
    .depart = depart,
    .departed = device_await_openers,
    .destroy = destroy,
};

/* The first contribution, of which READY tells the others. */
static int write_initial(wagma_handle *h, const void *initial) {
    const struct device_executor *d = device_of(h);
    void *out = avoiding_contribution(h, h->rank, 0);
    int status = device_follow(h);
    if (status == WAGMA_OK)
        status = initial ? device_copy(h, out, initial) : device_clear(h, out);
    return status == WAGMA_OK ? d->device->calls->synchronise(d->device, d->stream) : status;
}

/* All that a late call can need is made here: the device may be full later. */
static int make_scratch(wagma_handle *h) {
    struct device_executor *d = device_of(h);
    const size_t size = reduce_dtype_size(avoiding_dtype(h));
    const uint64_t bytes = handle_segment(h)->slice_count * size;
    return size == 2 && !h->policy.ordered && bytes
               ? d->device->calls->alloc(d->device, bytes, &d->scratch)
               : WAGMA_OK;
}

static int make(wagma_handle *h, const struct executor_request *request) {
    struct device_executor *d = device_of(h);
    const device_calls *calls = request->device->calls;
    d->device = request->device;
    d->caller = request->stream;
    int status = avoiding_make(h, request, &plane);
    if (status == WAGMA_OK)
        status = calls->stream_new(d->device, &d->stream);
    if (status == WAGMA_OK)
        status = calls->event_new(d->device, &d->called);
    if (status == WAGMA_OK)
        status = calls->event_new(d->device, &d->done);
    if (status == WAGMA_OK) /* of no elements: the device gets its kernels here, or says why not */
        status = calls->sum(d->device, d->stream, avoiding_dtype(h), NULL, NULL, NULL, 0, 1, 0);
    if (status == WAGMA_OK)
        status = device_peers_make(h);
    if (status == WAGMA_OK)
        status = make_scratch(h);
    return status == WAGMA_OK ? write_initial(h, request->initial) : status;
}

/* What there is is opened at once: a rank that is killed later may be read all the same, and one
 * that cannot be reached is found out here. */
static int create(wagma_handle *h, const struct executor_request *request) {
    int status = handle_segment_create(h, request, sizeof(struct device_executor), make);
    if (status != WAGMA_OK)
        return status;
    status = device_open(h);
    if (status != WAGMA_OK)
        handle_segment_leave(h, SEGMENT_FAILED);
    return status;
}

static const char *fits(const struct executor_request *request) {
    return request->options->memory != WAGMA_MEMORY_DEVICE ? "it needs arrays on devices"
           : !request->segment                             ? "it needs a segment"
           : !request->device                              ? "it needs a device"
                                                           : NULL;
}

const struct executor shm_device_executor = {
    .name = "shm/device",
    .fits = fits,
    .create = create,
    .calls = {AVOIDING_CALLS, .set_stream = set_stream},
};
