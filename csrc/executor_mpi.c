/* Groups that span nodes: creation, calls, and the table of functions. See executor_mpi.h. */
#include "executor_mpi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- calls -------------------------------------------------------------------------------------
 */

/* Compute times and spreads decide how long a version waits for members that are about to come. */
static void note_compute(wagma_handle *h) {
    struct mpi_executor *e = h->mpi;
    if (h->options->grace >= 0)
        return;
    if (e->returned != 0 && h->call.began > e->returned)
        grace_add(&e->computes, h->call.began - e->returned);
    activation_grace(e->activation, grace_auto(&e->spreads, &e->computes));
}

static int finish_call(wagma_handle *h, const struct activation_call *answer) {
    struct mpi_executor *e = h->mpi;
    int status = mpi_outcome(h, answer);
    if (status == WAGMA_OK)
        status = mpi_tell_return(h, h->call.next);
    /* a posted call: what it computed meanwhile counts, so its own work does too */
    e->returned = h->call.posted ? h->call.began + h->call.waited : wait_now();
    return status;
}

int mpi_check(const struct mpi_executor *e) {
    if (e->broken)
        return error_set(e->broken, "%s", e->trouble);
    /* relaxed: pairs with mpi_fail(), which waits for the mutex */
    return atomic_load_explicit(&e->failing, memory_order_relaxed)
               ? error_set(WAGMA_ECLOSED, "the handle was ended during a call, by another thread "
                                          "or by what its wait let run")
               : WAGMA_OK;
}

/* Goes on until the call is over (WAGMA_OK), an error, or where the mode returns to the caller
 * (WAGMA_INPROGRESS). */
static int run(wagma_handle *h, enum mpi_mode mode) {
    struct mpi_executor *e = h->mpi;
    int status = WAGMA_OK;
    while (status == WAGMA_OK && (status = mpi_check(e)) == WAGMA_OK) {
        const int moved = mpi_drive(h);
        if (moved < 0) {
            status = moved;
            break;
        }
        const struct activation_call answer = activation_ask(e->activation);
        if (answer.state == ACTIVATION_DONE && mode != MPI_POST) {
            mpi_end_wait(h);
            return finish_call(h, &answer);
        }
        status = mpi_pause(h, mode, &answer, moved);
    }
    mpi_end_wait(h);
    return status;
}

static int begin(wagma_handle *h, enum mpi_mode mode) {
    struct mpi_executor *e = h->mpi;
    int status = mpi_check(e);
    if (status != WAGMA_OK)
        return status;
    mpi_end_views(e);
    e->arrived = 0;
    e->out_of_place = e->reserved && h->call.x == mpi_data(e->reserved);
    e->heartbeats = 0;
    e->heartbeat = e->lost_since = e->moved = 0;
    note_compute(h);
    status = mpi_tell(h, ACTIVATION_EVENT_CALL);
    return status != WAGMA_OK ? status : run(h, mode);
}

static int start(wagma_handle *h) {
    return begin(h, MPI_START);
}

static int post(wagma_handle *h) {
    return begin(h, MPI_POST);
}

static int poll(wagma_handle *h) {
    return run(h, MPI_POLL);
}

static int finish(wagma_handle *h) {
    return run(h, MPI_FINISH);
}

static int next_contribution(wagma_handle *h, void **buffer) {
    struct mpi_executor *e = h->mpi;
    if (!e->reserved && !(e->reserved = mpi_block_new(h)))
        return WAGMA_ENOMEM;
    *buffer = mpi_data(e->reserved);
    return WAGMA_OK;
}

/* ---- the rest of the table ---------------------------------------------------------------------
 */

static void enter(wagma_handle *h) {
    progress_enter(&h->mpi->progress);
}

static void leave(wagma_handle *h) {
    struct mpi_executor *e = h->mpi;
    const int back_at_once = h->call.active && !h->call.posted; /* between start and finish */
    progress_leave(&e->progress, back_at_once                     ? PROGRESS_BACK_AT_ONCE
                                 : e->transport && mpi_is_busy(h) ? PROGRESS_WORK_LEFT
                                                                  : PROGRESS_NOTHING_LEFT);
}

/* Of no advantage over any other array: callers need not know what the handle is made over. */
static void *array(wagma_handle *h) {
    struct mpi_executor *e = h->mpi;
    progress_enter(&e->progress);
    if (!e->own)
        e->own = mpi_block_new(h);
    progress_leave(&e->progress, PROGRESS_NOTHING_LEFT);
    return e->own ? mpi_data(e->own) : NULL;
}

static double carried_weight(const wagma_handle *h) {
    return h->mpi->carried ? h->mpi->carried_weight : 0;
}

static double grace(const wagma_handle *h) {
    struct mpi_executor *e = h->mpi;
    if (h->options->grace >= 0)
        return h->options->grace;
    progress_enter(&e->progress);
    const double seconds = (double)grace_auto(&e->spreads, &e->computes) * 1e-9;
    progress_leave(&e->progress, PROGRESS_NOTHING_LEFT);
    return seconds;
}

static uint64_t bytes(const wagma_handle *h) {
    struct mpi_executor *e = h->mpi;
    progress_enter(&e->progress);
    const uint64_t sum = e->blocks * mpi_block_bytes(e) + exchange_bytes(e->pool);
    progress_leave(&e->progress, PROGRESS_NOTHING_LEFT);
    return sum;
}

static uint64_t wakeups(const wagma_handle *h) {
    struct progress *p = &h->mpi->progress;
    progress_enter(p);
    const uint64_t n = p->wakeups;
    progress_leave(p, PROGRESS_NOTHING_LEFT);
    return n;
}

static rank_record *record(wagma_handle *h, int rank, uint64_t syncs) {
    (void)syncs;
    return &h->mpi->records[rank];
}

static enum handle_loss lost(wagma_handle *h, int rank) {
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

static void destroy(wagma_handle *h) {
    struct mpi_executor *e = h->mpi;
    if (!e)
        return;
    progress_destroy(&e->progress);
    mpi_free_versions(e);
    free(e->activation);
    free(e->ranks);
    free(e->records);
    free(e->results);
    free(e->losses);
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

#define EXECUTOR                                                                                   \
    .enter = enter, .leave = leave, .start = start, .post = post, .poll = poll, .finish = finish,  \
    .array = array, .bytes = bytes, .wakeups = wakeups, .record = record, .lost = lost,            \
    .close = mpi_close, .fail = mpi_fail, .free = destroy

static const struct executor in_place = {EXECUTOR};
static const struct executor wait_avoiding = {EXECUTOR, .next_contribution = next_contribution,
                                              .carried_weight = carried_weight, .grace = grace};

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

static struct activation_config config_of(const wagma_handle *h) {
    const struct mpi_executor *e = h->mpi;
    const wagma_options *o = &e->options;
    return (struct activation_config){
        .rank = h->rank,
        .size = h->size,
        .topology = e->topology,
        .quorum = e->in_place ? 0 : o->quorum,
        .world = o->activation == WAGMA_ACTIVATION_WORLD,
        .ordered = e->ordered,
        .forward = o->missed == WAGMA_MISSED_FAST_FORWARD,
        .window = o->window,
        .sync_period = o->sync_period,
        .seed = o->seed,
        .grace = o->grace < 0 ? grace_auto(&e->spreads, &e->computes) : (uint64_t)(o->grace * 1e9),
        .automatic = o->grace < 0,
    };
}

static int make_memory(wagma_handle *h) {
    struct mpi_executor *e = h->mpi;
    const struct activation_config config = config_of(h);
    const size_t size = (size_t)h->size, window = (size_t)e->options.window;
    e->activation = malloc(activation_bytes(&config));
    e->ranks = calloc(size, sizeof *e->ranks);
    e->records = calloc(size, sizeof *e->records);
    e->losses = calloc(size, sizeof *e->losses);
    e->results = calloc(e->ordered ? window + 1 : 1, sizeof *e->results);
    if (!e->activation || !e->ranks || !e->records || !e->losses || !e->results)
        return error_set(WAGMA_ENOMEM, "no memory for the executor of %d ranks", h->size);
    activation_init(e->activation, &config);
    return WAGMA_OK;
}

/* The first contribution. */
static int publish(wagma_handle *h, const void *initial, double weight) {
    struct mpi_executor *e = h->mpi;
    e->newest_version = -1;
    e->newest_weight = weight;
    if (e->in_place || e->ordered)
        return WAGMA_OK;
    if (!(e->newest = mpi_block_new(h)))
        return WAGMA_ENOMEM;
    if (initial && weight != 0)
        memcpy(mpi_data(e->newest), initial, e->bytes_n);
    else
        memset(mpi_data(e->newest), 0, e->bytes_n);
    return WAGMA_OK;
}

static int create(wagma_handle *h, const void *initial, double weight) {
    struct mpi_executor *e = h->mpi;
    const wagma_options *o = &e->options;
    const size_t element = reduce_dtype_size((wagma_dtype)o->dtype);
    e->in_place = o->activation == WAGMA_ACTIVATION_GROUP && o->quorum == o->group_size;
    e->ordered = o->late != WAGMA_LATE_STALE;
    e->averages = o->average && (e->in_place || e->ordered || element == 2);
    e->bytes_n = element * (size_t)o->count;
    h->executor = e->in_place ? &in_place : &wait_avoiding;
    choose_progress(h);
    int status = handle_check_weight(h, weight);
    if (status == WAGMA_OK)
        status = progress_create(&e->progress, o, mpi_poll_progress, h);
    if (status == WAGMA_OK)
        status = handle_trace(h, e->name);
    if (status == WAGMA_OK)
        status = make_memory(h);
    if (status != WAGMA_OK)
        return status;
    e->pool = exchange_pool_create(e->transport, o, h->kernels, sizeof(rank_record));
    if (!e->pool)
        return WAGMA_ENOMEM;
    exchange_pool_trace(e->pool, h->trace);
    status = publish(h, initial, weight);
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
    e->options = *options;
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
    if (status == WAGMA_OK && checked.graph != WAGMA_GRAPH_NONE)
        status = error_set(WAGMA_EINVAL, "a graph over a transport is not there yet");
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
