/* The memory of all ranks: this rank's own, and what it has opened of the others'. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "shm/device/executor.h"
#include "shm/wait.h"

/* What segment_opened() says from the rank's close on. */
#define OPENS_NOTHING UINT64_MAX

static uint64_t exported_word(int contributions, int rounds) {
    return (uint64_t)contributions << 32 | (uint64_t)rounds;
}
static int contributions_of(uint64_t exported) {
    return (int)(exported >> 32);
}
static int rounds_of(uint64_t exported) {
    return (int)(exported & UINT32_MAX);
}

/* ---- this rank's ----------------------------------------------------------------------------- */

/* Tells the others that there is memory for so many. */
static void tell(wagma_handle *h, int contributions, int rounds) {
    /* release: their records; pairs with device_open() */
    atomic_store_explicit(segment_exported(handle_segment(h), h->rank),
                          exported_word(contributions, rounds), memory_order_release);
}

static int add(wagma_handle *h, int k) {
    struct device_executor *d = device_of(h);
    const uint64_t now = clock_now();
    if (d->refused != 0 && now - d->refused < WAIT_HEARTBEAT_NS)
        return -1;
    d->refused = device_owned_add(handle_segment(h), h->rank, k) == WAGMA_OK ? 0 : now;
    return d->refused != 0 ? -1 : 0;
}

int device_add_contribution(wagma_handle *h, int b) {
    if (add(h, b) != 0)
        return -1;
    tell(h, b + 1, device_of(h)->avoiding.committed_rounds);
    return 0;
}

int device_add_result(wagma_handle *h, int i) {
    if (add(h, handle_segment(h)->buffers + i) != 0)
        return -1;
    tell(h, device_of(h)->avoiding.committed_contributions, i + 1);
    return 0;
}

static int no_memory(const wagma_handle *h, int status) {
    const wagma_segment *s = handle_segment(h);
    char said[256];
    const int n = segment_joined_contributions(s) + segment_joined_rounds(s);
    snprintf(said, sizeof said, "%s", wagma_last_error());
    return error_set(status,
                     "rank %d could not make %d arrays of %zu bytes on its device (%s): use fewer "
                     "elements, or leave more of the device's memory free",
                     h->rank, n, (size_t)s->bytes_n, said);
}

static int make_owned(wagma_handle *h) {
    wagma_segment *s = handle_segment(h);
    const int contributions = segment_joined_contributions(s), rounds = segment_joined_rounds(s);
    int status = WAGMA_OK;
    for (int b = 0; b < contributions && status == WAGMA_OK; b++)
        status = device_owned_add(s, h->rank, b);
    for (int i = 0; i < rounds && status == WAGMA_OK; i++)
        status = device_owned_add(s, h->rank, s->buffers + i);
    if (status != WAGMA_OK)
        return no_memory(h, status);
    tell(h, contributions, rounds);
    return WAGMA_OK;
}

int device_peers_make(wagma_handle *h) {
    struct device_executor *d = device_of(h);
    wagma_segment *s = handle_segment(h);
    const size_t n = (size_t)s->size, items = (size_t)(s->buffers + s->rounds);
    d->opened = calloc(n, sizeof *d->opened);
    d->items = calloc(n, sizeof *d->items);
    int made = d->opened && d->items && device_owned_new(s, h->rank, d->device);
    for (size_t r = 0; made && r < n; r++)
        made = r == (size_t)h->rank || (d->items[r] = calloc(items, sizeof **d->items));
    if (!made)
        return error_set(WAGMA_ENOMEM, "no memory for the addresses of %d ranks' arrays", s->size);
    return make_owned(h);
}

/* ---- the others' ----------------------------------------------------------------------------- */

static int open_item(wagma_handle *h, int r, int k) {
    struct device_executor *d = device_of(h);
    if (d->items[r][k])
        return WAGMA_OK;
    return d->device->calls->open(d->device, segment_export(handle_segment(h), r, k),
                                  &d->items[r][k]);
}

/* Returns 1 if rank r has departed or is lost, and so may have freed its memory. */
static int has_left(wagma_handle *h, int r) {
    /* acquire: pairs with segment_leave() */
    return atomic_load_explicit(&segment_presence_of(handle_segment(h), r)->state,
                                memory_order_acquire) > SEGMENT_READY ||
           handle_segment_lost(h, r) != HANDLE_PRESENT;
}

/* A rank that has gone has taken with it what was not opened, which may not be needed. */
static int not_opened(wagma_handle *h, int r, uint64_t exported, int status) {
    char said[256];
    snprintf(said, sizeof said, "%s", wagma_last_error());
    if (has_left(h, r)) {
        device_of(h)->opened[r] = exported; /* there will be nothing else */
        return WAGMA_OK;
    }
    return error_set(status,
                     "rank %d cannot open memory of rank %d's device (%s): both devices have to be "
                     "of one node and reach each other's memory",
                     h->rank, r, said);
}

static int open_of(wagma_handle *h, int r, uint64_t exported) {
    const wagma_segment *s = handle_segment(h);
    struct device_executor *d = device_of(h);
    int status = WAGMA_OK;
    for (int b = contributions_of(d->opened[r]); b < contributions_of(exported) && !status; b++)
        status = open_item(h, r, b);
    for (int i = rounds_of(d->opened[r]); i < rounds_of(exported) && !status; i++)
        status = open_item(h, r, s->buffers + i);
    if (status != WAGMA_OK)
        return not_opened(h, r, exported, status);
    d->opened[r] = exported;
    /* release: r may be closing, and frees its memory when it sees this */
    atomic_store_explicit(segment_opened(s, h->rank, r), exported, memory_order_release);
    return WAGMA_OK;
}

int device_open(wagma_handle *h) {
    const wagma_segment *s = handle_segment(h);
    int status = WAGMA_OK;
    for (int r = 0; r < s->size && status == WAGMA_OK; r++) {
        /* acquire: pairs with tell(). What a round names was told of before it was published */
        const uint64_t exported =
            atomic_load_explicit(segment_exported(s, r), memory_order_acquire);
        if (r != h->rank && exported != device_of(h)->opened[r])
            status = open_of(h, r, exported);
    }
    return status;
}

static int is_gone(const wagma_handle *h, int r) {
    return error_set(WAGMA_EPEER,
                     "the memory of rank %d is gone with its process, and version %lld needs it: "
                     "make a new handle without it",
                     r, (long long)h->call.version);
}

int device_check_reach(wagma_handle *h, int of_inputs, int of_result) {
    const struct avoiding_executor *e = h->state;
    for (int i = 0; of_inputs && i < e->n; i++)
        if (h->weights[i] != 0 && !h->inputs[i])
            return is_gone(h, e->members[i]);
    if (of_result && !avoiding_result(h, e->local.c))
        return is_gone(h, (int)(e->local.c / (uint32_t)handle_segment(h)->rounds));
    return WAGMA_OK;
}

static void *item(const wagma_handle *h, int r, int k) {
    return r == h->rank ? device_owned_item(handle_segment(h), r, k) : device_of(h)->items[r][k];
}

unsigned char *device_contribution(const wagma_handle *h, int r, int b) {
    return item(h, r, b);
}

unsigned char *device_result(const wagma_handle *h, uint32_t c) {
    const wagma_segment *s = handle_segment(h);
    return item(h, (int)(c / (uint32_t)s->rounds), s->buffers + (int)(c % (uint32_t)s->rounds));
}

void device_peers_free(wagma_handle *h) {
    const wagma_segment *s = handle_segment(h);
    const struct device_executor *d = device_of(h);
    for (int r = 0; d->items && r < s->size; r++) {
        for (int k = 0; d->items[r] && k < s->buffers + s->rounds; k++)
            if (d->items[r][k])
                d->device->calls->close(d->device, d->items[r][k]);
        free(d->items[r]);
    }
    free(d->items);
    free(d->opened);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Returns 1 if rank r may still have to open memory of this rank, which its process takes along. */
static int may_open(wagma_handle *h, int r) {
    const wagma_segment *s = handle_segment(h);
    if (r == h->rank || segment_lives_here(s, r))
        return 0;
    /* acquire: pairs with open_of() and device_await_openers() */
    const uint64_t opened =
        atomic_load_explicit(segment_opened(s, r, h->rank), memory_order_acquire);
    return opened != OPENS_NOTHING &&
           opened != atomic_load_explicit(segment_exported(s, h->rank), memory_order_relaxed) &&
           !has_left(h, r);
}

static int find_openers(wagma_handle *h, void *context, int *over) {
    int n = 0;
    for (int r = 0; r < h->size; r++)
        if (may_open(h, r))
            h->members[n++] = r;
    *(int *)context = n;
    *over = n == 0;
    return WAGMA_OK;
}

static int look_for_openers(wagma_handle *h, void *context, int *over) {
    const int n = *(const int *)context;
    (void)over;
    return handle_delayed(h, "close", h->members, n, n);
}

/* Ranks that close together must not wait for each other: each says first that it opens no more.
 * seq_cst: see wait_ring(). */
static void stop_opening(wagma_handle *h) {
    wagma_segment *s = handle_segment(h);
    for (int r = 0; r < s->size; r++)
        atomic_store(segment_opened(s, h->rank, r), OPENS_NOTHING);
    wait_ring(s, NULL, 0, h->rank);
}

void device_await_openers(wagma_handle *h) {
    static const struct call_wait wait = {.go_on = find_openers, .look = look_for_openers};
    int n, over = 0;
    stop_opening(h);
    if (find_openers(h, &n, &over) == WAGMA_OK && !over)
        (void)call_wait(h, TRACE_FOR_DRAIN, WAIT_ANY_PAUSES, &wait, &n);
}
