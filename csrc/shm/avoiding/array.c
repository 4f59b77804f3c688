/* A rank's array that shows its contributions by turns (remap.h): publishes x without a copy, and
 * maps other memory for it. */
#include "base/error.h"
#include "shm/avoiding/executor.h"

/* Return the mapping of this rank's array; NULL: its memory does not change. */
static struct remap *array_of(const wagma_handle *h) {
    const wagma_segment *s = handle_segment(h);
    return s->remap ? s->remap[h->rank] : NULL;
}

/* The buffer that the array of this call shows when x is written. */
static int next_shown(const wagma_handle *h) {
    return (int)avoiding_of(h)->local.array - 1;
}

static const void *published(const wagma_handle *h) {
    return segment_contribution(handle_segment(h), h->rank, (int)avoiding_of(h)->local.own);
}

static int no_mapping(const wagma_handle *h) {
    return error_set(
        WAGMA_ENOMEM,
        "no memory to map rank %d's array of %zu bytes anew: raise vm.max_map_count or "
        "ulimit -v, or pass an array of your own instead",
        h->rank, (size_t)handle_segment(h)->bytes_n);
}

void *avoiding_array(wagma_handle *h) {
    const struct remap *array = array_of(h);
    return array ? remap_array(array) : handle_segment_array(h);
}

/* A posted call's x can be read until it is over, and groups of one leave it as it is. */
enum round_source avoiding_source(const wagma_handle *h) {
    const struct avoiding_executor *e = h->state;
    const struct remap *array = array_of(h);
    if (e->out_of_place)
        return ROUND_FROM_RESERVED;
    return array && h->call.x == remap_array(array) && h->call.weight != 0 && !e->carries &&
                   !e->posted && h->call.n > 1
               ? ROUND_FROM_ARRAY
               : ROUND_FROM_X;
}

void avoiding_prepare_x(wagma_handle *h) {
    if (avoiding_of(h)->local.from_array)
        (void)remap_prepare(array_of(h), next_shown(h));
}

const void *avoiding_own_values(const wagma_handle *h) {
    return avoiding_of(h)->local.from_array ? published(h) : h->call.x;
}

unsigned char *avoiding_writable_x(wagma_handle *h) {
    if (avoiding_of(h)->local.from_array && remap_show(array_of(h), next_shown(h)) != 0) {
        (void)no_mapping(h);
        return NULL;
    }
    return h->call.x;
}

/* A buffer that the array may show when its call has failed: what it was to show next may still
 * take the result, from members that go on. -1: there is no memory. */
static int spare(wagma_handle *h) {
    const wagma_segment *s = handle_segment(h);
    struct avoiding_executor *e = h->state;
    for (int b = 0; b < s->buffers; b++) {
        if (segment_commit_contribution(handle_segment(h), h->rank, b,
                                        &e->committed_contributions) != 0)
            break;
        /* acquire: its readers are done; pairs with PC_DROP_CREF of round.c. Nothing is published
         * any more, so nobody can want to pin it */
        if (b != (int)e->local.own && b != next_shown(h) && b + 1 != (int)e->local.reserved &&
            atomic_load_explicit(segment_cref(s, h->rank, b), memory_order_acquire) == 0)
            return b;
    }
    return -1;
}

int avoiding_keep_x(wagma_handle *h, int unfinished) {
    const wagma_segment *s = handle_segment(h);
    const struct round_local *l = &avoiding_of(h)->local;
    if (!l->from_array)
        return WAGMA_OK;
    /* relaxed: written by this rank */
    const uint64_t word = atomic_load_explicit(segment_pub(s, h->rank), memory_order_relaxed);
    const int is_published = round_version(word) == l->t;
    if (next_shown(h) == remap_shown(array_of(h)) && !(unfinished && is_published))
        return WAGMA_OK; /* it is written, or nothing was published */
    const uint64_t began = trace_begin(h->trace);
    const int promised = unfinished && l->takes && l->takes == l->array;
    const int next = promised ? spare(h) : next_shown(h);
    if (next < 0)
        return error_set(WAGMA_ENOMEM,
                         "no %zu bytes of shared memory for rank %d's array after a failed call: "
                         "enlarge /dev/shm, or pass an array of your own instead",
                         (size_t)s->bytes_n, h->rank);
    h->kernels->divided_copy(avoiding_dtype(h), segment_contribution(s, h->rank, next),
                             published(h), 1.0, avoiding_elements(h));
    const int shown = remap_show(array_of(h), next);
    trace_end(h->trace, TRACE_MERGE, began, h->call.version, -1, 0);
    return shown == 0 ? WAGMA_OK : no_mapping(h);
}
