/* Where everything lies in the segment: sizes and offsets from the options, checked for overflow.
 * Pure; all ranks compute the same. */
#include <inttypes.h>

#include "base/error.h"
#include "base/pages.h"
#include "base/round_up.h"
#include "kernels/reduce.h"
#include "protocol/round.h"
#include "shm/segment.h"

enum {
    PAGE = 4096,          /* a larger one of the system only makes commits overlap harmlessly */
    SLICES_MAX = 64,      /* one bit each in segment_round.done */
    SLICE_MIN = 64 << 10, /* bytes */
    SLICE_ALIGN = 64,
    CHUNK_MIN = 16 << 10,  /* bytes; smaller ones cost more waits than they save ... */
    CHUNK_MAX = 256 << 10, /* ... and larger ones do not stay in the cache of a core */
    CHUNKS_WANTED = 4,     /* of an array: reading one overlaps with writing another */
    TYPICAL_CONTRIBUTIONS = 3,
    TYPICAL_ROUNDS = 2,
};

uint64_t segment_remap_min = 1 << 20;

/* Adds up offsets; once a sum does not fit, `failed` stays set. */
typedef struct cursor {
    uint64_t at;
    int failed;
} cursor;

static uint64_t product(cursor *c, uint64_t a, uint64_t b) {
    uint64_t result = 0;
    c->failed |= __builtin_mul_overflow(a, b, &result);
    return result;
}

static void align(cursor *c, uint64_t to) {
    c->failed |= __builtin_add_overflow(c->at, to - 1, &c->at);
    c->at &= ~(to - 1);
}

/* Reserves `bytes` at a multiple of `to`; returns the offset. */
static uint64_t reserve(cursor *c, uint64_t to, uint64_t bytes) {
    align(c, to);
    uint64_t at = c->at;
    c->failed |= __builtin_add_overflow(c->at, bytes, &c->at);
    return at;
}

static uint64_t pages(uint64_t bytes) {
    return round_up(bytes, PAGE);
}

static void count_buffers(wagma_segment *s) {
    const wagma_options *o = &s->options;
    uint64_t window = (uint64_t)o->window;
    const struct policy *p = &s->policy;
    s->item_bytes = p->device ? 0 : s->bytes_n;
    s->array_is_contribution =
        p->avoiding && !p->staged && s->item_bytes >= segment_remap_min && s->item_bytes >= PAGE;
    s->topology = (struct topology){o->size, o->group_size, o->grouping, o->seed};
    s->size = o->size;
    s->buffers = p->graph      ? (int)window
                 : p->in_place ? 0
                               : (int)round_buffers_bound(&s->topology, p->world, p->ordered,
                                                          window, s->array_is_contribution);
    if (s->buffers >
        (int)ROUND_BUFFERS_MAX) /* of thousands of ranks: enough, unless all are late */
        s->buffers = (int)ROUND_BUFFERS_MAX;
    s->rounds = p->avoiding ? (int)round_rounds_bound((uint32_t)o->size, p->ordered, window) : 0;
    s->slots = p->avoiding ? (int)round_slots(window) : 0;
    s->array_bytes = p->graph || s->array_is_contribution ? 0 : s->item_bytes;
}

/* On devices a slice costs the start of a kernel and a wait for it: one for each member. */
static void cut_slices(wagma_segment *s) {
    const int device = s->policy.device && s->options.group_size < SLICES_MAX;
    const uint64_t most = device ? (uint64_t)s->options.group_size : SLICES_MAX;
    uint64_t element = reduce_dtype_size((wagma_dtype)s->options.dtype);
    uint64_t count = (uint64_t)s->options.count, unit = SLICE_ALIGN / element;
    uint64_t least = SLICE_MIN / element, slice = count / most + (count % most != 0);
    slice = slice < least ? least : round_up(slice, unit);
    s->slice_count = slice < count ? slice : count;
    s->slices = count == 0 ? 1 : (int)(count / slice + (count % slice != 0));
}

static void cut_chunks(wagma_segment *s) {
    const uint64_t n = s->bytes_n, all = (uint64_t)SEGMENT_CHUNKS;
    uint64_t bytes = n / CHUNKS_WANTED;
    bytes = bytes < CHUNK_MIN ? CHUNK_MIN : bytes > CHUNK_MAX ? CHUNK_MAX : bytes;
    bytes = round_up(bytes, SLICE_ALIGN);
    const uint64_t chunks = n / bytes + (n % bytes != 0);
    s->chunk_bytes = bytes;
    s->chunks_bytes =
        !s->policy.in_place || n <= SEGMENT_FLAT_MAX ? 0 : (chunks < all ? chunks : all) * bytes;
}

uint64_t segment_array_memory(uint64_t bytes) {
    const uint64_t rest = bytes % PAGES_HUGE;
    return rest < SEGMENT_HUGE_MIN ? pages(bytes) : bytes - rest + PAGES_HUGE;
}

static uint64_t exports_bytes(const wagma_segment *s, cursor *c) {
    const uint64_t items = (uint64_t)s->buffers + (uint64_t)s->rounds;
    return (1 + (uint64_t)s->size) * sizeof(segment_atomic) +
           product(c, items, sizeof(device_record));
}

static void place(wagma_segment *s, cursor *c) {
    uint64_t n = s->item_bytes, word = sizeof(segment_atomic);
    /* Large arrays are committed one by one, so that they must not share pages, or huge ones. */
    const int huge = n >= SEGMENT_HUGE_MIN;
    uint64_t unit = n < PAGE ? SEGMENT_LINE : huge ? PAGES_HUGE : PAGE;
    uint64_t size = (uint64_t)s->size;
    cursor region = {0};

    uint64_t payload = n <= SEGMENT_FLAT_MAX ? n : 0;
    cursor flat = {SEGMENT_LINE + payload, 0};
    align(&flat, SEGMENT_LINE);
    s->flat_bytes = s->policy.in_place ? flat.at : 0;

    reserve(&region, 1, (uint64_t)SEGMENT_LINES * SEGMENT_LINE);
    s->o_cref = reserve(&region, SEGMENT_LINE, product(c, (uint64_t)s->buffers, word));
    s->o_slot = reserve(&region, SEGMENT_LINE, product(c, (uint64_t)s->slots, word));
    s->o_arrival = reserve(&region, SEGMENT_LINE, product(c, (uint64_t)s->slots, word));
    s->o_flat = reserve(&region, SEGMENT_LINE, 2 * s->flat_bytes);
    s->o_meta = reserve(&region, SEGMENT_LINE, product(c, (uint64_t)s->buffers, sizeof(double)));
    s->o_stats = reserve(&region, SEGMENT_LINE, 2 * SEGMENT_LINE);
    s->o_exports = reserve(&region, SEGMENT_LINE, s->policy.device ? exports_bytes(s, c) : 0);
    s->words_bytes = region.at;

    cursor record = {sizeof(segment_round) + size * (word + sizeof(double)), 0};
    align(&record, n < PAGE ? SEGMENT_LINE : PAGE);
    s->record_step = record.at;
    s->o_record = reserve(&region, n < PAGE ? SEGMENT_LINE : PAGE,
                          product(c, (uint64_t)s->rounds, s->record_step));

    s->o_array = reserve(&region, unit, s->array_bytes);
    s->o_stage = reserve(&region, unit, !s->policy.in_place || n <= SEGMENT_FLAT_MAX ? 0 : n);
    s->o_chunks = reserve(&region, unit, s->chunks_bytes);

    cursor item = {n, 0};
    align(&item, unit);
    s->item_step = item.at;
    s->item_memory = s->policy.device ? s->bytes_n : huge ? segment_array_memory(n) : item.at;
    const uint64_t items = (uint64_t)s->buffers + (uint64_t)s->rounds;
    c->failed |= product(c, items, s->item_memory) > (uint64_t)INT64_MAX;
    s->o_contribution = reserve(&region, unit, product(c, (uint64_t)s->buffers, s->item_step));
    s->o_result = reserve(&region, unit, product(c, (uint64_t)s->rounds, s->item_step));

    uint64_t boundary = huge ? PAGES_HUGE : PAGE; /* each region is on its owner's NUMA node */
    align(&region, boundary);
    s->region_bytes = region.at;
    s->region_offset = boundary; /* the header comes first */
    c->at = s->region_offset;
    reserve(c, 1, product(c, size, s->region_bytes));
    c->failed |= item.failed | record.failed | region.failed;
}

int segment_layout(wagma_segment *s) {
    const wagma_options *o = &s->options;
    cursor c = {0};
    s->bytes_n = product(&c, (uint64_t)o->count, reduce_dtype_size((wagma_dtype)o->dtype));
    s->policy = policy_of(o);
    count_buffers(s);
    cut_slices(s);
    cut_chunks(s);
    place(s, &c);
    s->bytes = c.at;
    if (c.failed || s->bytes > (uint64_t)INT64_MAX)
        return error_set(WAGMA_EINVAL,
                         "count is %" PRId64
                         " elements of %s for %d ranks: the segment would not fit "
                         "into the address space, use fewer elements per handle",
                         o->count, reduce_dtype_name((wagma_dtype)o->dtype), s->size);
    uint64_t joined = segment_joined_bytes(s);
    if (o->shm_limit && joined > o->shm_limit)
        return error_set(WAGMA_ENOSPC,
                         "shm_limit is %" PRIu64 " bytes per rank, but %" PRId64
                         " elements of %s need at least %" PRIu64
                         " bytes (an array of 1 to 2 MiB takes 2 MiB): raise shm_limit",
                         o->shm_limit, o->count, reduce_dtype_name((wagma_dtype)o->dtype), joined);
    return WAGMA_OK;
}

int segment_joined_contributions(const wagma_segment *s) {
    /* rounds of all ranks are held with their inputs: one more, or living ranks that have one
     * reserved could wait for each other */
    const int typical = TYPICAL_CONTRIBUTIONS + s->array_is_contribution + s->policy.world;
    return s->buffers < typical ? s->buffers : typical;
}

int segment_joined_rounds(const wagma_segment *s) {
    return s->rounds < TYPICAL_ROUNDS ? s->rounds : TYPICAL_ROUNDS;
}

static uint64_t joined(const wagma_segment *s, uint64_t item) {
    return pages(s->words_bytes) + segment_array_memory(s->array_bytes) +
           pages((uint64_t)segment_joined_contributions(s) * item) +
           pages((uint64_t)segment_joined_rounds(s) * s->record_step) +
           pages((uint64_t)segment_joined_rounds(s) * item);
}

uint64_t segment_joined_bytes(const wagma_segment *s) {
    return joined(s, s->item_memory);
}

uint64_t segment_joined_shared(const wagma_segment *s) {
    return joined(s, s->policy.device ? 0 : s->item_memory);
}

void segment_arrays(const wagma_segment *s, uint64_t *first, uint64_t *most) {
    const uint64_t array = segment_array_memory(s->array_bytes);
    const uint64_t staged = !s->policy.in_place || s->bytes_n <= SEGMENT_FLAT_MAX ? 0 : s->bytes_n;
    const int joined = segment_joined_contributions(s) + segment_joined_rounds(s);
    *first = array + (uint64_t)joined * s->item_memory;
    *most = array + segment_array_memory(staged) + segment_array_memory(s->chunks_bytes) +
            (uint64_t)(s->buffers + s->rounds) * s->item_memory;
}

/* How far shm_limit goes: pairs of a contribution and a round first, then whichever is still below
 * its bound. */
static void most(const wagma_segment *s, uint64_t *contributions, uint64_t *rounds) {
    *contributions = (uint64_t)s->buffers;
    *rounds = (uint64_t)s->rounds;
    if (!s->options.shm_limit || !s->buffers || !s->bytes_n)
        return;
    uint64_t left = s->options.shm_limit - segment_joined_bytes(s);
    uint64_t c = (uint64_t)segment_joined_contributions(s), c_more = *contributions - c;
    uint64_t r = (uint64_t)segment_joined_rounds(s), r_more = *rounds - r;
    const uint64_t contribution = s->item_memory, round = s->record_step + s->item_memory;
    uint64_t pairs = left / (contribution + round);
    pairs = pairs < c_more ? pairs : c_more;
    pairs = pairs < r_more ? pairs : r_more;
    left -= pairs * (contribution + round);
    c += pairs, c_more -= pairs;
    r += pairs, r_more -= pairs;
    uint64_t c_fits = left / contribution, r_fits = left / round;
    if (r_more == 0)
        c += c_fits < c_more ? c_fits : c_more;
    else if (c_more == 0)
        r += r_fits < r_more ? r_fits : r_more;
    *contributions = c;
    *rounds = r;
}

int segment_most_contributions(const wagma_segment *s) {
    uint64_t contributions, rounds;
    most(s, &contributions, &rounds);
    return (int)contributions;
}

int segment_most_rounds(const wagma_segment *s) {
    uint64_t contributions, rounds;
    most(s, &contributions, &rounds);
    return (int)rounds;
}
