/* Result of a call over a transport: its outcome, and x. */
#include "engine/merge.h"
#include "messages/executor.h"

static wagma_dtype dtype_of(const wagma_handle *h) {
    return (wagma_dtype)h->options.dtype;
}

static size_t elements(const wagma_handle *h) {
    return (size_t)h->options.count;
}

/* Lists the contributors of a version; what it gives. */
static struct merge list(wagma_handle *h, const messages_version *v) {
    double total = 0;
    h->outcome.contributors_count = 0;
    for (int i = 0; i < v->n; i++) {
        const exchange_record *record = &v->records[i];
        total += record->share;
        merge_list(h, v->members[i], record->version, record->weight);
    }
    const struct merge m = merge_version(&h->policy, total, h->outcome.late, h->call.weight,
                                         messages_of(h)->out_of_place);
    merge_outcome(h, m.weight);
    return m;
}

static void deliver(wagma_handle *h, const messages_version *v, void *out, const struct merge *m) {
    const void *stored = v->result ? v->result->data : h->call.x;
    if (h->call.parts && out == stored && !m->adds) {
        h->call.parts->divisor = m->copied;
        return;
    }
    merge_deliver(m, h->kernels, dtype_of(h), out, stored, h->call.contribution, elements(h), 0);
}

/* A late call out of place: its numerators, in a block of their own. */
static int show_late(wagma_handle *h, const messages_version *v, const struct merge *m) {
    struct messages_executor *e = h->state;
    if (!(e->shown = messages_block_new(h)))
        return WAGMA_ENOMEM;
    deliver(h, v, e->shown->data, m);
    h->outcome.result = e->shown->data;
    return WAGMA_OK;
}

/* "stale", and quorum "all". */
static int outcome_merged(wagma_handle *h, messages_version *v) {
    const struct merge m = list(h, v);
    if (!h->outcome.merged)
        return WAGMA_OK;
    if (!messages_of(h)->out_of_place) {
        deliver(h, v, h->call.x, &m);
    } else if (h->outcome.late) {
        return show_late(h, v, &m);
    } else {
        v->shown = 1;
        h->outcome.result = v->result->data;
    }
    return WAGMA_OK;
}

/* Keep what the next contribution adds. */
static int carry(wagma_handle *h) {
    struct messages_executor *e = h->state;
    messages_block *b = NULL;
    switch (merge_carry(&h->policy, h->outcome.late, h->call.weight)) {
    case MERGE_CARRY_AS_BEFORE: return WAGMA_OK;
    case MERGE_CARRY_THIS:
        b = e->written ? messages_block_hold(e->written) : messages_copy_of_call(h);
        if (!b)
            return WAGMA_ENOMEM;
        break;
    case MERGE_CARRY_NOTHING: break;
    }
    messages_block_put(e, &e->carried, b);
    e->carried_weight = h->call.weight;
    return WAGMA_OK;
}

/* "skip", "carry": the results from the call's version to `taken`; x becomes the newest one. */
static int outcome_ordered(wagma_handle *h, int64_t taken) {
    struct messages_executor *e = h->state;
    wagma_outcome *o = &h->outcome;
    const void *newest = NULL;
    const int status = carry(h); /* before x changes */
    for (int64_t t = h->call.version; t <= taken && status == WAGMA_OK; t++) {
        messages_version *v = messages_version_find(e, t);
        const void *result = NULL;
        v->shown = 1;
        if (list(h, v).weight != 0)
            newest = result = v->result->data;
        e->results[o->results_count++] = result;
    }
    if (newest && !e->out_of_place)
        h->kernels->divided_copy(dtype_of(h), h->call.x, newest, 1.0, elements(h));
    o->results = e->results;
    return status;
}

/* The rank is the only member: its contribution is the result, to the bit, also where it is late
 * for a version that another group has activated. */
static void outcome_alone(wagma_handle *h, messages_version *v) {
    struct messages_executor *e = h->state;
    wagma_outcome *o = &h->outcome;
    const int ordered = h->policy.ordered;
    const double weight = h->call.weight;
    const double factor = merge_alone(&h->policy, weight, e->out_of_place);
    const int shows = !h->policy.in_place && (ordered || e->out_of_place);
    const void *contribution = e->written ? e->written->data : h->call.contribution;
    void *out = shows ? v->result->data : h->call.x;
    v->shown = shows;
    merge_outcome_alone(h);
    if (shows && ordered) {
        (void)carry(h); /* no rank is late here: nothing is carried any more */
        e->results[o->results_count++] = weight != 0 ? out : NULL;
        o->results = e->results;
    } else if (shows && weight != 0) {
        o->result = out;
    }
    if (weight == 0)
        return;
    if (factor != 1)
        h->kernels->sum(dtype_of(h), out, &contribution, &factor, 1, 1.0, elements(h));
    else if (shows || h->call.x != h->call.contribution)
        h->kernels->divided_copy(dtype_of(h), out, contribution, 1.0, elements(h));
    if (shows && ordered && !e->out_of_place)
        h->kernels->divided_copy(dtype_of(h), h->call.x, out, 1.0, elements(h));
}

/* The call is over, and took the versions up to `taken`. */
static int outcome_of(wagma_handle *h, int64_t taken) {
    messages_version *v = messages_version_find(h->state, taken);
    const int ordered = h->policy.ordered, in_place = h->policy.in_place;
    int status = WAGMA_OK;
    if (v->n == 1)
        outcome_alone(h, v);
    else if (ordered && !in_place)
        status = outcome_ordered(h, taken);
    else
        status = outcome_merged(h, v);
    if (ordered && in_place)
        merge_show_x(h, &messages_of(h)->results[0]);
    merge_advance(h, taken);
    return status;
}

int messages_outcome(wagma_handle *h, const struct activation_call *answer) {
    struct messages_executor *e = h->state;
    const uint64_t began = trace_begin(h->trace);
    int status = WAGMA_OK;
    h->outcome.late = answer->late;
    h->stats.late += answer->late;
    if (answer->late && !answer->merged)
        merge_nothing(h);
    else
        status = outcome_of(h, answer->taken);
    if (status != WAGMA_OK)
        return status;
    trace_end(h->trace, TRACE_MERGE, began, answer->taken, -1, 0);
    messages_block_put(e, &e->written, NULL);
    messages_block_put(e, &e->lent, NULL);
    return WAGMA_OK;
}
