/* See exchange.h, and exchange_state.h for what is where. */
#include "messages/exchange_state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- memory ---------------------------------------------------------------------------------- */

static int no_memory(size_t bytes) {
    return error_set(WAGMA_ENOMEM, "no memory for an exchange: %zu bytes", bytes);
}

/* Arrays by member. */
static int make_room(struct exchange_pool *pool, struct exchange *e, int n, int sync) {
    if (n > e->members_room) {
        free(e->members);
        free(e->records);
        free(e->attachments);
        free(e->inputs);
        free(e->weights);
        e->members_room = 0;
        e->members = malloc((size_t)n * sizeof *e->members);
        e->records = malloc((size_t)n * sizeof *e->records);
        e->inputs = malloc((size_t)n * sizeof *e->inputs);
        e->weights = malloc((size_t)n * sizeof *e->weights);
        e->attachments = NULL;
        if (!e->members || !e->records || !e->inputs || !e->weights)
            return no_memory((size_t)n * sizeof *e->records);
        e->members_room = n;
    }
    e->attached = sync ? pool->attached : 0;
    if (e->attached > 0 && !e->attachments) {
        e->attachments = malloc((size_t)e->members_room * pool->attached);
        if (!e->attachments)
            return no_memory((size_t)e->members_room * pool->attached);
    }
    return WAGMA_OK;
}

static int make_steps(struct exchange *e, schedule_algorithm algorithm, int n) {
    const int steps = schedule_steps(algorithm, n);
    if (steps <= e->steps_room)
        return WAGMA_OK;
    free(e->schedule.step);
    free(e->transfers);
    e->steps_room = 0;
    e->schedule.step = malloc((size_t)steps * sizeof *e->schedule.step);
    e->transfers = malloc((size_t)steps * sizeof *e->transfers);
    if (!e->schedule.step || !e->transfers)
        return no_memory((size_t)steps * sizeof *e->transfers);
    e->steps_room = steps;
    return WAGMA_OK;
}

static void free_exchange(struct exchange *e) {
    free(e->members);
    free(e->records);
    free(e->attachments);
    free(e->inputs);
    free(e->weights);
    free(e->schedule.step);
    free(e->transfers);
    free(e->early);
    free(e);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void put(struct exchange_list *list, struct exchange *e) {
    e->next = NULL;
    if (list->last)
        list->last->next = e;
    else
        list->first = e;
    list->last = e;
}

static struct exchange *take(struct exchange_list *list) {
    struct exchange *e = list->first;
    if (e) {
        list->first = e->next;
        if (!list->first)
            list->last = NULL;
    }
    return e;
}

static struct exchange **place_of(const struct exchange_pool *pool, int64_t version) {
    struct exchange **place = &pool->table[(uint64_t)version & pool->table_mask];
    while (*place && (*place)->start.version != version)
        place = &(*place)->next;
    return place;
}

struct exchange *exchange_announce(struct exchange_pool *pool, int64_t version) {
    struct exchange **place = place_of(pool, version);
    if (*place)
        return *place;
    struct exchange *e = take(&pool->free);
    if (!e) {
        e = calloc(1, sizeof *e);
        if (!e) {
            no_memory(sizeof *e);
            return NULL;
        }
        e->next_made = pool->made;
        pool->made = e;
    }
    e->start.version = version;
    e->next = NULL;
    *place = e;
    return e;
}

static void queue(struct exchange_pool *pool, struct exchange *e) {
    e->queued = 1;
    e->next_work = NULL;
    if (pool->work)
        pool->work_last->next_work = e;
    else
        pool->work = e;
    pool->work_last = e;
}

void exchange_mark(struct exchange_pool *pool, struct exchange *e, uint32_t phases) {
    e->dirty |= phases;
    if (!e->queued && e->begun)
        queue(pool, e);
}

/* ---- the pool -------------------------------------------------------------------------------- */

struct exchange_pool *exchange_pool_create(wagma_transport *transport, const wagma_options *options,
                                           const reduce_kernels *kernels, arena *memory,
                                           size_t attached) {
    const int phases = schedule_phases(options->size);
    const int64_t tags = transport->tags / phases, needed = 3 * (options->window + 1);
    if (tags < needed) {
        error_set(WAGMA_EINVAL,
                  "window is %" PRId64 ": %s has %d tags, of which a version of %d ranks needs %d, "
                  "enough for a window of %" PRId64,
                  options->window, transport->name, transport->tags, options->size, phases,
                  tags / 3 - 1);
        return NULL;
    }
    if (attached > exchange_attached_most()) {
        error_set(WAGMA_EINVAL, "attachments of %zu bytes: a control message holds %zu", attached,
                  exchange_attached_most());
        return NULL;
    }
    struct exchange_pool *pool = calloc(1, sizeof *pool);
    uint64_t places = 1;
    while (places < (uint64_t)needed)
        places *= 2;
    if (pool)
        pool->table = calloc(places, sizeof(*pool->table));
    if (!pool || !pool->table) {
        free(pool);
        no_memory(places * sizeof(struct exchange *));
        return NULL;
    }
    pool->transport = transport;
    pool->kernels = kernels;
    pool->arena = memory;
    pool->dtype = (wagma_dtype)options->dtype;
    pool->count = (size_t)options->count;
    pool->attached = attached;
    pool->chunk = (size_t)options->schedule_chunk;
    pool->limits = (schedule_limits){.switch_bytes = (size_t)options->schedule_switch,
                                     .part = (size_t)options->schedule_part,
                                     .direct = options->schedule_direct};
    pool->tags = tags;
    pool->phases = phases;
    pool->table_mask = places - 1;
    return pool;
}

void exchange_pool_trace(struct exchange_pool *pool, struct trace *trace) {
    pool->trace = trace;
}

void exchange_pool_free(struct exchange_pool *pool) {
    if (!pool)
        return;
    for (struct exchange *e = pool->made, *next; e; e = next) {
        next = e->next_made;
        free_exchange(e);
    }
    free(pool->table);
    free(pool);
}

/* ---- one exchange ---------------------------------------------------------------------------- */

static schedule_algorithm algorithm_for(const struct exchange_pool *pool, int n) {
    return schedule_choose(n, pool->count * reduce_dtype_size(pool->dtype), &pool->limits);
}

int exchange_begin(struct exchange_pool *pool, const exchange_start *start, struct exchange **out) {
    const schedule_algorithm algorithm = algorithm_for(pool, start->n);
    struct exchange *e = exchange_announce(pool, start->version);
    int status;
    if (!e)
        return WAGMA_ENOMEM;
    if (e->begun)
        return error_set(WAGMA_EINVAL, "version %" PRId64 " is exchanged already", start->version);
    if ((status = make_room(pool, e, start->n, start->sync)) ||
        (status = make_steps(e, algorithm, start->n)))
        return status;
    e->start = *start;
    e->dirty = 0;
    memcpy(e->members, start->members, (size_t)start->n * sizeof *e->members);
    e->start.members = e->members;
    e->records[start->index] = start->mine;
    if (e->attached > 0)
        memcpy(e->attachments + (size_t)start->index * e->attached, start->attachment, e->attached);
    schedule_make(&e->schedule, algorithm, start->n, start->index, pool->count);
    if ((status = exchange_lay_out(pool, e)))
        return status;
    e->begun = 1;
    *out = e;
    exchange_mark(pool, e, (UINT32_C(1) << e->schedule.phases) - 1);
    if ((status = exchange_replay(pool, e)))
        return status;
    return exchange_advance(pool, e);
}

/* What a member does not keep it sends at once. */
size_t exchange_first(const struct exchange_pool *pool, int n, int index) {
    const size_t end = schedule_kept(algorithm_for(pool, n), n, index, pool->count).end;
    return end < pool->count ? end : 0;
}

void exchange_see_parts(struct exchange_pool *pool, struct exchange *e) {
    if (!e->start.coming)
        return;
    if (parts_whole(e->start.coming))
        e->start.coming = NULL;
    exchange_mark(pool, e, 1);
}

/* End an exchange that has nothing left to do: the next exchange_poll() returns it. */
static void end(struct exchange_pool *pool, struct exchange *e) {
    struct exchange **place = place_of(pool, e->start.version);
    *place = e->next;
    put(&pool->ended, e);
}

/* Goes on with the exchanges that have something to do. WAGMA_OK or an error. */
static int work(struct exchange_pool *pool) {
    struct exchange *e = pool->work;
    pool->work = pool->work_last = NULL; /* what is queued from now on has its turn next time */
    for (struct exchange *next; e; e = next) {
        next = e->next_work;
        const int status = exchange_advance(pool, e); /* still queued: marks do nothing more */
        if (status != WAGMA_OK)
            return status;
        e->queued = 0;
        if (e->left == 0)
            end(pool, e);
        else if (e->dirty != 0)
            queue(pool, e);
    }
    return WAGMA_OK;
}

/* Before and after what the transport does, which may be copying for long: what a header made
 * ready is not to wait for that. */
int exchange_poll(struct exchange_pool *pool, exchange_end *ends, int most) {
    transport_completion done[32];
    int status = work(pool);
    if (status != WAGMA_OK)
        return status;
    const int n =
        pool->transport->calls->poll_data(pool->transport, done, (int)(sizeof done / sizeof *done));
    if (n < 0)
        return n;
    for (int k = 0; k < n; k++)
        exchange_over(pool, done[k].context, (int)(done[k].cookie >> 1 & 0x7fffffff),
                      (int)(done[k].cookie & 1), (uint32_t)(done[k].cookie >> 32));
    if (n > 0 && (status = work(pool)) != WAGMA_OK)
        return status;
    int ended = 0;
    for (; ended < most && pool->ended.first; ended++) {
        struct exchange *e = take(&pool->ended);
        ends[ended] = (exchange_end){e->start.version, e};
    }
    return ended;
}

const exchange_record *exchange_records(const struct exchange *e, const int32_t **members, int *n) {
    *members = e->members;
    *n = e->schedule.n;
    return e->records;
}

const void *exchange_attachment(const struct exchange *e, int member) {
    return e->attached > 0 ? e->attachments + (size_t)member * e->attached : NULL;
}

void exchange_release(struct exchange_pool *pool, struct exchange *e) {
    e->begun = 0;
    e->next = pool->free.first; /* the one that was used last is in the caches */
    pool->free.first = e;
    if (!pool->free.last)
        pool->free.last = e;
}

/* Data of a step's peer is missing. Where the chunk that is summed next has come, it is not: later
 * ones have no room until other members' data has come, too. */
static int lacks(const struct exchange *e, int p, const transfer *t) {
    const uint32_t used = phase_is_reduce(e, p) ? e->phase[p].reduced : t->in.done;
    return t->hears_left > 0 || (t->in.done < t->in.chunks && t->in.done <= used);
}

int exchange_missing(const struct exchange *e) {
    for (int p = 0; p < e->schedule.phases && !e->start.coming; p++)
        for (int i = e->schedule.phase[p].begin; i < e->schedule.phase[p].end; i++)
            if (lacks(e, p, &e->transfers[i]))
                return e->members[e->schedule.step[i].peer];
    return -1;
}

uint64_t exchange_moves(const struct exchange_pool *pool) {
    return pool->moves;
}

void exchange_counts(const struct exchange_pool *pool, int64_t *sent, int64_t *received) {
    *sent = pool->sent;
    *received = pool->received;
}
