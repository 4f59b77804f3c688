/* Private arrays that are read from their owners' memory; see shm/quorum_all/chunks.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/pages.h"
#include "base/round_up.h"
#include "shm/peer_memory.h"
#include "shm/quorum_all/executor.h"

enum chunks_way chunks_default = CHUNKS_FASTER;

enum { DIRECT_MAX = 1 << 20, PIECES_BYTES = 256 << 10 };

static const quorum_all_record *record_of(const wagma_handle *h, int q) {
    return quorum_all_record_of(handle_segment(h), q, (int)(h->call.version & 1));
}

static struct peer_memory memory_of(const wagma_handle *h, int q) {
    const quorum_all_record *record = record_of(h, q);
    /* relaxed: set when the rank joined, before its first record */
    const uint32_t pid =
        atomic_load_explicit(&segment_presence_of(handle_segment(h), q)->pid, memory_order_relaxed);
    return (struct peer_memory){pid, record->cookie, record->cookie_at};
}

/* Tries with the cookie itself. */
static int may_read(const wagma_handle *h, int q) {
    const struct peer_memory memory = memory_of(h, q);
    uint64_t cookie;
    return segment_names_process(handle_segment(h), q) &&
           peer_memory_read(&memory, &cookie, memory.cookie_at, sizeof cookie) == 0;
}

size_t chunks_direct_bytes(const wagma_segment *s) {
    const size_t bytes = round_up(s->bytes_n, QUORUM_ALL_LINE);
    return bytes < DIRECT_MAX ? bytes : DIRECT_MAX;
}

size_t chunks_direct_piece(const wagma_handle *h) {
    const size_t each = PIECES_BYTES / (size_t)quorum_all_of(h)->chunks.owners_n;
    return round_up(each, QUORUM_ALL_LINE);
}

/* No rank reads this one's memory, nor this one another's. */
static int is_forbidden(const struct chunks *c) {
    return c->allowed == CHUNKS_PLACES;
}

enum chunks_way chunks_allowed(void) {
    const char *text = getenv("WAGMA_CMA");
    return text && strcmp(text, "0") == 0 ? CHUNKS_PLACES : chunks_default;
}

/* Not all memory can be read so: that of a device, or secret. The first and the last byte are
 * tried, and what the system says is remembered, since most calls are about one array. */
static int is_readable(struct chunks *c, const unsigned char *x, uint64_t bytes) {
    unsigned char byte;
    const struct peer_memory me = {(uint32_t)getpid(), c->cookie, (uint64_t)(uintptr_t)&c->cookie};
    if (x != c->tried)
        c->tried_readable =
            peer_memory_read(&me, &byte, (uint64_t)(uintptr_t)x, 1) == 0 &&
            peer_memory_read(&me, &byte, (uint64_t)(uintptr_t)(x + bytes - 1), 1) == 0;
    c->tried = x;
    return c->tried_readable;
}

void chunks_introduce(const wagma_handle *h, quorum_all_record *record) {
    const struct chunks *c = &quorum_all_of(h)->chunks;
    record->cookie = c->cookie;
    record->cookie_at = (uint64_t)(uintptr_t)&c->cookie;
}

void chunks_describe(wagma_handle *h, quorum_all_record *record) {
    struct chunks *c = &quorum_all_of(h)->chunks;
    record->x = (uint64_t)(uintptr_t)h->call.x;
    record->may_read = !is_forbidden(c) && is_readable(c, h->call.x, handle_segment(h)->bytes_n);
    for (int i = 0; i < h->call.n; i++)
        if (h->call.members[i] != h->rank && c->readable[h->call.members[i]] != 1)
            record->may_read = 0;
    record->would_read = ways_choose(&c->way) || c->allowed == CHUNKS_DIRECT;
}

/* Tries to read the memory of members that have not been tried yet. */
static void get_to_know(wagma_handle *h) {
    const struct quorum_all_local *l = &quorum_all_of(h)->local;
    struct chunks *c = &quorum_all_of(h)->chunks;
    const int forbidden = is_forbidden(c);
    if (!c->parts && !forbidden)
        c->parts = pages_new(PIECES_BYTES + (size_t)h->size * QUORUM_ALL_LINE);
    for (int k = 0; k < l->present_n; k++) {
        const int q = l->present[k];
        if (q != h->rank && c->readable[q] == 0)
            c->readable[q] = c->parts && !forbidden && may_read(h, q) ? 1 : -1;
    }
}

void chunks_decide(wagma_handle *h) {
    struct chunks *c = &quorum_all_of(h)->chunks;
    c->direct = c->owners_n > 1 && record_of(h, c->owners[0])->would_read;
    for (int k = 0; k < c->owners_n; k++)
        c->direct &= record_of(h, c->owners[k])->may_read;
    if (c->index >= 0)
        get_to_know(h);
    if (c->index > 0) /* another rank decides this version: it is none of the turns */
        c->way.turn--;
    c->began = clock_now();
}

void chunks_note(wagma_handle *h) {
    struct chunks *c = &quorum_all_of(h)->chunks;
    h->stats.direct += c->direct;
    h->stats.private_way = c->direct ? WAGMA_PRIVATE_READ : WAGMA_PRIVATE_CHUNKS;
    if (c->index == 0 && c->owners_n > 1)
        ways_note(&c->way, c->direct, clock_now() - c->began, handle_segment(h)->bytes_n, 1);
}

static int has_failed(const wagma_handle *h, int q) {
    /* seq_cst: before its caller has the array back; pairs with segment_leave() */
    return atomic_load(&segment_presence_of(handle_segment(h), q)->state) ==
           (uint32_t)SEGMENT_FAILED;
}

int chunks_read(wagma_handle *h, int k, unsigned char *to, size_t offset, size_t bytes) {
    const struct chunks *c = &quorum_all_of(h)->chunks;
    const int q = c->owners[k];
    const uint64_t x = record_of(h, q)->x; /* it stays until this rank has finished the version */
    const struct peer_memory memory = memory_of(h, q);
    const int error = bytes ? peer_memory_read(&memory, to, x + offset, bytes) : 0;
    if (error == 0)
        return WAGMA_OK;
    if (error == ESRCH || has_failed(h, q)) /* it died, or gave up and has freed its array */
        return handle_lost(h, "slices", q);
    return error_set(WAGMA_ESYS,
                     "the array of rank %d, %zu bytes at %#llx in process %u, can be read no more "
                     "(%s): it has to stay where it is during the call; WAGMA_CMA=0 passes arrays "
                     "through shared memory",
                     q, (size_t)handle_segment(h)->bytes_n, (unsigned long long)x, memory.pid,
                     strerror(error));
}
