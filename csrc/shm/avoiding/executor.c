/* Wait-avoiding versions on one node: drives the round protocol (round.c).
 *
 * Passive by construction: an absent rank needs no thread. Whatever round.c asks for is done here,
 * in shm/avoiding/data.c and in shm/avoiding/wait.c: write the contribution, reduce slices, deliver
 * them to x, wait. A call that has to wait returns to round.c after every pause, so that a state is
 * looked at again and never remembered. */
#include "shm/avoiding/executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

/* ---- the loop -------------------------------------------------------------------------------- */

/* Does what round.c asks for until the call is over (WAGMA_OK), an error, or where the mode returns
 * to the caller (WAGMA_INPROGRESS). */
static int run(wagma_handle *h, enum call_mode mode) {
    struct avoiding_executor *e = h->state;
    wagma_segment *s = handle_segment(h);
    int status;
    for (;;) {
        if (e->plane && (status = e->plane->settle(h, mode)) != WAGMA_OK)
            return status;
        const int publishes = e->publishing;
        if (publishes)
            grace_arrive(&e->grace, s, h->rank, e->local.t);
        const enum round_action action =
            publishes && mode == CALL_POST
                ? round_step(&e->context, &e->local, h->call.members, e->input)
                : round_run(&e->context, &e->local, h->call.members, e->input);
        if (publishes) { /* it may be what the window waits for */
            e->publishing = 0;
            trace_now(h->trace, TRACE_ARRIVAL, h->call.version, -1, 0);
            wait_ring_window(s, h->rank);
            if (mode == CALL_POLL) /* the caller may stay away: another member has to pin */
                wait_ring(s, h->call.members, h->call.n, h->rank);
        }
        if (action == ROUND_WAIT) {
            if ((status = avoiding_pause(h, mode)) != WAGMA_OK)
                return status;
            continue;
        }
        avoiding_resume(h);
        if ((status = handle_check_open(h)) != WAGMA_OK)
            return status;
        switch (action) {
        case ROUND_PASSED:
            if (h->policy.forward) /* a quorum is smaller without this rank */
                wait_ring(s, NULL, 0, h->rank);
            else
                wait_ring_window(s, h->rank);
            break;
        case ROUND_PINNED:
            trace_now(h->trace, TRACE_PIN, h->call.version, -1, 0);
            wait_ring(s, h->call.members, h->call.n, h->rank);
            break;
        case ROUND_COMPLETE: /* of version u, which may have another group */
            trace_now(h->trace, TRACE_COMPLETE, (int64_t)e->local.u - 1, -1, 0);
            wait_ring(s, e->members, e->n, h->rank);
            break;
        case ROUND_MISMATCH: return avoiding_mismatch(h);
        case ROUND_DISPUTED: return avoiding_disputed(h, e->local.w);
        case ROUND_RETURN: return WAGMA_OK;
        case ROUND_STEP: /* published: it may be the quorum, and this rank does not pin */
            wait_ring(s, h->call.members, h->call.n, h->rank);
            avoiding_leave(h);
            return WAGMA_INPROGRESS;
        default:
            if ((status = avoiding_data(h, action)) != WAGMA_OK)
                return status;
        }
    }
}

/* End the use of x after a call that ended with `status`. Return the first error. */
static int end_use(wagma_handle *h, int status) {
    const struct avoiding_plane *plane = avoiding_of(h)->plane;
    char said[1024];
    if (!plane) {
        const int kept = avoiding_keep_x(h, status != WAGMA_OK);
        return kept == WAGMA_OK ? status : kept; /* x must not be touched: no other error matters */
    }
    snprintf(said, sizeof said, "%s", wagma_last_error());
    const int ended = plane->end(h);
    return status == WAGMA_OK ? ended : error_set(status, "%s", said);
}

/* Run a call, and fill in its outcome when it is over. */
static int run_call(wagma_handle *h, enum call_mode mode) {
    int status = run(h, mode);
    if (status == WAGMA_INPROGRESS)
        return status;
    if (status == WAGMA_OK)
        status = avoiding_outcome(h);
    status = end_use(h, status);
    if (status != WAGMA_OK)
        return status;
    grace_return(&avoiding_of(h)->grace, handle_segment(h), h);
    return status;
}

static int begin(wagma_handle *h, enum call_mode mode) {
    struct avoiding_executor *e = h->state;
    const wagma_segment *s = handle_segment(h);
    const int viewed = e->local.kept || e->results_count > 0;
    e->taken = 0;
    e->slice_ns = e->plane ? e->plane->slice_ns : 0;
    e->computed = 0;
    e->results_count = 0;
    e->counted = 0;
    e->posted = mode == CALL_POST;
    e->out_of_place = e->local.reserved &&
                      h->call.x == avoiding_contribution(h, h->rank, (int)e->local.reserved - 1);
    e->input = (struct round_input){.grace_over = s->options.grace == 0};
    grace_call(&e->grace, h);
    round_begin(&e->context, &e->local, (uint64_t)h->call.version + 1, h->call.sync,
                avoiding_source(h), h->call.members, h->call.n);
    const int status = e->plane ? e->plane->begin(h, viewed) : WAGMA_OK;
    if (status != WAGMA_OK)
        return status;
    return run_call(h, mode);
}

int avoiding_start(wagma_handle *h) {
    return begin(h, CALL_START);
}

int avoiding_post(wagma_handle *h) {
    return begin(h, CALL_POST);
}

int avoiding_poll(wagma_handle *h) {
    return run_call(h, CALL_POLL);
}

int avoiding_finish(wagma_handle *h) {
    return run_call(h, CALL_FINISH);
}

int avoiding_next_contribution(wagma_handle *h, void **buffer) {
    struct avoiding_executor *e = h->state;
    if (!e->local.reserved) {
        e->input = (struct round_input){0};
        e->counted = 0;
        round_begin_reserve(&e->local, (uint64_t)h->version + 1);
        const int status = run(h, CALL_FINISH);
        if (status != WAGMA_OK)
            return status;
    }
    *buffer = avoiding_contribution(h, h->rank, (int)e->local.reserved - 1);
    return WAGMA_OK;
}

/* Finding the group may take long; the answer may be asked for often. */
int avoiding_pinned(wagma_handle *h) {
    struct avoiding_executor *e = h->state;
    const uint64_t t = (uint64_t)h->version + 1;
    if (e->asked != t) {
        (void)round_members_of(&e->context, t, (uint32_t)h->rank, 0, e->scratch);
        e->asked_leader = (uint32_t)e->scratch[0];
        e->asked = t;
    }
    const segment_atomic *slot =
        segment_slot(handle_segment(h), (int)e->asked_leader, (int)(t % e->context.slots));
    /* relaxed: nothing of the round is read on this answer; a call looks again (PC_SLOT) */
    return round_version(atomic_load_explicit(slot, memory_order_relaxed)) == t;
}

void avoiding_set_quorum(wagma_handle *h) {
    avoiding_of(h)->context.quorum = (uint32_t)h->quorum;
    /* relaxed: read once this rank has set DISPUTE; pairs with PC_DISPUTE_SET of round.c */
    atomic_store_explicit(segment_quorum(handle_segment(h), h->rank), (uint64_t)h->quorum,
                          memory_order_relaxed);
}

double avoiding_carried_weight(const wagma_handle *h) {
    return avoiding_of(h)->carries ? avoiding_of(h)->carried_weight : 0;
}

static int depart(wagma_handle *h) {
    struct avoiding_executor *e = h->state;
    const struct round_input input = {0};
    const int status = e->plane ? e->plane->depart(h) : WAGMA_OK;
    if (status != WAGMA_OK)
        return status;
    round_begin_departure(&e->local);
    while (round_run(&e->context, &e->local, h->call.members, input) != ROUND_RETURN)
        ;
    if (e->plane)
        e->plane->departed(h);
    return WAGMA_OK;
}

int avoiding_close(wagma_handle *h) {
    return handle_segment_depart(h, depart);
}

void avoiding_free(wagma_handle *h) {
    struct avoiding_executor *e = h->state;
    if (!e)
        return;
    if (h->call.active)
        (void)(e->plane ? e->plane->end(h) : avoiding_keep_x(h, 1)); /* it was never finished */
    grace_destroy(&e->grace);
    for (int64_t k = 0; e->copies && h->policy.ordered && k <= handle_segment(h)->options.window;
         k++)
        avoiding_free_destination(h, e->copies[k]);
    avoiding_free_destination(h, e->alone);
    if (e->plane)
        e->plane->destroy(h);
    free(e->copies);
    free(e->results);
    free(e->scratch);
    free(e->members_u);
    free(e->missing);
    free(e->shifted);
    free(e->block);
    handle_segment_free(h);
}

uint64_t avoiding_bytes(const wagma_handle *h) {
    const wagma_segment *s = handle_segment(h);
    const struct avoiding_executor *e = h->state;
    return segment_joined_bytes(s) +
           (uint64_t)(e->committed_contributions - segment_joined_contributions(s)) *
               s->item_memory +
           (uint64_t)(e->committed_rounds - segment_joined_rounds(s)) *
               (s->record_step + s->item_memory);
}

double avoiding_grace(const wagma_handle *h) {
    return (double)grace_value(&avoiding_of(h)->grace) * 1e-9;
}

/* Arrays that the caches cannot keep until they are read again: it is not known how much of the
 * last level others use, and a sixteenth is what was found to be there. */
static int exceed_caches(const wagma_segment *s) {
    const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return s->bytes_n >= REDUCE_STREAM_BYTES &&
           (last_level <= 0 || s->bytes_n >= (uint64_t)last_level / 16 / (uint64_t)s->size);
}

int avoiding_make(wagma_handle *h, const struct executor_request *request,
                  const struct avoiding_plane *plane) {
    wagma_segment *s = request->segment;
    struct avoiding_executor *e = h->state;
    e->plane = plane;
    e->committed_contributions = segment_joined_contributions(s);
    e->committed_rounds = segment_joined_rounds(s);
    e->scratch = calloc((size_t)s->size, sizeof *e->scratch);
    e->members_u = calloc((size_t)s->size, sizeof *e->members_u);
    e->missing = calloc((size_t)s->size, sizeof *e->missing);
    e->block = malloc(AVOIDING_BLOCK_BYTES);
    e->shifted = calloc((size_t)s->size + 1, sizeof *e->shifted);
    const struct policy *p = &h->policy;
    const size_t results = p->ordered ? (size_t)s->options.window + 1 : 1;
    e->results = calloc(results, sizeof *e->results);
    e->copies = calloc(results, sizeof *e->copies);
    if (!e->results || !e->copies || !e->scratch || !e->members_u || !e->missing || !e->shifted ||
        !e->block || grace_create(&e->grace, s) != 0)
        return error_set(WAGMA_ENOMEM, "no memory for the executor of %d ranks", s->size);
    e->context = (struct round_context){
        .memory = (struct round_memory *)s,
        .rank = (uint32_t)h->rank,
        .size = (uint32_t)s->size,
        .topology = s->topology,
        .world = p->world,
        .ordered = p->ordered,
        .forward = p->forward,
        .varies = p->varies,
        .quorum = s->options.quorum == WAGMA_QUORUM_MAJORITY ? 0 : (uint32_t)s->options.quorum,
        .slots = (uint32_t)s->slots,
        .rounds = (uint32_t)s->rounds,
        .slices = (uint32_t)s->slices,
        .buffers_usable = (uint32_t)e->committed_contributions,
        .rounds_usable = (uint32_t)e->committed_rounds,
        .spare = segment_most_contributions(s) == s->buffers,
        .window = (uint64_t)s->options.window,
        .scratch = e->scratch,
    };
    e->streams_x = exceed_caches(s);
    round_init(&e->local, s->array_is_contribution);
    if (s->remap)
        s->remap[h->rank] = remap_new(s, h->rank);
    for (int i = 0; i < e->committed_rounds; i++)
        /* release: published to others by the state JOINED */
        atomic_store_explicit(&segment_round_of(s, (uint32_t)(h->rank * s->rounds + i))->free, 1,
                              memory_order_release);
    *segment_weight(s, h->rank, 0) = request->weight;
    return WAGMA_OK;
}

static int make(wagma_handle *h, const struct executor_request *request) {
    const wagma_segment *s = request->segment;
    if (request->initial)
        memcpy(segment_contribution(s, h->rank, 0), request->initial, s->bytes_n);
    return avoiding_make(h, request, NULL);
}

static int create(wagma_handle *h, const struct executor_request *request) {
    return handle_segment_create(h, request, sizeof(struct avoiding_executor), make);
}

static const char *fits(const struct executor_request *request) {
    return policy_of(request->options).avoiding ? handle_segment_fits(request)
                                                : "it needs a quorum of fewer than all members";
}

const struct executor shm_avoiding_executor = {
    .name = "shm/avoiding",
    .fits = fits,
    .create = create,
    .calls = {AVOIDING_CALLS, .array = avoiding_array},
};
