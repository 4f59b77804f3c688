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
 * slow member never finds the stamp of t replaced; were it replaced, it would only claim nothing.
 * The leader of t is the first member that took part in t, which all members see alike, since a
 *   departed rank leaves its records as they are.
 *
 * Why nobody waits for ever: admit waits for ranks at lower versions, gather for ranks that have
 * not published t (they are at t and in admit, or lower), drain for ranks that compute. So the rank
 * at the lowest version, and among those the one in the earliest step, can always go on. A rank
 * that is dead or failed is found by the heartbeat. */
#include <stdlib.h>
#include <string.h>

#include "handle.h"
#include "inplace.h"

enum {
    START_PAUSES = 64,     /* of start(): 2 to 4 us of spinning */
    SLICE_MIN = 32 << 10,  /* bytes: small enough to share the work evenly ... */
    SLICE_MAX = 256 << 10, /* ... large enough that claiming costs nothing */
    SLICES_WANTED = 32,
    LINE = 64,
};

enum step { ADMIT, GATHER, DRAIN };

struct inplace_executor {
    /* the call in progress */
    enum step step;
    int cursor; /* members before it need not be waited for, in this step */
    int leader;
    int inputs;          /* in h->inputs, h->weights */
    int outputs;         /* in h->outputs */
    double divisor;      /* sum of the weights */
    unsigned char *mine; /* where this rank's result of a large version appears */
    /* remembered */
    int64_t *seen;     /* [P] newest version that each rank was seen to have arrived at */
    int32_t *group[2]; /* [P] members of the newest version of each parity */
    int group_n[2];
    int64_t group_version[2];
    int64_t slowest;  /* all ranks that have not departed have arrived at it */
    int32_t *missing; /* [P] scratch */
    int slices;
    size_t slice_count; /* elements */
    int staged;         /* the stage is committed */
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

/* ---- conditions: 1 holds, 0 not yet, negative error; cheap to evaluate again -------------------
 */

static int admitted(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    const wagma_segment *s = h->segment;
    int64_t t = h->call.version;
    int parity = (int)(t & 1);
    for (; e->cursor < e->group_n[parity]; e->cursor++) {
        int q = e->group[parity][e->cursor];
        if (q != h->rank && e->seen[q] <= e->group_version[parity] &&
            !inplace_has_finished(s, q, e->group_version[parity]))
            return 0;
    }
    if (t - e->slowest > s->options.window)
        e->slowest = inplace_slowest(s);
    return t - e->slowest <= s->options.window;
}

static int error_mismatch(const wagma_handle *h, int q) {
    int64_t version = h->call.version;
    uint64_t stamp = atomic_load(&inplace_record_of(h->segment, q, version)->stamp);
    static const char *const names[] = {"without sync", "with sync"};
    return error_set(
        WAGMA_EMISMATCH,
        "rank %d is at version %lld %s, but rank %d came to version %lld %s: all ranks "
        "have to call sync at the same version",
        h->rank, (long long)version, names[h->call.sync != 0], q,
        (long long)inplace_stamp_version(stamp), names[stamp & 1]);
}

static int gathered(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    for (; e->cursor < h->call.n; e->cursor++) {
        int q = h->call.members[e->cursor];
        switch (inplace_look(h->segment, q, h->call.version, h->call.sync)) {
        case INPLACE_AWAITED:
            return 0;
        case INPLACE_MISMATCH:
            return error_mismatch(h, q);
        case INPLACE_HERE:
            e->seen[q] = h->call.version;
            break;
        case INPLACE_DEPARTED:
            break;
        }
    }
    return 1;
}

static int drained(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    return inplace_all_done(h->segment, e->leader, h->call.version, e->slices);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static int (*const condition_of[])(wagma_handle *) = {
    [ADMIT] = admitted, [GATHER] = gathered, [DRAIN] = drained};

/* The ranks that keep the current step from being over. */
static int list_missing(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    const wagma_segment *s = h->segment;
    int64_t t = h->call.version;
    int n = 0, parity = (int)(t & 1);
    switch (e->step) {
    case ADMIT:
        for (int k = e->cursor; k < e->group_n[parity]; k++)
            if (!inplace_has_finished(s, e->group[parity][k], e->group_version[parity]))
                e->missing[n++] = e->group[parity][k];
        for (int q = 0; q < s->size && n == 0; q++)
            if ((int64_t)atomic_load(&segment_sync(s, q)->arrive) - 1 < t - s->options.window)
                e->missing[n++] = q;
        break;
    case GATHER:
        for (int k = e->cursor; k < h->call.n; k++)
            if (inplace_look(s, h->call.members[k], t, h->call.sync) == INPLACE_AWAITED)
                e->missing[n++] = h->call.members[k];
        break;
    default: /* a slice that is not done is held by somebody who still claims */
        for (int k = 0; k < h->call.n; k++)
            if (e->seen[h->call.members[k]] == t && !inplace_has_sliced(s, h->call.members[k], t))
                e->missing[n++] = h->call.members[k];
    }
    return n;
}

static int look_for_trouble(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    const char *phase = e->step == DRAIN   ? "slices"
                        : e->step == ADMIT ? "window"
                        : h->call.sync     ? "sync"
                                           : "quorum";
    int n = list_missing(h);
    return handle_heartbeat(h, phase, e->missing, n, n);
}

/* Waits until the current step's condition holds, or for so many pauses: then WAGMA_INPROGRESS. */
static int wait_for_step(wagma_handle *h, uint32_t most_pauses) {
    int (*condition)(wagma_handle *) = condition_of[h->inplace->step];
    int holds = condition(h), status = WAGMA_OK;
    if (holds)
        return holds < 0 ? holds : WAGMA_OK;
    if (most_pauses && h->wait.spin <= 0)
        return WAGMA_INPROGRESS; /* the first pause would already give the core away */
    wait_begin(&h->wait, h->segment, h->rank);
    while (status == WAGMA_OK && (holds = condition(h)) == 0) {
        if (most_pauses && h->wait.pauses >= most_pauses)
            status = WAGMA_INPROGRESS;
        else if (wait_pause(&h->wait, 0) == WAIT_HEARTBEAT)
            status = look_for_trouble(h);
    }
    h->call.waited += wait_end(&h->wait);
    return holds < 0 ? holds : status;
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
    const struct inplace_executor *e = h->inplace;
    h->outcome.skipped = 0;
    h->outcome.late = 0;
    h->outcome.merged = e->divisor != 0;
    h->outcome.weight = e->divisor;
    h->outcome.contributors_count = e->inputs;
    h->outcome.contributors = h->contributors;
    h->outcome.versions = h->versions;
}

/* From the first step on; at most so many pauses (0: as many as it takes), then WAGMA_INPROGRESS.
 */
static int advance(wagma_handle *h, uint32_t most_pauses) {
    struct inplace_executor *e = h->inplace;
    wagma_segment *s = h->segment;
    int status;
    if (e->step == ADMIT) {
        if ((status = wait_for_step(h, most_pauses)) || (status = publish(h)))
            return status;
        e->step = GATHER;
        e->cursor = 0;
        /* The last one to come wakes the others, who have nothing to do before. */
        if (h->call.n > 1 && gathered(h) > 0)
            wait_ring(s, h->call.members, h->call.n, h->rank);
    }
    if (e->step == GATHER) {
        if (most_pauses && is_heavy(h))
            return WAGMA_INPROGRESS;
        if ((status = wait_for_step(h, most_pauses)))
            return status;
        collect(h);
        if (is_small(s) || e->outputs == 1 || e->divisor == 0) {
            reduce_privately(h);
        } else {
            e->step = DRAIN;
            reduce_slices(h);
            if ((status = wait_for_step(h, 0)))
                return status;
            if (e->mine != h->call.x)
                h->kernels->divided_copy((wagma_dtype)s->options.dtype, h->call.x, e->mine, 1,
                                         (size_t)s->options.count);
        }
    }
    inplace_finish_version(s, h->rank, h->call.version);
    if (h->call.n < s->size) /* other groups may wait for this at t + 2; with one group none does */
        wait_ring(s, h->call.members, h->call.n, h->rank);
    fill_outcome(h);
    return WAGMA_OK;
}

int inplace_start(wagma_handle *h) {
    h->inplace->step = ADMIT;
    h->inplace->cursor = 0;
    if (is_heavy(h) && h->call.x != segment_array(h->segment, h->rank))
        return WAGMA_INPROGRESS; /* publishing copies */
    return advance(h, START_PAUSES);
}

int inplace_finish(wagma_handle *h) {
    return advance(h, 0);
}
