/* Groups over a transport: creation, calls and the end. See messages/executor.h. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "messages/executor.h"

/* ---- calls ----------------------------------------------------------------------------------- */

void messages_renew_grace(struct messages_executor *e) {
    atomic_store(&e->grace, grace_auto(&e->spreads, &e->computes));
    if (e->activation)
        activation_grace(e->activation, e->grace);
}

/* Compute times and spreads decide how long a version waits for members that are about to come. */
static void note_compute(wagma_handle *h) {
    struct messages_executor *e = h->state;
    if (h->options.grace >= 0)
        return;
    if (e->returned != 0 && h->call.began > e->returned)
        grace_add(&e->computes, h->call.began - e->returned);
    messages_renew_grace(e);
}

static int finish_call(wagma_handle *h, const struct activation_call *answer) {
    struct messages_executor *e = h->state;
    int status = messages_outcome(h, answer);
    if (status == WAGMA_OK)
        status = messages_tell_return(h, h->call.next);
    /* a posted call: what it computed meanwhile counts, so its own work does too */
    e->returned = h->call.posted ? h->call.began + h->call.waited : clock_now();
    return status;
}

static int begin(wagma_handle *h) {
    struct messages_executor *e = h->state;
    messages_end_views(e);
    e->arrived = 0;
    e->lends = e->reserved && h->call.contribution == e->reserved->data;
    e->out_of_place = e->lends && h->call.x == h->call.contribution;
    note_compute(h);
    return messages_tell(h, ACTIVATION_EVENT_CALL);
}

static int advance(wagma_handle *h, enum call_mode mode, int moved, int *over) {
    const struct activation_call answer = activation_ask(messages_of(h)->activation);
    const int status = h->call.parts && mode == CALL_FINISH ? h->call.parts->take(h) : WAGMA_OK;
    if (status != WAGMA_OK)
        return status;
    *over = answer.state == ACTIVATION_DONE && parts_whole(h->call.parts) && mode != CALL_POST;
    if (!*over)
        return messages_pause(h, mode, &answer, moved);
    messages_end_wait(h);
    return finish_call(h, &answer);
}

static int next_contribution(wagma_handle *h, void **buffer) {
    struct messages_executor *e = h->state;
    if (!e->reserved && !(e->reserved = messages_block_new(h)))
        return WAGMA_ENOMEM;
    *buffer = e->reserved->data;
    return WAGMA_OK;
}

static int pages_of(const wagma_handle *h, const void *array, void **pages, size_t *bytes) {
    return arena_pages_of(&messages_of(h)->arena, array, pages, bytes);
}

static size_t first_needed(const wagma_handle *h) {
    const struct messages_executor *e = messages_of(h);
    if (h->call.sync)
        return exchange_first(e->pool, h->size, h->rank);
    const int n = topology_members(&h->topology, h->rank, h->call.version, e->ranks);
    int index = 0;
    while (e->ranks[index] != h->rank)
        index++;
    return exchange_first(e->pool, n, index);
}

static void set_quorum(wagma_handle *h) {
    activation_quorum(messages_of(h)->activation, h->quorum);
}

static int is_pinned(const wagma_handle *h) {
    /* relaxed: the answer orders no other read; the next call takes the mutex */
    return atomic_load_explicit(&messages_of(h)->pinned, memory_order_relaxed) == h->version;
}

/* Takes what has come, unless the progress thread does so at the moment. Keeps an error for the
 * next call. */
static int pinned(wagma_handle *h) {
    if (!is_pinned(h))
        progress_peek(&messages_of(h)->progress);
    return is_pinned(h);
}

/* Return an array for callers that do not know whether the handle has a segment or a transport;
 * over a transport it has no advantage over any other array. */
static void *array(wagma_handle *h) {
    struct messages_executor *e = h->state;
    progress_enter(&e->progress);
    if (!e->own)
        e->own = messages_block_new(h);
    progress_leave(&e->progress, PROGRESS_NOTHING_LEFT);
    return e->own ? e->own->data : NULL;
}

static double carried_weight(const wagma_handle *h) {
    return messages_of(h)->carried ? messages_of(h)->carried_weight : 0;
}

static double grace(const wagma_handle *h) {
    const struct messages_executor *e = h->state;
    return h->options.grace >= 0 ? h->options.grace : (double)atomic_load(&e->grace) * 1e-9;
}

/* ---- the core -------------------------------------------------------------------------------- */

static struct activation_config config_of(const wagma_handle *h) {
    const struct messages_executor *e = h->state;
    const wagma_options *o = e->options;
    const struct policy *p = &h->policy;
    return (struct activation_config){
        .rank = h->rank,
        .size = h->size,
        .topology = h->topology,
        .quorum = p->in_place ? 0 : o->quorum,
        .world = p->world,
        .ordered = p->ordered,
        .varies = p->varies,
        .forward = p->forward,
        .window = o->window,
        .sync_period = o->sync_period,
        .seed = o->seed,
        .grace = o->grace < 0 ? e->grace : (uint64_t)(o->grace * 1e9),
        .automatic = o->grace < 0,
    };
}

static int make_memory(wagma_handle *h) {
    struct messages_executor *e = h->state;
    const struct activation_config config = config_of(h);
    const size_t window = (size_t)e->options->window;
    e->activation = malloc(activation_bytes(&config));
    e->results = calloc(h->policy.ordered ? window + 1 : 1, sizeof *e->results);
    if (!e->activation || !e->results)
        return error_set(WAGMA_ENOMEM, "no memory for the executor of %d ranks", h->size);
    activation_init(e->activation, &config);
    return WAGMA_OK;
}

/* The first contribution. */
static int publish(wagma_handle *h, const void *initial, double weight) {
    struct messages_executor *e = h->state;
    e->newest_version = -1;
    e->newest_weight = weight;
    if (h->policy.in_place || h->policy.ordered)
        return WAGMA_OK;
    if (!(e->newest = messages_block_new(h)))
        return WAGMA_ENOMEM;
    if (initial && weight != 0)
        memcpy(e->newest->data, initial, e->bytes_n);
    else
        memset(e->newest->data, 0, e->bytes_n);
    return WAGMA_OK;
}

static int create_core(wagma_handle *h, const void *initial, double weight) {
    struct messages_executor *e = h->state;
    messages_renew_grace(e);
    const int status = make_memory(h);
    if (status != WAGMA_OK)
        return status;
    e->pool =
        exchange_pool_create(e->transport, e->options, h->kernels, &e->arena, sizeof(rank_record));
    if (!e->pool)
        return WAGMA_ENOMEM;
    exchange_pool_trace(e->pool, h->trace);
    return publish(h, initial, weight);
}

static int depart(wagma_handle *h) {
    messages_end_views(h->state);
    return messages_tell(h, ACTIVATION_EVENT_DEPART);
}

static int has_departed(const struct messages_executor *e, int rank) {
    return activation_has_departed(e->activation, rank);
}

static int is_idle(const struct messages_executor *e) {
    return activation_idle(e->activation);
}

static int is_busy(const struct messages_executor *e) {
    return e->activation && activation_active(e->activation) > 0;
}

static uint64_t deadline(const struct messages_executor *e) {
    return activation_deadline(e->activation);
}

static const struct messages_core core = {
    .create = create_core,
    .begin = begin,
    .advance = advance,
    .drive = messages_drive_groups,
    .receive = messages_receive_for_groups,
    .see_dead = messages_see_dead_in_groups,
    .depart = depart,
    .has_departed = has_departed,
    .is_idle = is_idle,
    .is_busy = is_busy,
    .deadline = deadline,
};

/* ---- the executors --------------------------------------------------------------------------- */

static int create(wagma_handle *h, const struct executor_request *request) {
    return messages_create(h, request, &core);
}

static const char *fits_quorum_all(const struct executor_request *request) {
    return policy_of(request->options).in_place ? messages_fits(request)
                                                : "it needs the quorum of all members";
}

static const char *fits_groups(const struct executor_request *request) {
    return policy_of(request->options).avoiding ? messages_fits(request)
                                                : "it needs a quorum of fewer than all members";
}

const struct executor messages_quorum_all_executor = {
    .name = "messages/groups, quorum all",
    .fits = fits_quorum_all,
    .create = create,
    .calls = {MESSAGES_CALLS, .array = array, .first_needed = first_needed},
};

const struct executor messages_groups_executor = {
    .name = "messages/groups",
    .fits = fits_groups,
    .create = create,
    .calls = {MESSAGES_CALLS, .array = array, .next_contribution = next_contribution,
              .pages_of = pages_of, .first_needed = first_needed, .set_quorum = set_quorum,
              .pinned = pinned, .carried_weight = carried_weight, .grace = grace},
};
