/* Quorum "all": nobody can be late, so sums go straight into the members' arrays.
 *
 * A call at version t:
 *   admit     the record of t - 2 may be overwritten, and the window has room
 *   publish   weight, and a small payload or where a large one lies
 *   gather    all members have published t or departed before it
 *   reduce    small: privately, from the records; everybody computes the same bits
 *             large: slice by slice into ALL members' arrays, each slice by whoever claims it
 *   drain     (large) all slices are done
 *   finish    this rank reads nothing of t any more
 *
 * Why no array or word changes under somebody who still uses it.
 *   Records: a rank writes its record of t + 2 over that of t after every member of its group of t
 *   has finished t (admit). Arriving at a later version implies having finished t.
 *   Arrays: those of t are touched only by slices of t, and only their owner overwrites them, after
 *   its own call returned, that is after all slices of t were done (drain). Who claims a slice has
 *   gathered, so every array is complete by then.
 *   Claims: the words of leader L serve t, t + 2, ...; they are stamped t + 2 by somebody who saw
 *   that L arrived at t + 2. L did so after every member of its group of t had finished t, so a
 *   slow member never finds the stamp of t replaced; were it replaced, it would only claim nothing.
 *   The leader of t is the first member that took part in t, which all members see alike, since a
 *   departed rank leaves its records as they are.
 *
 * Why nobody waits for ever: admit waits for ranks at lower versions, gather for ranks that have
 * not published t (they are at t and in admit, or lower), drain for ranks that compute. So the rank
 * at the lowest version, and among those the one in the earliest step, can always go on. A rank
 * that is dead or failed is found by the heartbeat. */
#include <stdlib.h>
#include <string.h>

#include "executor_inplace.h"

enum {
    START_PAUSES = 64,     /* of start(): 2 to 4 us of spinning */
    SLICE_MIN = 32 << 10,  /* bytes: small enough to share the work evenly ... */
    SLICE_MAX = 256 << 10, /* ... large enough that claiming costs nothing */
    SLICES_WANTED = 32,
    LINE = 64,
};

static int is_small(const wagma_segment *s) {
    return s->bytes_n <= SEGMENT_FLAT_MAX;
}
/* 1: the call moves much data. */
static int is_heavy(const wagma_handle *h) {
    return h->call.n > 1 && !is_small(h->segment);
}

static void cut_slices(struct inplace_executor *e, const wagma_segment *s) {
    uint64_t element = reduce_dtype_size((wagma_dtype)s->options.dtype);
    uint64_t bytes = s->bytes_n / SLICES_WANTED;
    bytes = bytes < SLICE_MIN ? SLICE_MIN : bytes > SLICE_MAX ? SLICE_MAX : bytes;
    if (bytes < s->bytes_n / INPLACE_SLICES_MAX + 1)
        bytes = s->bytes_n / INPLACE_SLICES_MAX + 1;
    bytes = (bytes + LINE - 1) / LINE * LINE;
    e->slice_count = bytes / element;
    e->slices = (int)((s->bytes_n + bytes - 1) / bytes);
}

int inplace_create(wagma_handle *h) {
    size_t size = (size_t)h->segment->size;
    struct inplace_executor *e = calloc(1, sizeof *e);
    if (e) {
        e->seen = malloc(size * sizeof *e->seen);
        e->group[0] = malloc(size * sizeof **e->group);
        e->group[1] = malloc(size * sizeof **e->group);
        e->missing = malloc(size * sizeof *e->missing);
    }
    h->inplace = e;
    if (!e || !e->seen || !e->group[0] || !e->group[1] || !e->missing) {
        inplace_free(h);
        return error_set(WAGMA_ENOMEM, "no memory for a handle of %zu ranks", size);
    }
    for (size_t r = 0; r < size; r++)
        e->seen[r] = -1;
    e->slowest = -1;
    cut_slices(e, h->segment);
    return WAGMA_OK;
}

void inplace_free(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    if (!e)
        return;
    free(e->seen);
    free(e->group[0]);
    free(e->group[1]);
    free(e->missing);
    free(e);
    h->inplace = NULL;
}

uint64_t inplace_bytes(const wagma_handle *h) {
    return segment_joined_bytes(h->segment) + (h->inplace->staged ? h->segment->bytes_n : 0);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Room for a copy of a private array, from its first use on. */
static int commit_stage(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    if (!e->staged && segment_commit_stage(h->segment, h->rank) != 0)
        return error_set(WAGMA_ENOSPC,
                         "no %llu bytes of shared memory for the copy of a private array: enlarge "
                         "/dev/shm, or pass the handle's shared array",
                         (unsigned long long)h->segment->bytes_n);
    e->staged = 1;
    return WAGMA_OK;
}

/* Copies x or says where it lies, and publishes. */
static int publish(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    wagma_segment *s = h->segment;
    int64_t t = h->call.version;
    inplace_record *record = inplace_record_of(s, h->rank, t);
    int parity = (int)(t & 1), status;
    record->weight = h->call.weight;
    record->where = 0;
    e->mine = h->call.x;
    if (h->call.n > 1 && is_small(s)) {
        memcpy(inplace_payload(s, record), h->call.x, s->bytes_n);
    } else if (h->call.n > 1) {
        if (h->call.x != segment_array(s, h->rank)) {
            if ((status = commit_stage(h)))
                return status;
            e->mine = segment_stage(s, h->rank);
            h->kernels->divided_copy((wagma_dtype)s->options.dtype, e->mine, h->call.x, 1,
                                     (size_t)s->options.count);
        }
        record->where = (uint64_t)(e->mine - segment_region(s, h->rank));
    }
    inplace_publish(s, h->rank, t, h->call.sync);
    memcpy(e->group[parity], h->call.members, (size_t)h->call.n * sizeof *h->call.members);
    e->group_n[parity] = h->call.n;
    e->group_version[parity] = t;
    return WAGMA_OK;
}

/* Notes who takes part, with which weight and payload; the same on all members. */
static void collect(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    const wagma_segment *s = h->segment;
    e->inputs = e->outputs = 0;
    e->leader = -1;
    e->divisor = 0;
    for (int k = 0; k < h->call.n; k++) {
        int q = h->call.members[k];
        if (e->seen[q] != h->call.version)
            continue; /* departed */
        inplace_record *record = inplace_record_of(s, q, h->call.version);
        void *payload = is_small(s) ? (void *)inplace_payload(s, record)
                                    : (void *)(segment_region(s, q) + record->where);
        if (e->leader < 0)
            e->leader = q;
        h->outputs[e->outputs++] = payload;
        if (record->weight == 0)
            continue;
        e->divisor += record->weight;
        h->contributors[e->inputs] = q;
        h->versions[e->inputs] = h->call.version;
        h->weights[e->inputs] = record->weight;
        h->inputs[e->inputs++] = payload;
    }
}

static double divisor_of(const wagma_handle *h) {
    return h->segment->options.average ? h->inplace->divisor : 1;
}

/* For versions that need no drain. All members get the same bits, and one that is alone its x. */
static void reduce_privately(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    const wagma_options *o = &h->segment->options;
    if (e->divisor == 0 || (e->outputs == 1 && (o->average || e->divisor == 1)))
        return;
    if (e->outputs == 1)
        h->inputs[0] = h->call.x;
    h->kernels->sum((wagma_dtype)o->dtype, h->call.x, h->inputs, h->weights, e->inputs,
                    divisor_of(h), (size_t)o->count);
}

/* Computes slices for everybody until none is left to claim. */
static void reduce_slices(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    const wagma_options *o = &h->segment->options;
    size_t element = reduce_dtype_size((wagma_dtype)o->dtype), at = 0;
    double divisor = divisor_of(h);
    for (int slice;
         (slice = inplace_claim(h->segment, e->leader, h->call.version, e->slices)) >= 0;) {
        size_t first = (size_t)slice * e->slice_count, left = (size_t)o->count - first;
        /* The pointers move along: slices are claimed in rising order. */
        size_t by = first * element - at;
        for (int k = 0; k < e->inputs; k++)
            h->inputs[k] = (const unsigned char *)h->inputs[k] + by;
        for (int k = 0; k < e->outputs; k++)
            h->outputs[k] = (unsigned char *)h->outputs[k] + by;
        at += by;
        h->kernels->sum_to_all((wagma_dtype)o->dtype, h->outputs, e->outputs, h->inputs, h->weights,
                               e->inputs, divisor, left < e->slice_count ? left : e->slice_count);
        if (inplace_complete(h->segment, e->leader, h->call.version, e->slices))
            wait_ring(h->segment, h->call.members, h->call.n, h->rank);
    }
    inplace_end_slicing(h->segment, h->rank, h->call.version);
}

static void fill_outcome(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    h->outcome.skipped = 0;
    h->outcome.late = 0;
    h->outcome.merged = e->divisor != 0;
    h->outcome.weight = e->divisor;
    h->outcome.contributors_count = e->inputs;
    h->outcome.contributors = h->contributors;
    h->outcome.versions = h->versions;
    if (h->segment->options.late != WAGMA_LATE_STALE) { /* every result reaches every rank: this */
        e->result = e->divisor != 0 ? h->call.x : NULL;
        h->outcome.results = &e->result;
        h->outcome.results_count = 1;
    }
}

static void begin_steps(wagma_handle *h) {
    h->inplace->step = INPLACE_ADMIT;
    h->inplace->cursor = 0;
}

/* These go on where the call was left, and return WAGMA_INPROGRESS where a wait lasts more than
 * `most_pauses`. */
static int publish_when_admitted(wagma_handle *h, uint32_t most_pauses) {
    struct inplace_executor *e = h->inplace;
    wagma_segment *s = h->segment;
    int status;
    if (e->step != INPLACE_ADMIT)
        return WAGMA_OK;
    if ((status = inplace_wait(h, most_pauses)) || (status = publish(h)))
        return status;
    e->step = INPLACE_GATHER;
    e->cursor = 0;
    if (s->options.group_size < s->size) /* one group of all never waits for its window */
        wait_ring_window(s, h->rank);
    /* The last one to come wakes the others, who have nothing to do before. */
    if (h->call.n > 1 && inplace_holds(h) > 0)
        wait_ring(s, h->call.members, h->call.n, h->rank);
    return WAGMA_OK;
}

static int complete(wagma_handle *h, uint32_t most_pauses) {
    struct inplace_executor *e = h->inplace;
    wagma_segment *s = h->segment;
    int status;
    if (e->step == INPLACE_GATHER) {
        if ((status = inplace_wait(h, most_pauses)))
            return status;
        collect(h);
        if (is_small(s) || e->outputs == 1 || e->divisor == 0) {
            reduce_privately(h);
        } else {
            e->step = INPLACE_DRAIN;
            reduce_slices(h);
        }
    }
    if (e->step == INPLACE_DRAIN) {
        if ((status = inplace_wait(h, most_pauses)))
            return status;
        if (e->mine != h->call.x)
            h->kernels->divided_copy((wagma_dtype)s->options.dtype, h->call.x, e->mine, 1,
                                     (size_t)s->options.count);
    }
    inplace_finish_version(s, h->rank, h->call.version);
    if (s->options.group_size < s->size) /* with groups, t + 2 may wait for this */
        wait_ring(s, h->call.members, h->call.n, h->rank);
    fill_outcome(h);
    return WAGMA_OK;
}

static int advance(wagma_handle *h, uint32_t most_pauses) {
    const int status = publish_when_admitted(h, most_pauses);
    return status != WAGMA_OK ? status : complete(h, most_pauses);
}

int inplace_start(wagma_handle *h) {
    begin_steps(h);
    if (is_heavy(h)) {
        if (h->call.x != segment_array(h->segment, h->rank))
            return WAGMA_INPROGRESS; /* publishing copies */
        const int status = publish_when_admitted(h, START_PAUSES);
        return status != WAGMA_OK ? status : WAGMA_INPROGRESS;
    }
    return advance(h, START_PAUSES);
}

int inplace_post(wagma_handle *h) {
    begin_steps(h);
    const int status = publish_when_admitted(h, INPLACE_NO_PAUSE);
    return status != WAGMA_OK ? status : WAGMA_INPROGRESS;
}

int inplace_poll(wagma_handle *h) {
    return advance(h, INPLACE_NO_PAUSE);
}

int inplace_finish(wagma_handle *h) {
    return advance(h, INPLACE_ANY_PAUSES);
}
