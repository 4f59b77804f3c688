/* Order between the caller's stream, the engine's, and the steps of the protocol. */
#include "shm/device/executor.h"

int device_mark(wagma_handle *h) {
    struct device_executor *d = device_of(h);
    d->pending = 1;
    d->queued = 0;
    d->recorded = clock_now();
    return d->device->calls->record(d->device, d->done, d->stream);
}

int device_follow(const wagma_handle *h) {
    const struct device_executor *d = device_of(h);
    return order_behind(d->device, d->stream, d->called, d->caller);
}

/* The first step gives up results that the caller has looked at: its reads have to be done. */
int device_begin(wagma_handle *h, int viewed) {
    int status = device_follow(h);
    if (status == WAGMA_OK)
        status = device_open(h);
    return status == WAGMA_OK && viewed ? device_mark(h) : status;
}

/* ---- before a step --------------------------------------------------------------------------- */

static int find_done(wagma_handle *h, void *context, int *over) {
    const struct device_executor *d = device_of(h);
    const int status = d->device->calls->query(d->device, d->done);
    (void)context;
    *over = status == WAGMA_OK;
    return status == WAGMA_INPROGRESS ? WAGMA_OK : status;
}

static int look(wagma_handle *h, void *context, int *over) {
    (void)context, (void)over;
    return handle_look_at_device(h);
}

/* Before this rank's publication what is awaited is x, which the caller computes. */
static int awaits_x(const wagma_handle *h) {
    /* relaxed: written by this rank */
    return round_version(atomic_load_explicit(segment_pub(handle_segment(h), h->rank),
                                              memory_order_relaxed)) < avoiding_of(h)->local.t;
}

static int await_done(wagma_handle *h, enum call_mode mode) {
    static const struct call_wait wait = {.go_on = find_done, .look = look, .nap = ORDER_NAP_NS};
    struct avoiding_executor *e = h->state;
    const uint64_t waited = h->call.waited;
    const int status = call_wait(h, TRACE_FOR_DEVICE,
                                 mode == CALL_FINISH  ? WAIT_ANY_PAUSES
                                 : mode == CALL_START ? WAIT_START_PAUSES
                                                      : WAIT_NO_PAUSE,
                                 &wait, NULL);
    if (awaits_x(h)) {
        e->computed += h->call.waited - waited;
        h->call.waited = waited;
    }
    return status;
}

int device_settle(wagma_handle *h, enum call_mode mode) {
    struct device_executor *d = device_of(h);
    int over = 0;
    if (!d->pending)
        return WAGMA_OK;
    int status = find_done(h, NULL, &over);
    if (status == WAGMA_OK && !over)
        status = await_done(h, mode);
    if (status == WAGMA_INPROGRESS)
        d->reducing = 0; /* the caller is away: how long the slice takes is not known */
    if (status != WAGMA_OK)
        return status;
    if (awaits_x(h))
        handle_restart_delay(h);
    const uint64_t took = clock_now() - d->recorded;
    if (d->reducing && took > d->avoiding.slice_ns)
        d->avoiding.slice_ns = took;
    d->pending = d->reducing = 0;
    return handle_check_open(h);
}

/* ---- the end of a call ----------------------------------------------------------------------- */

int device_end(wagma_handle *h) {
    struct device_executor *d = device_of(h);
    if (!d->queued && !d->pending)
        return WAGMA_OK;
    const int status = device_mark(h);
    d->pending = 0;
    return status == WAGMA_OK ? d->device->calls->wait(d->device, d->caller, d->done) : status;
}

/* Nothing can be done about an error: the rank leaves anyway. */
void device_drain(const wagma_handle *h) {
    const struct device_executor *d = device_of(h);
    if (d->done) { /* made last; before, nothing is queued */
        /* The caller's work may still read results. */
        if (device_follow(h) != WAGMA_OK)
            (void)d->device->calls->synchronise(d->device, d->caller);
        (void)d->device->calls->synchronise(d->device, d->stream);
    }
}
