/* Handles over a transport: creation, and functions shared by both cores. See messages/executor.h.
 */
#include "messages/executor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "messages/names.h"
#include "messages/refuse.h"

int messages_check(const struct messages_executor *e) {
    if (e->broken)
        return error_set(e->broken, "%s", e->error);
    /* relaxed: pairs with messages_fail(), which waits for the mutex */
    return atomic_load_explicit(&e->failing, memory_order_relaxed) ? handle_ended() : WAGMA_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

void messages_enter(wagma_handle *h) {
    progress_enter(&messages_of(h)->progress);
}

void messages_leave(wagma_handle *h) {
    struct messages_executor *e = h->state;
    enum progress_left left = PROGRESS_NOTHING_LEFT;
    if (h->call.active)
        left = h->call.posted ? PROGRESS_POSTED : PROGRESS_BACK_AT_ONCE; /* start to finish */
    else if (e->transport && messages_is_busy(h))
        left = PROGRESS_WORK_LEFT;
    progress_leave(&e->progress, left);
}

/* Goes on until the call is over (WAGMA_OK), an error, or where the mode returns to the caller
 * (WAGMA_INPROGRESS). */
static int run(wagma_handle *h, enum call_mode mode) {
    struct messages_executor *e = h->state;
    int status = WAGMA_OK;
    for (int over = 0; !over && status == WAGMA_OK && (status = messages_check(e)) == WAGMA_OK;) {
        const int moved = mode == CALL_POST ? messages_drive_all(h) : messages_drive(h);
        status = moved < 0 ? moved : e->core->advance(h, mode, moved, &over);
    }
    messages_end_wait(h);
    return status;
}

static int begin(wagma_handle *h, enum call_mode mode) {
    struct messages_executor *e = h->state;
    int status = messages_check(e);
    if (status != WAGMA_OK)
        return status;
    e->heartbeat = e->lost_since = e->moved = 0;
    e->inquired = 0;
    status = e->core->begin(h);
    return status != WAGMA_OK ? status : run(h, mode);
}

int messages_start(wagma_handle *h) {
    return begin(h, CALL_START);
}

int messages_post(wagma_handle *h) {
    return begin(h, CALL_POST);
}

int messages_poll(wagma_handle *h) {
    return run(h, CALL_POLL);
}

int messages_finish(wagma_handle *h) {
    return run(h, CALL_FINISH);
}

/* Counters: for any thread, also while the owner waits in a call, with the mutex. */
uint64_t messages_bytes(const wagma_handle *h) {
    const struct messages_executor *e = h->state;
    /* relaxed: a counter */
    return atomic_load_explicit(&e->arena.bytes, memory_order_relaxed);
}

uint64_t messages_wakeups(const wagma_handle *h) {
    return atomic_load(&messages_of(h)->progress.wakeups);
}

rank_record *messages_record(wagma_handle *h, int rank, uint64_t syncs) {
    (void)syncs;
    return &messages_of(h)->records[rank];
}

/* As the progress thread does, which there may not be; an error is kept for the next call. */
void messages_look_between(wagma_handle *h) {
    uint64_t deadline;
    messages_poll_progress(h, &deadline);
    if (!messages_of(h)->broken)
        (void)messages_look_for_dead(h);
}

enum handle_loss messages_lost(wagma_handle *h, int rank) {
    return messages_of(h)->losses[rank].how;
}

void messages_destroy(wagma_handle *h) {
    struct messages_executor *e = h->state;
    if (!e)
        return;
    progress_destroy(&e->progress);
    messages_free_versions(e);
    free(e->activation);
    free(e->graph);
    free(e->ranks);
    free(e->records);
    free(e->results);
    free(e->losses);
    free(e->words);
    h->state = NULL;
    h->keeps_arrays = e->abandoned;
    if (e->abandoned) {
        kept_add(&e->kept);
        return;
    }
    messages_free_data(e);
    free(e);
}

/* ---- creation -------------------------------------------------------------------------------- */

const char *messages_fits(const struct executor_request *request) {
    return !request->transport ? "it needs a transport"
           : request->options->memory != WAGMA_MEMORY_DEVICE
               ? NULL
               : "it needs arrays in host memory, or staged there";
}

/* A transport that only this thread may use is driven by it alone. */
static void choose_progress(wagma_handle *h) {
    struct messages_executor *e = h->state;
    char message[512];
    if (e->transport->threads || e->options->progress == WAGMA_PROGRESS_MAIN)
        return;
    e->options->progress = WAGMA_PROGRESS_MAIN;
    if (!h->hooks.warn)
        return;
    snprintf(message, sizeof message,
             "%s was not initialised with MPI_THREAD_MULTIPLE: the handle has no progress thread, "
             "and a rank that computes makes the others wait until its next call",
             e->name);
    h->hooks.warn(h->hooks.context, message);
}

static int make_memory(wagma_handle *h) {
    struct messages_executor *e = h->state;
    const size_t size = (size_t)h->size;
    e->ranks = calloc(size, sizeof *e->ranks);
    e->records = calloc(size, sizeof *e->records);
    e->losses = calloc(size, sizeof *e->losses);
    e->words = calloc(size, sizeof *e->words);
    if (!e->ranks || !e->records || !e->losses || !e->words)
        return error_set(WAGMA_ENOMEM, "no memory for the executor of %d ranks", h->size);
    return WAGMA_OK;
}

/* Eight times an array fits into the address space, too: partial sums of 16-bit elements, and what
 * is received for them. */
static int count_bytes(struct messages_executor *e) {
    const wagma_options *o = e->options;
    if (!__builtin_mul_overflow(reduce_dtype_size((wagma_dtype)o->dtype), (size_t)o->count,
                                &e->bytes_n) &&
        e->bytes_n <= PTRDIFF_MAX / 8)
        return WAGMA_OK;
    return error_set(WAGMA_EINVAL,
                     "count is %" PRId64 " elements of %s: they would not fit into the address "
                     "space, use fewer elements per handle",
                     o->count, reduce_dtype_name((wagma_dtype)o->dtype));
}

/* After which the transport is the handle's. */
static int make_state(wagma_handle *h, const struct executor_request *request,
                      const struct messages_core *core) {
    wagma_transport *t = request->transport;
    struct messages_executor *e = calloc(1, sizeof *e);
    if (!e)
        return error_set(WAGMA_ENOMEM, "no memory for the executor");
    e->transport = t;
    e->name = t->name;
    e->crowded = t->crowded;
    e->arena.alone = request->device != NULL;
    e->mismatch = e->disputer = -1;
    atomic_init(&e->pinned, -1);
    e->options = &h->options;
    e->core = core;
    h->state = e;
    t->owner = h;
    t->ending = messages_transport_ends;
    return WAGMA_OK;
}

static int make(wagma_handle *h, const struct executor_request *request) {
    struct messages_executor *e = h->state;
    const wagma_options *o = e->options;
    choose_progress(h);
    int status = handle_check_weight(h, request->weight);
    if (status == WAGMA_OK)
        status = executor_prepare(h, request);
    if (status == WAGMA_OK)
        status = count_bytes(e);
    if (status == WAGMA_OK)
        status = progress_create(&e->progress, o, messages_poll_progress, h);
    if (status == WAGMA_OK)
        status = handle_trace(h, (struct trace_origin){.transport = e->name, .shared = 1});
    if (status == WAGMA_OK) {
        trace_name_messages(h->trace, message_name);
        status = make_memory(h);
    }
    if (status == WAGMA_OK)
        status = e->core->create(h, request->initial, request->weight);
    if (status == WAGMA_OK)
        status = messages_meet(h);
    return status != WAGMA_OK ? status : progress_start(&e->progress, o->progress_cpu);
}

int messages_create(wagma_handle *h, const struct executor_request *request,
                    const struct messages_core *core) {
    int status = make_state(h, request, core);
    if (status != WAGMA_OK) {
        transport_refuse(request->transport);
        return status;
    }
    status = make(h, request);
    if (status != WAGMA_OK)
        messages_fail(h);
    return status;
}
