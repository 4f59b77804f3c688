/* The calls of staged handles: they copy x to the host, call the executor, and copy results to the
 * device. See staged.h. */
#include <stdio.h>
#include <time.h>

#include "base/error.h"
#include "staged/staged.h"

enum { PART = 1 << 17 /* bytes of a result that are copied to pinned memory at a time */ };

/* ---- copies ---------------------------------------------------------------------------------- */

int staged_follow(const struct staged *s) {
    return order_behind(s->device, s->stream, s->called, s->caller);
}

void staged_drain(const struct staged *s) {
    (void)s->device->calls->synchronise(s->device, s->stream);
    (void)s->device->calls->synchronise(s->device, s->back);
}

static int copy(const struct staged *s, void *out, const void *in) {
    return s->bytes ? s->device->calls->copy(s->device, s->back, out, in, s->bytes) : WAGMA_OK;
}

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = ORDER_NAP_NS}, NULL);
}

static void copy_on_host(const wagma_handle *h, void *out, const void *in, size_t bytes) {
    const wagma_dtype dtype = (wagma_dtype)h->options.dtype;
    h->kernels->divided_copy(dtype, out, in, 1, bytes / reduce_dtype_size(dtype));
}

/* The device copies a part while the host copies the next one. */
static int copy_by(const wagma_handle *h, unsigned char *out, unsigned char *pinned,
                   const unsigned char *in) {
    const struct staged *s = h->staged;
    int status = WAGMA_OK;
    for (size_t at = 0; at < s->bytes && status == WAGMA_OK; at += PART) {
        const size_t bytes = s->bytes - at < PART ? s->bytes - at : PART;
        copy_on_host(h, pinned + at, in + at, bytes);
        status = s->device->calls->copy(s->device, s->back, out + at, pinned + at, bytes);
    }
    return status;
}

/* ---- to the host ----------------------------------------------------------------------------- */

static int is_due(const wagma_handle *h) {
    const uint64_t now = clock_now(), until = h->call.until;
    return now >= h->call.look || (until != 0 && now >= until);
}

/* Sleep until the copy is complete, or until a look for stalls is due. Meanwhile the executor takes
 * part in what the other ranks do, in its thread or here. */
static int sleep_outside(wagma_handle *h) {
    const struct executor_calls *calls = &h->executor->calls;
    const int serves = calls->look && h->options.progress == WAGMA_PROGRESS_MAIN;
    int status;
    if (!serves)
        calls->leave(h);
    do {
        if (serves)
            calls->look(h);
        nap();
        status = staged_find_copied(h);
    } while (status == WAGMA_INPROGRESS && !is_due(h) && !atomic_load(&h->closed));
    if (!serves)
        calls->enter(h);
    return status;
}

static int wait_for_copied(wagma_handle *h) {
    int status = WAGMA_OK;
    const uint64_t began = clock_now();
    trace_waits(h->trace, TRACE_FOR_DEVICE);
    for (int copied = WAGMA_INPROGRESS; copied == WAGMA_INPROGRESS && status == WAGMA_OK;) {
        copied = sleep_outside(h);
        status = copied == WAGMA_INPROGRESS ? handle_check_open(h) : copied;
        if (copied == WAGMA_INPROGRESS && status == WAGMA_OK) {
            (void)handle_look_due(h);
            status = handle_look_at_device(h);
        }
    }
    trace_waited(h->trace, TRACE_FOR_DEVICE, began, clock_now(), h->call.version, -1);
    return status == WAGMA_OK ? handle_check_open(h) : status;
}

/* WAGMA_OK: x is in pinned memory, or its first part. */
static int await_copied(wagma_handle *h, enum call_mode mode) {
    int status = staged_find_copied(h);
    if (status != WAGMA_INPROGRESS)
        return status;
    if (mode == CALL_FINISH)
        return wait_for_copied(h);
    if (mode == CALL_POLL && handle_look_due(h))
        status = handle_look_at_device(h);
    return status == WAGMA_OK ? WAGMA_INPROGRESS : status;
}

/* ---- to the device --------------------------------------------------------------------------- */

/* out = a result, which the executor has until the next call. */
static int copy_result(wagma_handle *h, int k, void *out, const void *result) {
    struct staged_view *v = &h->staged->views[k];
    if (staged_reach(h, result))
        return staged_copy_result(h, out, result);
    const int status = staged_add_pinned(h, &v->pinned);
    return status == WAGMA_OK ? copy_by(h, out, v->pinned, result) : status;
}

/* Show a result in an array of its own. */
static int show(wagma_handle *h, int k, const void *result, const void **shown) {
    struct staged *s = h->staged;
    struct staged_view *v = &s->views[k];
    const int status = staged_add_array(h, &v->array);
    *shown = v->array;
    return status == WAGMA_OK ? copy_result(h, k, v->array, result) : status;
}

/* Show what x holds, which may change afterwards. */
static int show_x(wagma_handle *h, int k, const void **shown) {
    struct staged *s = h->staged;
    struct staged_view *v = &s->views[k];
    const int status = staged_add_array(h, &v->array);
    *shown = v->array;
    return status == WAGMA_OK ? copy(s, v->array, h->call.given) : status;
}

/* The newest result is x as well, to which the executor writes none that is ordered. */
static int show_newest(wagma_handle *h, int k, const void *result, const void **shown) {
    const int status = h->staged->direct ? copy_result(h, k, h->call.given, result) : WAGMA_OK;
    return status == WAGMA_OK ? show_x(h, k, shown) : status;
}

static int show_all(wagma_handle *h) {
    struct staged *s = h->staged;
    wagma_outcome *o = &h->outcome;
    int status = WAGMA_OK, newest = o->results_count - 1;
    while (newest >= 0 && !o->results[newest])
        newest--;
    for (int k = 0; k < o->results_count && status == WAGMA_OK; k++) {
        const void *result = o->results[k];
        s->results[k] = NULL;
        if (result == s->x) /* quorum "all": x itself */
            s->results[k] = h->call.given;
        else if (k == newest && !s->out_of_place)
            status = show_newest(h, k, result, &s->results[k]);
        else if (result)
            status = show(h, k, result, &s->results[k]);
    }
    o->results = s->results;
    return status;
}

/* The executor's call is over. */
static int deliver(wagma_handle *h) {
    struct staged *s = h->staged;
    wagma_outcome *o = &h->outcome;
    int status = WAGMA_OK;
    if (o->merged && !s->out_of_place && !(s->direct && h->policy.ordered))
        status = staged_copy_x_back(h);
    if (status == WAGMA_OK && o->results_count > 0)
        status = show_all(h);
    if (status == WAGMA_OK && o->result)
        status = show(h, 0, o->result, &o->result);
    return status;
}

/* After a call that ended with `status`, what the caller queues comes behind the engine's copies,
 * also after an error: x is the caller's again. So it does when a wait has ended that took parts
 * of a result: the handle may end before the call goes on. Where streams cannot be ordered, wait
 * for the copies here. Return the first error. */
static int end_use(wagma_handle *h, int status) {
    struct staged *s = h->staged;
    char said[1024];
    if (status == WAGMA_INPROGRESS && !s->taking)
        return status;
    s->taking = 0;
    snprintf(said, sizeof said, "%s", wagma_last_error());
    int ended = status == WAGMA_INPROGRESS ? WAGMA_OK
                                           : order_behind(s->device, s->back, s->called, s->stream);
    if (ended == WAGMA_OK)
        ended = order_behind(s->device, s->caller, s->delivered, s->back);
    if (ended == WAGMA_OK)
        return status;
    if (status == WAGMA_OK || status == WAGMA_INPROGRESS) {
        status = ended;
        snprintf(said, sizeof said, "%s", wagma_last_error());
    }
    staged_drain(s);
    return error_set(status, "%s", said);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int begin_executor(wagma_handle *h) {
    struct staged *s = h->staged;
    h->call.active = 1;
    h->call.began = clock_now();
    handle_restart_delay(h);
    h->call.contribution = h->call.x = s->x;
    h->call.parts = s->by_parts ? &s->parts : NULL;
    if (s->out_of_place && !s->direct)
        copy_on_host(h, s->contribution, s->x, s->bytes);
    if (s->out_of_place || s->direct)
        h->call.contribution = s->contribution;
    if (s->out_of_place || (s->direct && h->policy.ordered))
        h->call.x = s->contribution;
    if (h->call.contribution == s->contribution)
        s->contribution = NULL;
    return h->call.posted ? h->executor->calls.post(h) : h->executor->calls.start(h);
}

static int run(wagma_handle *h, enum call_mode mode) {
    int status = WAGMA_INPROGRESS;
    if (!h->call.active) {
        status = await_copied(h, mode);
        if (status != WAGMA_OK)
            return status;
        status = begin_executor(h);
    }
    if (status == WAGMA_INPROGRESS && mode == CALL_POLL)
        status = h->executor->calls.poll(h);
    else if (status == WAGMA_INPROGRESS && mode == CALL_FINISH)
        status = h->executor->calls.finish(h);
    return status == WAGMA_OK ? deliver(h) : status;
}

/* Choose where x is copied to. */
static int find_place(wagma_handle *h) {
    struct staged *s = h->staged;
    const struct executor_calls *calls = &h->executor->calls;
    s->out_of_place = s->contribution && h->call.given == s->reserved;
    s->direct = 0;
    if (!calls->pages_of)
        return WAGMA_OK;
    const int status = s->contribution ? WAGMA_OK : calls->next_contribution(h, &s->contribution);
    s->direct = status == WAGMA_OK && staged_reach(h, s->contribution);
    return status;
}

/* The executor knows of the call when x is copied. */
static int begin(wagma_handle *h, enum call_mode mode) {
    struct staged *s = h->staged;
    h->call.active = 0;
    int status = find_place(h);
    if (status == WAGMA_OK) {
        staged_choose_parts(h);
        status = staged_follow(s);
    }
    if (status == WAGMA_OK)
        status = staged_copy_x(h, s->direct ? s->contribution : s->x);
    return status == WAGMA_OK ? run(h, mode) : status;
}

int staged_start(wagma_handle *h) {
    return end_use(h, begin(h, CALL_START));
}

int staged_post(wagma_handle *h) {
    return end_use(h, begin(h, CALL_POST));
}

int staged_poll(wagma_handle *h) {
    return end_use(h, run(h, CALL_POLL));
}

int staged_finish(wagma_handle *h) {
    return end_use(h, run(h, CALL_FINISH));
}

int staged_next_contribution(wagma_handle *h, void **buffer) {
    struct staged *s = h->staged;
    int status = staged_add_array(h, &s->reserved);
    if (status == WAGMA_OK)
        status = staged_add_array(h, &s->views[0].array);
    if (status == WAGMA_OK && !s->contribution)
        status = h->executor->calls.next_contribution(h, &s->contribution);
    if (status == WAGMA_OK)
        *buffer = s->reserved;
    return status;
}

int staged_set_stream(wagma_handle *h, void *stream) {
    struct staged *s = h->staged;
    const int status = staged_follow(s);
    if (status == WAGMA_OK)
        s->caller = stream;
    return status;
}

/* The executor's thread may use the memory of results as soon as it has departed. */
int staged_close(wagma_handle *h) {
    const struct staged *s = h->staged;
    while (s->device->calls->query(s->device, s->delivered) == WAGMA_INPROGRESS)
        nap();
    return h->executor->calls.close(h);
}
