/* The public calls: they check arguments and fill outcomes. */
#include "api/calls.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/process.h"
#include "protocol/topology.h"
#include "shm/forked.h"

/* Seconds from which on a timeout is none: 30 years. */
#define FOREVER 1e9

/* ---- calls ----------------------------------------------------------------------------------- */

static int is_sync_version(const wagma_handle *h, int64_t version) {
    const int64_t period = h->options.sync_period;
    return period > 0 && (version + 1) % period == 0;
}

static void find_group(wagma_handle *h) {
    if (!h->call.sync && !h->policy.world) {
        h->call.n = topology_members(&h->topology, h->rank, h->call.version, h->members);
    } else {
        h->call.n = h->size;
        for (int r = 0; r < h->size; r++)
            h->members[r] = r;
    }
    h->call.members = h->members;
}

/* This process is a child of the one that made the handle: others' locks may be held for ever. */
static int is_inherited(const wagma_handle *h) {
    return h->process != process_serial();
}

static int check_usable(const wagma_handle *h) {
    if (is_inherited(h))
        return forked_refuse("the handle");
    if (h->closed == 1)
        return error_set(WAGMA_ECLOSED, "the handle is closed: make a new one");
    if (h->closed && h->first_error)
        return error_set(WAGMA_ECLOSED, "the handle failed earlier: %s", h->first_error);
    if (h->closed)
        return error_set(WAGMA_ECLOSED, "the handle was ended with fail(): make a new one");
    return WAGMA_OK;
}

static int check_idle(const wagma_handle *h) {
    if (!h->call.pending)
        return WAGMA_OK;
    return error_set(WAGMA_EINVAL,
                     "a call of this handle is in progress (version %lld): finish it first, with "
                     "wagma_finish() or wagma_wait()",
                     (long long)h->call.version);
}

int handle_check_ready(const wagma_handle *h) {
    if (!h)
        return error_set(WAGMA_EINVAL, "handle is NULL");
    const int status = check_usable(h);
    return status == WAGMA_OK ? check_idle(h) : status;
}

/* Return what the trace says of a call. */
static int trace_flags(const wagma_handle *h) {
    return (h->call.sync ? TRACE_SYNC : 0) | (h->call.posted ? TRACE_POSTED : 0);
}

/* Ends the handle in the middle of a call of this thread. Later calls say why. */
static void break_handle(wagma_handle *h) {
    if (!h->closed && !h->first_error)
        h->first_error = strdup(wagma_last_error());
    (void)handle_step_aside(h);
    wagma_fail(h);
}

/* After an executor's word: the outcome, or the end of the handle. */
static int conclude(wagma_handle *h, int status, wagma_outcome *outcome) {
    if (status == WAGMA_INPROGRESS)
        return status;
    h->call.active = h->call.pending = 0;
    if (status != WAGMA_OK) {
        trace_returned(h->trace, trace_flags(h) | TRACE_BROKE);
        trace_now(h->trace, TRACE_ERROR, h->call.version, -1, status);
        break_handle(h);
        return status;
    }
    h->outcome.version = h->call.version;
    h->outcome.waited = (double)h->call.waited * 1e-9;
    h->outcome.contributors = h->contributors;
    h->outcome.versions = h->versions;
    h->version = h->call.next;
    h->stats.calls++;
    h->stats.waited += h->outcome.waited;
    rank_stats_return(h);
    trace_returned(h->trace, trace_flags(h) | (h->outcome.late ? TRACE_LATE : 0) |
                                 (h->outcome.merged ? 0 : TRACE_UNMERGED));
    if (outcome)
        *outcome = h->outcome;
    return WAGMA_OK;
}

void handle_enter_call(wagma_handle *h) {
    if (h && !is_inherited(h))
        h->calls->enter(h);
}

int handle_leave_call(wagma_handle *h, int status) {
    if (h && !is_inherited(h))
        h->calls->leave(h);
    return status;
}

/* x of calls that have no elements and no x. */
static unsigned char no_elements;

/* A new call, unless its arguments are wrong or another one is in progress. */
static int begin(wagma_handle *h, void *x, double weight, int sync) {
    int status = handle_check_ready(h);
    if (status != WAGMA_OK)
        return status;
    if (sync && h->policy.graph)
        return error_set(
            WAGMA_EINVAL,
            "the handle has a graph, with which a rank meets its neighbours alone: for "
            "what all ranks do together make another handle, with quorum all");
    if (!x && h->options.count > 0)
        return error_set(WAGMA_EINVAL, "x is NULL: %lld elements are needed",
                         (long long)h->options.count);
    status = handle_check_weight(h, weight);
    if (status != WAGMA_OK)
        return status;
    call *const c = &h->call;
    *c = (call){0};
    c->active = c->pending = 1;
    c->sync = sync || is_sync_version(h, h->version);
    c->explicit_sync = sync;
    c->version = h->version;
    c->next = h->version + 1;
    c->contribution = c->x = c->given = x ? x : &no_elements;
    c->weight = weight;
    c->began = c->counted = clock_now();
    c->look = c->began + WAIT_HEARTBEAT_NS;
    trace_called(h->trace, c->began, c->version);
    find_group(h);
    rank_stats_call(h);
    h->outcome = (wagma_outcome){0};
    return WAGMA_OK;
}

/* Check that a call is in progress and may go on, with the same x. */
static int check_pending(const wagma_handle *h, const void *x) {
    if (!h)
        return error_set(WAGMA_EINVAL, "handle is NULL");
    const int status = check_usable(h);
    if (status != WAGMA_OK)
        return status;
    if (!h->call.pending)
        return error_set(WAGMA_EINVAL,
                         "no call of this handle is in progress: start one first, with "
                         "wagma_start() or wagma_post()");
    if ((x ? x : &no_elements) != h->call.given)
        return error_set(WAGMA_EINVAL, "x=%p: the call was started with %p", x, h->call.given);
    return WAGMA_OK;
}

int wagma_start(wagma_handle *h, void *x, double weight, int sync, wagma_outcome *outcome) {
    handle_enter_call(h);
    const int status = begin(h, x, weight, sync);
    return handle_leave_call(h, status != WAGMA_OK ? status
                                                   : conclude(h, h->calls->start(h), outcome));
}

int wagma_post(wagma_handle *h, void *x, double weight, int sync) {
    handle_enter_call(h);
    int status = begin(h, x, weight, sync);
    if (status != WAGMA_OK)
        return handle_leave_call(h, status);
    h->call.posted = 1;
    status = conclude(h, h->calls->post(h), NULL);
    if (status == WAGMA_INPROGRESS)
        trace_left(h->trace);
    return handle_leave_call(h, status);
}

/* The caller is back. What it did elsewhere is no waiting, except for a heartbeat of it: a loop
 * around wagma_test() waits, and gets its warnings and its WAGMA_ESTALL. */
static uint64_t resume_call(wagma_handle *h) {
    const uint64_t now = clock_now();
    if (now - h->call.counted > WAIT_HEARTBEAT_NS)
        h->call.counted = now - WAIT_HEARTBEAT_NS;
    return now;
}

/* The executor has gone on; until the call is over the caller is away. */
static int suspend_call(wagma_handle *h, int status, wagma_outcome *outcome) {
    status = conclude(h, status, outcome);
    if (status == WAGMA_INPROGRESS)
        handle_count_delay(h);
    return status;
}

int wagma_test(wagma_handle *h, void *x, wagma_outcome *outcome) {
    handle_enter_call(h);
    int status = check_pending(h, x);
    if (status != WAGMA_OK)
        return handle_leave_call(h, status);
    const uint64_t now = resume_call(h);
    h->call.testing = 1;
    status = h->calls->poll(h);
    if (status != WAGMA_INPROGRESS) /* looking whether it is over does not end the computing */
        trace_back(h->trace, now, h->call.version, 1);
    return handle_leave_call(h, suspend_call(h, status, outcome));
}

static int wait_until(wagma_handle *h, void *x, double timeout, wagma_outcome *outcome) {
    int status = check_pending(h, x);
    if (status != WAGMA_OK)
        return status;
    if (isnan(timeout))
        return error_set(WAGMA_EINVAL, "timeout=nan: must be seconds, or negative for none");
    const uint64_t now = resume_call(h);
    trace_back(h->trace, now, h->call.version, 1);
    h->call.testing = 0;
    h->call.until = timeout >= 0 && timeout < FOREVER ? now + (uint64_t)(timeout * 1e9) : 0;
    status = suspend_call(h, h->calls->finish(h), outcome);
    if (status == WAGMA_INPROGRESS)
        trace_left(h->trace);
    return status;
}

int wagma_wait(wagma_handle *h, void *x, double timeout, wagma_outcome *outcome) {
    handle_enter_call(h);
    return handle_leave_call(h, wait_until(h, x, timeout, outcome));
}

int wagma_finish(wagma_handle *h, void *x, wagma_outcome *outcome) {
    return wagma_wait(h, x, -1, outcome);
}

static int call_blocking(wagma_handle *h, void *x, double weight, int sync,
                         wagma_outcome *outcome) {
    const int status = wagma_start(h, x, weight, sync, outcome);
    return status == WAGMA_INPROGRESS ? wagma_finish(h, x, outcome) : status;
}

int wagma_allreduce(wagma_handle *h, void *x, double weight, wagma_outcome *outcome) {
    return call_blocking(h, x, weight, 0, outcome);
}

int wagma_sync(wagma_handle *h, void *x, double weight, wagma_outcome *outcome) {
    return call_blocking(h, x, weight, 1, outcome);
}

int wagma_set_stream(wagma_handle *h, void *stream) {
    const int status = handle_check_ready(h);
    if (status != WAGMA_OK)
        return status;
    if (!h->calls->set_stream)
        return error_set(WAGMA_EINVAL, "the handle has its arrays in host memory, where calls "
                                       "have no stream: make it with wagma_create_on() or "
                                       "wagma_create_over_on()");
    handle_enter_call(h);
    return handle_leave_call(h, h->calls->set_stream(h, stream));
}

/* ---- the rest -------------------------------------------------------------------------------- */

int64_t wagma_version(const wagma_handle *h) {
    return h->version;
}

int wagma_pinned(wagma_handle *h) {
    const int status = handle_check_ready(h);
    if (status != WAGMA_OK)
        return status;
    return h->calls->pinned && !is_sync_version(h, h->version) && h->calls->pinned(h);
}

void *wagma_shared_array(wagma_handle *h) {
    if (h->calls->array)
        return h->calls->array(h);
    (void)error_set(WAGMA_EINVAL, "%s, and no array of its own: pass any other",
                    h->policy.device || h->policy.staged ? "the handle has its arrays on a device"
                                                         : "the handle has a graph");
    return NULL;
}

int wagma_next_contribution(wagma_handle *h, void **buffer) {
    *buffer = NULL;
    int status = handle_check_ready(h);
    if (status != WAGMA_OK)
        return status;
    const wagma_options *o = &h->options;
    if (h->policy.graph)
        return error_set(WAGMA_EINVAL,
                         "the handle has a graph: it has no contribution buffers, pass x itself");
    if (!h->calls->next_contribution && h->policy.staged)
        return error_set(WAGMA_EINVAL,
                         "the handle's arrays are copied through host memory, and the quorum is "
                         "every member of a group (quorum=all, k of k ranks, group_size=1, or one "
                         "rank): it has no contribution buffers; pass x itself, any array of the "
                         "device");
    if (!h->calls->next_contribution)
        return error_set(WAGMA_EINVAL,
                         "the quorum is every member of a group (quorum=all, k of k ranks, "
                         "group_size=1, or one rank): such a handle reduces in place and has no "
                         "contribution buffers; use the rank's array in the segment: "
                         "wagma_shared_array(), in Python empty()");
    if (o->average && reduce_dtype_size((wagma_dtype)o->dtype) == 2)
        return error_set(WAGMA_EINVAL,
                         "dtype is %s and average is 1: 16-bit averages are stored as averages, "
                         "so there is no undivided result to hand out; use average=0 (False) or "
                         "float32",
                         reduce_dtype_name((wagma_dtype)o->dtype));
    handle_enter_call(h);
    const uint64_t now = clock_now();
    h->call = (call){.version = h->version, .next = h->version, .began = now, .counted = now};
    status = h->calls->next_contribution(h, buffer);
    h->stats.waited += (double)h->call.waited * 1e-9;
    if (status != WAGMA_OK)
        break_handle(h);
    return handle_leave_call(h, status);
}

void wagma_get_stats(const wagma_handle *h, wagma_stats *stats) {
    *stats = h->stats;
    stats->segment_bytes = h->calls->bytes(h);
    stats->grace = h->calls->grace ? h->calls->grace(h) : 0;
    stats->wakeups = h->calls->wakeups ? h->calls->wakeups(h) : 0;
}

int wagma_lost(wagma_handle *h, int32_t *ranks) {
    int n = 0;
    const int status = h ? check_usable(h) : error_set(WAGMA_EINVAL, "handle is NULL");
    if (status != WAGMA_OK)
        return status;
    handle_enter_call(h);
    if (h->calls->look)
        h->calls->look(h);
    for (int r = 0; r < h->size; r++)
        if (r != h->rank && h->calls->lost(h, r) != HANDLE_PRESENT)
            ranks[n++] = r;
    return handle_leave_call(h, n);
}

int wagma_close(wagma_handle *h) {
    if (!h)
        return error_set(WAGMA_EINVAL, "handle is NULL");
    if (is_inherited(h))
        return forked_refuse("the handle");
    if (h->closed)
        return WAGMA_OK;
    int status = check_idle(h), open = 0;
    if (status != WAGMA_OK)
        return status;
    rank_stats_depart(h);
    status = handle_check_open(h) == WAGMA_OK ? h->calls->close(h) : WAGMA_OK;
    if (atomic_compare_exchange_strong(&h->closed, &open, 1))
        handle_write_trace(h);
    return status;
}

void wagma_fail(wagma_handle *h) {
    int open = 0;
    if (!h || is_inherited(h) || !atomic_compare_exchange_strong(&h->closed, &open, 2))
        return;
    h->calls->fail(h);
    handle_write_trace(h);
}

void wagma_free(wagma_handle *h) {
    if (!h || is_inherited(h))
        return;
    wagma_fail(h);
    h->calls->free(h);
    handle_free(h);
}
