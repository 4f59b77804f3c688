/* What a call over a transport gives: its outcome, and x. */
#include "messages/executor.h"

static wagma_dtype dtype_of(const wagma_handle *h) {
    return (wagma_dtype)h->options->dtype;
}

static size_t elements(const wagma_handle *h) {
    return (size_t)h->options->count;
}

/* The sum of the shares; the outcome gets the list of those who contributed. */
static double list(wagma_handle *h, const mpi_version *v) {
    wagma_outcome *o = &h->outcome;
    double shares = 0;
    o->contributors_count = 0;
    for (int i = 0; i < v->n; i++) {
        shares += v->records[i].share;
        if (v->records[i].weight == 0)
            continue;
        h->contributors[o->contributors_count] = v->members[i];
        h->versions[o->contributors_count++] = v->records[i].version;
    }
    return shares;
}

/* 1: some member contributed, so that there is data. */
static int has_data(const mpi_version *v) {
    for (int i = 0; i < v->n; i++)
        if (v->records[i].weight != 0)
            return 1;
    return 0;
}

/* out = what is stored, as the call wants it. */
static void deliver(wagma_handle *h, const mpi_version *v, void *out, double shares) {
    struct mpi_executor *e = h->mpi;
    const double divisor = h->options->average && !e->out_of_place ? h->outcome.weight : 1.0;
    const void *stored = v->result ? v->result->data : h->call.x;
    const double times = e->averages ? shares : 1.0;
    if (!h->outcome.late) {
        const double by = e->averages ? 1.0 : divisor;
        if (out != stored || by != 1.0)
            h->kernels->divided_copy(dtype_of(h), out, stored, by, elements(h));
        return;
    }
    const void *const in[2] = {stored, h->call.x};
    const double weights[2] = {has_data(v) ? times : 0, h->call.weight};
    h->kernels->sum(dtype_of(h), out, in, weights, 2, divisor, elements(h));
}

/* A late call out of place: its numerators, in a block of their own. */
static int show_late(wagma_handle *h, const mpi_version *v, double shares) {
    struct mpi_executor *e = h->mpi;
    if (!(e->shown = mpi_block_new(h)))
        return WAGMA_ENOMEM;
    deliver(h, v, e->shown->data, shares);
    h->outcome.result = e->shown->data;
    return WAGMA_OK;
}

/* "stale", and quorum "all". */
static int outcome_merged(wagma_handle *h, mpi_version *v) {
    struct mpi_executor *e = h->mpi;
    wagma_outcome *o = &h->outcome;
    const double shares = list(h, v);
    o->weight = o->late ? shares + h->call.weight : shares;
    o->merged = o->weight != 0;
    if (!o->merged)
        return WAGMA_OK;
    if (!e->out_of_place) {
        deliver(h, v, h->call.x, shares);
    } else if (o->late) {
        return show_late(h, v, shares);
    } else {
        v->shown = 1;
        o->result = v->result->data;
    }
    return WAGMA_OK;
}

/* What this call carries on: it was in no result, or it had nothing to contribute. */
static int carry(wagma_handle *h) {
    struct mpi_executor *e = h->mpi;
    if (h->options->late != WAGMA_LATE_CARRY || h->call.weight == 0)
        return WAGMA_OK;
    if (h->outcome.late) {
        mpi_block *b = e->written ? mpi_block_hold(e->written) : mpi_copy_of_call(h);
        if (!b)
            return WAGMA_ENOMEM;
        mpi_block_put(e, &e->carried, b);
        e->carried_weight = h->call.weight;
    } else {
        mpi_block_put(e, &e->carried, NULL);
    }
    return WAGMA_OK;
}

/* "skip", "carry": the results from the call's version to `taken`; x becomes the newest one. */
static int outcome_ordered(wagma_handle *h, int64_t taken) {
    struct mpi_executor *e = h->mpi;
    wagma_outcome *o = &h->outcome;
    const void *newest = NULL;
    const int status = carry(h); /* before x changes */
    for (int64_t t = h->call.version; t <= taken && status == WAGMA_OK; t++) {
        mpi_version *v = mpi_version_find(e, t);
        const void *result = NULL;
        v->shown = 1;
        o->weight = list(h, v);
        if (o->weight != 0)
            newest = result = v->result->data;
        o->merged |= result != NULL;
        e->results[o->results_count++] = result;
    }
    if (newest && !e->out_of_place)
        h->kernels->divided_copy(dtype_of(h), h->call.x, newest, 1.0, elements(h));
    o->results = e->results;
    h->call.next = taken + 1;
    return status;
}

/* The rank is the only member: its contribution is the result, to the bit, also where it is late
 * for a version that another group has activated. */
static void outcome_alone(wagma_handle *h, mpi_version *v) {
    struct mpi_executor *e = h->mpi;
    wagma_outcome *o = &h->outcome;
    const double weight = h->call.weight;
    const int scales = !h->options->average || (e->out_of_place && !e->ordered);
    const int shows = !e->in_place && (e->ordered || e->out_of_place);
    const void *contribution = e->written ? e->written->data : h->call.x;
    void *out = shows ? v->result->data : h->call.x;
    v->shown = shows;
    o->weight = weight;
    o->merged = weight != 0;
    o->contributors_count = weight != 0;
    h->contributors[0] = h->rank;
    h->versions[0] = h->call.version;
    if (shows && e->ordered) {
        (void)carry(h); /* nobody is late here: nothing is carried any more */
        e->results[o->results_count++] = weight != 0 ? out : NULL;
        o->results = e->results;
    } else if (shows && weight != 0) {
        o->result = out;
    }
    if (weight == 0)
        return;
    if (scales && weight != 1)
        h->kernels->sum(dtype_of(h), out, &contribution, &weight, 1, 1.0, elements(h));
    else if (shows)
        h->kernels->divided_copy(dtype_of(h), out, contribution, 1.0, elements(h));
    if (shows && e->ordered && !e->out_of_place)
        h->kernels->divided_copy(dtype_of(h), h->call.x, out, 1.0, elements(h));
}

/* Quorum "all" where every result reaches every rank: it is x. */
static void show_x(wagma_handle *h) {
    h->mpi->results[0] = h->outcome.merged ? h->call.x : NULL;
    h->outcome.results = h->mpi->results;
    h->outcome.results_count = 1;
}

int mpi_outcome(wagma_handle *h, const struct activation_call *answer) {
    struct mpi_executor *e = h->mpi;
    wagma_outcome *o = &h->outcome;
    const uint64_t began = trace_begin(h->trace);
    mpi_version *v = mpi_version_find(e, answer->taken);
    int status = WAGMA_OK;
    o->late = answer->late;
    if (answer->late && !answer->merged) {
        o->weight = h->call.weight;
        h->stats.unmerged++;
    } else if (v->n == 1) {
        outcome_alone(h, v);
    } else if (e->ordered && !e->in_place) {
        status = outcome_ordered(h, answer->taken);
    } else {
        status = outcome_merged(h, v);
    }
    if (status != WAGMA_OK)
        return status;
    if (answer->late && answer->merged && h->options->missed == WAGMA_MISSED_FAST_FORWARD) {
        h->call.next = answer->taken + 1;
        o->skipped = answer->taken - h->call.version;
    }
    if (e->ordered && e->in_place)
        show_x(h);
    h->stats.late += o->late;
    trace_end(h->trace, TRACE_MERGE, began, answer->taken, -1, 0);
    mpi_block_put(e, &e->written, NULL);
    mpi_block_put(e, &e->lent, NULL);
    return WAGMA_OK;
}
