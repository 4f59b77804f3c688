/* Quorum "all": no rank can be late, so sums go straight into the members' arrays.
 *
 * protocol/quorum_all.c is the protocol, one rank's call as a state machine; what it asks for is
 * done here:
 *   write    weight, and a small payload or where a large one lies
 *   private  (small) the sum of the others' records and x (small.c)
 *   reduce   (large) slice by slice into ALL members' arrays, by the ranks that claim them;
 *            chunk by chunk if one of them is private (chunks.c)
 *   deliver  (large) all slices are done */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/round_up.h"
#include "shm/quorum_all/executor.h"

enum {
    SLICE_MIN = 32 << 10,  /* bytes: small enough to share the work evenly ... */
    SLICE_MAX = 256 << 10, /* ... large enough that claiming costs nothing */
    SLICES_WANTED = 32,
};

/* 1: the call moves much data. */
static int is_heavy(const wagma_handle *h) {
    return h->call.n > 1 && !quorum_all_is_small(handle_segment(h));
}

/* Slices of a version, and the elements of each. */
static uint32_t cut_slices(const wagma_segment *s, size_t *count) {
    uint64_t element = reduce_dtype_size((wagma_dtype)s->options.dtype);
    uint64_t bytes = s->bytes_n / SLICES_WANTED;
    bytes = bytes < SLICE_MIN ? SLICE_MIN : bytes > SLICE_MAX ? SLICE_MAX : bytes;
    if (bytes < s->bytes_n / QUORUM_ALL_SLICES_MAX + 1)
        bytes = s->bytes_n / QUORUM_ALL_SLICES_MAX + 1;
    bytes = round_up(bytes, QUORUM_ALL_LINE);
    *count = bytes / element;
    return (uint32_t)((s->bytes_n + bytes - 1) / bytes);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int no_space(uint64_t bytes) {
    return error_set(WAGMA_ENOSPC,
                     "no %llu bytes of shared memory to pass on a private array: enlarge /dev/shm, "
                     "or pass the handle's shared array",
                     (unsigned long long)bytes);
}

/* Says where a large x lies. Of a private one there is a copy in the segment if others may need it
 * while this rank is elsewhere; otherwise it passes in chunks. Memory for either is committed when
 * it is first used. */
static int place(wagma_handle *h, quorum_all_record *record) {
    struct quorum_all_executor *e = h->state;
    wagma_segment *s = handle_segment(h);
    chunks_introduce(h, record);
    if (h->call.x == segment_array(s, h->rank)) {
        record->where = s->o_array;
    } else if (e->posted) {
        if (!e->staged && segment_commit_stage(s, h->rank) != 0)
            return no_space(s->bytes_n);
        e->staged = 1;
        e->mine = segment_stage(s, h->rank);
        const uint64_t began = trace_begin(h->trace);
        h->kernels->divided_copy((wagma_dtype)s->options.dtype, e->mine, h->call.x, 1,
                                 (size_t)s->options.count);
        trace_end(h->trace, TRACE_WRITE, began, h->call.version, -1, 0);
        record->where = s->o_stage;
    } else {
        if (!e->chunked && segment_commit_chunks(s, h->rank) != 0)
            return no_space(s->chunks_bytes);
        e->chunked = 1;
        chunks_describe(h, record);
    }
    return WAGMA_OK;
}

/* Copies a small x or says where a large one lies. */
static int write_record(wagma_handle *h) {
    struct quorum_all_executor *e = h->state;
    wagma_segment *s = handle_segment(h);
    quorum_all_record *record = quorum_all_record_of(s, h->rank, (int)(h->call.version & 1));
    record->weight = h->call.weight;
    record->where = QUORUM_ALL_NOWHERE;
    e->mine = h->call.x;
    if (is_heavy(h))
        return place(h, record);
    if (h->call.n > 1)
        memcpy(quorum_all_payload(s, record), h->call.x, s->bytes_n);
    return WAGMA_OK;
}

/* Return rank q's contribution; NULL: it is in the rank's own memory. */
static void *payload_of(const wagma_handle *h, int q) {
    const wagma_segment *s = handle_segment(h);
    quorum_all_record *record = quorum_all_record_of(s, q, (int)(h->call.version & 1));
    if (quorum_all_is_small(s))
        return quorum_all_payload(s, record);
    return record->where == QUORUM_ALL_NOWHERE ? NULL : segment_region(s, q) + record->where;
}

/* Slices, or chunks if an array is private. */
static void begin_sharing(wagma_handle *h) {
    struct quorum_all_executor *e = h->state;
    struct quorum_all_local *l = &e->local;
    int outputs = 0;
    for (int k = 0; k < l->contributors_n; k++)
        h->inputs[k] = payload_of(h, l->contributors[k]);
    chunks_clear(&e->chunks);
    for (int k = 0; k < l->present_n; k++) {
        void *payload = payload_of(h, l->present[k]);
        if (payload)
            h->outputs[outputs++] = payload;
        else
            chunks_add_owner(&e->chunks, l->present[k]);
    }
    e->at = 0;
    if (outputs == l->present_n)
        return;
    chunks_begin(h, outputs);
    quorum_all_pass_slices(l);
    e->chunking = 1;
}

/* Computes slice local.s for everybody. The first one is the end of the array: what was written
 * last is still in the cache, and is read before other slices take its place there. */
static void reduce_slice(wagma_handle *h) {
    struct quorum_all_executor *e = h->state;
    const struct quorum_all_local *l = &e->local;
    const wagma_options *o = &h->options;
    const size_t first = (e->context.slices - 1 - l->s) * e->slice_count;
    const size_t left = (size_t)o->count - first;
    const uint64_t began = trace_begin(h->trace);
    /* The pointers move along. */
    const ptrdiff_t by =
        ((ptrdiff_t)first - (ptrdiff_t)e->at) * (ptrdiff_t)reduce_dtype_size((wagma_dtype)o->dtype);
    for (int k = 0; k < l->contributors_n; k++)
        h->inputs[k] = (const unsigned char *)h->inputs[k] + by;
    for (int k = 0; k < l->present_n; k++)
        h->outputs[k] = (unsigned char *)h->outputs[k] + by;
    e->at = first;
    h->kernels->sum_to_all((wagma_dtype)o->dtype, h->outputs, l->present_n, h->inputs, h->weights,
                           l->contributors_n, quorum_all_divisor(h),
                           left < e->slice_count ? left : e->slice_count);
    trace_end(h->trace, TRACE_REDUCE, began, h->call.version, -1, (int)l->s);
}

/* x = the result, where it appeared in the stage. */
static void deliver(wagma_handle *h) {
    const wagma_options *o = &h->options;
    const unsigned char *mine = quorum_all_of(h)->mine;
    if (mine == h->call.x)
        return;
    const uint64_t began = trace_begin(h->trace);
    h->kernels->divided_copy((wagma_dtype)o->dtype, h->call.x, mine, 1, (size_t)o->count);
    trace_end(h->trace, TRACE_MERGE, began, h->call.version, -1, 0);
}

static void fill_outcome(wagma_handle *h) {
    struct quorum_all_executor *e = h->state;
    const struct quorum_all_local *l = &e->local;
    for (int k = 0; k < l->contributors_n; k++)
        h->versions[k] = l->t;
    h->outcome.contributors_count = l->contributors_n;
    merge_outcome(h, l->divisor);
    if (h->policy.ordered)
        merge_show_x(h, &e->result);
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* The record is published: `action` is what comes next. */
static void ring_after_publishing(wagma_handle *h, enum quorum_all_action action) {
    wagma_segment *s = handle_segment(h);
    quorum_all_of(h)->publishing = 0;
    if (trace_is_on(h->trace)) /* the last events of a handle need not say it with every call */
        trace_now(h->trace, TRACE_ARRIVAL, h->call.version, -1, 0);
    if (s->options.group_size < s->size) /* one group of all never waits for its window */
        wait_ring_window(s, h->rank);
    /* The last rank to arrive wakes the others, which have nothing to do before. */
    if (h->call.n > 1 && (action == QUORUM_ALL_PRIVATE || action == QUORUM_ALL_SHARE))
        wait_ring(s, h->call.members, h->call.n, h->rank);
}

/* Does what protocol/quorum_all.c asks for until the call is over (WAGMA_OK), an error, or a wait
 * that lasts more than `most_pauses` (WAGMA_INPROGRESS). With `publish_only` it ends
 * (WAGMA_INPROGRESS) where the record is published. Goes on where the call was left. */
static int advance(wagma_handle *h, uint32_t most_pauses, int publish_only) {
    struct quorum_all_executor *e = h->state;
    wagma_segment *s = handle_segment(h);
    for (int status;;) {
        if ((status = handle_check_open(h)) != WAGMA_OK)
            return status;
        enum quorum_all_action action = e->held;
        e->held = QUORUM_ALL_STEP;
        if (e->chunking && (status = chunks_run(h, most_pauses)) != WAGMA_OK)
            return status;
        e->chunking = 0;
        if (action == QUORUM_ALL_STEP)
            action = quorum_all_run(&e->context, &e->local);
        if (e->publishing) {
            ring_after_publishing(h, action);
            if (publish_only) {
                e->held = action == QUORUM_ALL_WAIT ? QUORUM_ALL_STEP : action;
                return WAGMA_INPROGRESS;
            }
        }
        if (action == QUORUM_ALL_WAIT &&
            (status = quorum_all_wait(h, most_pauses, &action)) != WAGMA_OK)
            return status;
        switch (action) {
        case QUORUM_ALL_WRITE:
            if ((status = write_record(h)) != WAGMA_OK)
                return status;
            e->publishing = 1;
            break;
        case QUORUM_ALL_PRIVATE: quorum_all_reduce_privately(h); break;
        case QUORUM_ALL_SHARE: begin_sharing(h); break;
        case QUORUM_ALL_REDUCE: reduce_slice(h); break;
        case QUORUM_ALL_COMPLETE:
            trace_now(h->trace, TRACE_COMPLETE, h->call.version, -1, 0);
            wait_ring(s, h->call.members, h->call.n, h->rank);
            break;
        case QUORUM_ALL_DELIVER: deliver(h); break;
        case QUORUM_ALL_RETURN:
            /* With groups, t + 2 may wait for this; the next chunks do. */
            if (s->options.group_size < s->size || e->chunks.unrung)
                wait_ring(s, h->call.members, h->call.n, h->rank);
            fill_outcome(h);
            if (h->call.n > 1)
                quorum_all_fetch_next_record(h);
            return WAGMA_OK;
        case QUORUM_ALL_MISMATCH:
        case QUORUM_ALL_PEER: return quorum_all_error(h, action);
        case QUORUM_ALL_STEP:
        case QUORUM_ALL_WAIT:
        case QUORUM_ALL_SOUGHT: break;
        }
    }
}

static void begin(wagma_handle *h, int posted) {
    struct quorum_all_executor *e = h->state;
    e->posted = posted;
    e->chunking = 0;
    e->chunks.unrung = 0;
    e->held = QUORUM_ALL_STEP;
    e->publishing = 0;
    quorum_all_begin(&e->local, h->call.version, h->call.sync, h->call.members, h->call.n, posted);
}

static int start(wagma_handle *h) {
    begin(h, 0);
    return advance(h, WAIT_START_PAUSES, is_heavy(h));
}

/* This rank has come last, and those who have posted may compute for long: it reduces as many
 * slices as if all of them were waiting, and goes away between two of them. What is left, the first
 * one that waits shares with the others, as ever. */
static void reduce_share(wagma_handle *h) {
    struct quorum_all_executor *e = h->state;
    struct quorum_all_local *l = &e->local;
    begin_sharing(h);
    e->held = QUORUM_ALL_STEP;
    if (e->chunking)
        return; /* an array is private: chunks need their owners */
    uint32_t left = (e->context.slices + (uint32_t)l->present_n - 1) / (uint32_t)l->present_n;
    while (left > 0 || !quorum_all_is_between_slices(l)) {
        const enum quorum_all_action action = quorum_all_step(&e->context, l);
        if (action == QUORUM_ALL_REDUCE) {
            reduce_slice(h);
            left--;
        } else if (action == QUORUM_ALL_COMPLETE) {
            trace_now(h->trace, TRACE_COMPLETE, h->call.version, -1, 0);
            wait_ring(handle_segment(h), h->call.members, h->call.n, h->rank);
        } else if (action != QUORUM_ALL_STEP) { /* the others were quicker */
            e->held = action == QUORUM_ALL_WAIT ? QUORUM_ALL_STEP : action;
            return;
        }
    }
    quorum_all_rest(l);
    (void)quorum_all_step(&e->context, l);
}

static int post(wagma_handle *h) {
    begin(h, 1);
    const int status = advance(h, WAIT_NO_PAUSE, 1);
    if (status == WAGMA_INPROGRESS && quorum_all_of(h)->held == QUORUM_ALL_SHARE)
        reduce_share(h);
    return status;
}

static int poll(wagma_handle *h) {
    return advance(h, WAIT_NO_PAUSE, 0);
}

static int finish(wagma_handle *h) {
    return advance(h, WAIT_ANY_PAUSES, 0);
}

/* ---- the interface -------------------------------------------------------------------------- */

static void destroy(wagma_handle *h) {
    struct quorum_all_executor *e = h->state;
    if (!e)
        return;
    free(e->local.seen);
    free(e->local.group[0]);
    free(e->local.group[1]);
    free(e->local.present);
    free(e->local.missing);
    chunks_free(&e->chunks);
    handle_segment_free(h);
}

static uint64_t bytes(const wagma_handle *h) {
    const struct quorum_all_executor *e = h->state;
    const wagma_segment *s = handle_segment(h);
    return segment_joined_bytes(s) + (e->staged ? s->bytes_n : 0) +
           (e->chunked ? s->chunks_bytes : 0);
}

static int make(wagma_handle *h, const struct executor_request *request) {
    wagma_segment *s = request->segment;
    size_t size = (size_t)s->size;
    struct quorum_all_executor *e = h->state;
    struct quorum_all_local *l = &e->local;
    l->seen = malloc(size * sizeof *l->seen);
    l->group[0] = malloc(size * sizeof **l->group);
    l->group[1] = malloc(size * sizeof **l->group);
    l->present = malloc(size * sizeof *l->present);
    l->missing = malloc(size * sizeof *l->missing);
    const int has_chunks = chunks_create(&e->chunks, s);
    if (!l->seen || !l->group[0] || !l->group[1] || !l->present || !l->missing || !has_chunks)
        return error_set(WAGMA_ENOMEM, "no memory for a handle of %zu ranks", size);
    l->contributors = h->contributors;
    l->weights = h->weights;
    e->context = (struct quorum_all_context){
        .memory = (struct quorum_all_memory *)s,
        .rank = h->rank,
        .size = s->size,
        .window = s->options.window,
        .slices = quorum_all_is_small(s) ? 0 : cut_slices(s, &e->slice_count),
    };
    quorum_all_init(&e->context, l);
    return WAGMA_OK;
}

static int create(wagma_handle *h, const struct executor_request *request) {
    return handle_segment_create(h, request, sizeof(struct quorum_all_executor), make);
}

static const char *fits(const struct executor_request *request) {
    return policy_of(request->options).in_place ? handle_segment_fits(request)
                                                : "it needs the quorum of all members";
}

const struct executor shm_quorum_all_executor = {
    .name = "shm/quorum_all",
    .fits = fits,
    .create = create,
    .calls = {HANDLE_SEGMENT_CALLS, .start = start, .post = post, .poll = poll, .finish = finish,
              .array = handle_segment_array, .bytes = bytes, .close = handle_segment_close,
              .free = destroy},
};
