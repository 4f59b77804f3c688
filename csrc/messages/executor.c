/* Handles over a transport: creation, and what the tables of functions and calls have in common.
 * See messages/executor.h. */
#include "messages/executor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

int mpi_check(const struct mpi_executor *e) {
    if (e->broken)
        return error_set(e->broken, "%s", e->trouble);
    /* relaxed: pairs with mpi_fail(), which waits for the mutex */
    return atomic_load_explicit(&e->failing, memory_order_relaxed) ? handle_ended() : WAGMA_OK;
}

/* ---- the table --------------------------------------------------------------------------------
 */

void mpi_enter(wagma_handle *h) {
    progress_enter(&h->mpi->progress);
}

void mpi_leave(wagma_handle *h) {
    struct mpi_executor *e = h->mpi;
    enum progress_left left = PROGRESS_NOTHING_LEFT;
    if (h->call.active)
        left = h->call.posted ? PROGRESS_POSTED : PROGRESS_BACK_AT_ONCE; /* start to finish */
    else if (e->transport && mpi_is_busy(h))
        left = PROGRESS_WORK_LEFT;
    progress_leave(&e->progress, left);
}

/* Goes on until the call is over (WAGMA_OK), an error, or where the mode returns to the caller
 * (WAGMA_INPROGRESS). */
static int run(wagma_handle *h, enum call_mode mode) {
    struct mpi_executor *e = h->mpi;
    int status = WAGMA_OK;
    for (int over = 0; !over && status == WAGMA_OK && (status = mpi_check(e)) == WAGMA_OK;) {
        const int moved = mode == CALL_POST ? mpi_drive_all(h) : mpi_drive(h);
        status = moved < 0 ? moved : e->core->advance(h, mode, moved, &over);
    }
    mpi_end_wait(h);
    return status;
}

static int begin(wagma_handle *h, enum call_mode mode) {
    struct mpi_executor *e = h->mpi;
    int status = mpi_check(e);
    if (status != WAGMA_OK)
        return status;
    e->heartbeat = e->lost_since = e->moved = 0;
    e->inquired = 0;
    status = e->core->begin(h);
    return status != WAGMA_OK ? status : run(h, mode);
}

int mpi_start(wagma_handle *h) {
    return begin(h, CALL_START);
}

int mpi_post(wagma_handle *h) {
    return begin(h, CALL_POST);
}

int mpi_poll(wagma_handle *h) {
    return run(h, CALL_POLL);
}

int mpi_finish(wagma_handle *h) {
    return run(h, CALL_FINISH);
}

/* Counters: for any thread, also while the owner waits in a call, with the mutex. */
uint64_t mpi_bytes(const wagma_handle *h) {
    const struct mpi_executor *e = h->mpi;
    /* relaxed: a counter */
    return atomic_load_explicit(&e->arena.bytes, memory_order_relaxed);
}

uint64_t mpi_wakeups(const wagma_handle *h) {
    return atomic_load(&h->mpi->progress.wakeups);
}

rank_record *mpi_record(wagma_handle *h, int rank, uint64_t syncs) {
    (void)syncs;
    return &h->mpi->records[rank];
}

/* As the progress thread does, which there may not be; an error is kept for the next call. */
void mpi_look_between(wagma_handle *h) {
    uint64_t deadline;
    mpi_poll_progress(h, &deadline);
    if (!h->mpi->broken)
        (void)mpi_look_for_dead(h);
}

enum handle_loss mpi_lost(wagma_handle *h, int rank) {
    return h->mpi->losses[rank].how;
}

/* Executors with messages under way, which may still be read from and written to what they own:
 * kept to the end of the process, and reachable. */
static struct mpi_executor *_Atomic abandoned;

static void abandon(struct mpi_executor *e) {
    e->next_abandoned = atomic_load(&abandoned);
    while (!atomic_compare_exchange_weak(&abandoned, &e->next_abandoned, e))
        ;
}

void mpi_destroy(wagma_handle *h) {
    struct mpi_executor *e = h->mpi;
    if (!e)
        return;
    progress_destroy(&e->progress);
    mpi_free_versions(e);
    free(e->activation);
    free(e->graph);
    free(e->ranks);
    free(e->records);
    free(e->results);
    free(e->losses);
    free(e->words);
    h->mpi = NULL;
    if (e->abandoned) {
        abandon(e);
        return;
    }
    mpi_free_data(e);
    free(e);
}

/* ---- creation ----------------------------------------------------------------------------------
 */

/* Of one that was built from other sources nothing else may be read, its functions included. */
static int check_abi(const wagma_transport *t) {
    if (t->abi == TRANSPORT_ABI)
        return WAGMA_OK;
    return error_set(WAGMA_EINVAL,
                     "the transport was built for interface %#" PRIx64 ", the engine for %#" PRIx64
                     ": build both from the same sources (libwagma and libwagma_mpi: make install; "
                     "the Python package: python -m pip install --force-reinstall .)",
                     t->abi, TRANSPORT_ABI);
}

static int check_transport(const wagma_transport *t, const wagma_options *o) {
    if (o->size != t->size)
        return error_set(WAGMA_EINVAL, "options.size is %d: the transport (%s) has %d ranks",
                         o->size, t->name, t->size);
    return WAGMA_OK;
}

/* A transport that only this thread may use is driven by it alone. */
static void choose_progress(wagma_handle *h) {
    struct mpi_executor *e = h->mpi;
    char message[512];
    if (e->transport->threads || e->options.progress == WAGMA_PROGRESS_MAIN)
        return;
    e->options.progress = WAGMA_PROGRESS_MAIN;
    if (!h->hooks.warn)
        return;
    snprintf(message, sizeof message,
             "%s was not initialised with MPI_THREAD_MULTIPLE: the handle has no progress thread, "
             "and a rank that computes makes the others wait until its next call",
             e->name);
    h->hooks.warn(h->hooks.context, message);
}

static int make_memory(wagma_handle *h) {
    struct mpi_executor *e = h->mpi;
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
static int count_bytes(struct mpi_executor *e) {
    const wagma_options *o = &e->options;
    if (!__builtin_mul_overflow(reduce_dtype_size((wagma_dtype)o->dtype), (size_t)o->count,
                                &e->bytes_n) &&
        e->bytes_n <= PTRDIFF_MAX / 8)
        return WAGMA_OK;
    return error_set(WAGMA_EINVAL,
                     "count is %" PRId64 " elements of %s: they would not fit into the address "
                     "space, use fewer elements per handle",
                     o->count, reduce_dtype_name((wagma_dtype)o->dtype));
}

static int create(wagma_handle *h, const void *initial, double weight) {
    struct mpi_executor *e = h->mpi;
    const wagma_options *o = &e->options;
    e->core->choose(h);
    choose_progress(h);
    int status = handle_check_weight(h, weight);
    if (status == WAGMA_OK)
        status = count_bytes(e);
    if (status == WAGMA_OK)
        status = progress_create(&e->progress, o, mpi_poll_progress, h);
    if (status == WAGMA_OK)
        status = handle_trace(h, e->name);
    if (status == WAGMA_OK)
        status = make_memory(h);
    if (status == WAGMA_OK)
        status = e->core->create(h, initial, weight);
    if (status == WAGMA_OK)
        status = mpi_meet(h);
    return status != WAGMA_OK ? status : progress_start(&e->progress, o->progress_cpu);
}

/* A handle without anything but its options; it owns the transport. NULL: error_set(). */
static wagma_handle *prepare(wagma_transport *t, const wagma_options *options,
                             const wagma_hooks *hooks) {
    struct mpi_executor *e = calloc(1, sizeof *e);
    wagma_handle *h = NULL;
    if (!e) {
        (void)error_set(WAGMA_ENOMEM, "no memory for the executor");
        return NULL;
    }
    e->transport = t;
    e->name = t->name;
    e->crowded = t->crowded;
    e->mismatch = e->disputer = -1;
    atomic_init(&e->pinned, -1);
    e->options = *options;
    e->core = policy_of(options).graph ? &mpi_core_of_graph : &mpi_core_of_groups;
    e->topology =
        (struct topology){options->size, options->group_size, options->grouping, options->seed};
    h = handle_new(t->rank, &e->options, &e->topology, hooks);
    if (!h) {
        free(e);
        return NULL;
    }
    h->mpi = e;
    t->owner = h;
    t->ending = mpi_transport_ends;
    return h;
}

int wagma_create_over(wagma_transport *transport, const wagma_options *options, const void *initial,
                      double weight, const wagma_hooks *hooks, wagma_handle **handle) {
    *handle = NULL;
    if (!transport)
        return error_set(WAGMA_EINVAL, "transport is NULL: make one first");
    if (check_abi(transport) != WAGMA_OK)
        return WAGMA_EINVAL;
    transport->error = error_set;
    transport->ending = NULL;
    wagma_options checked;
    int status = options ? WAGMA_OK : error_set(WAGMA_EINVAL, "options is NULL");
    if (status == WAGMA_OK) {
        checked = *options;
        status = wagma_options_check(&checked);
    }
    if (status == WAGMA_OK)
        status = check_transport(transport, &checked);
    wagma_handle *h = status == WAGMA_OK ? prepare(transport, &checked, hooks) : NULL;
    if (!h) {
        mpi_refuse(transport);
        return status != WAGMA_OK ? status : WAGMA_ENOMEM;
    }
    status = create(h, initial, weight);
    if (status == WAGMA_OK) {
        *handle = h;
        return WAGMA_OK;
    }
    mpi_fail(h);
    h->closed = 2;
    wagma_free(h);
    return status;
}
