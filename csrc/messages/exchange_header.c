/* Headers: the control messages of an exchange, see exchange_state.h.
 *
 *   header | records first..first+records-1 | their attachments (sync versions) | data
 *
 * A step has as many of them as its records need. The last one has the data if that is eager and
 * there is room for it, else one more has it. */
#include "messages/exchange_state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum header_flags {
    HEADER_SYNC = 1,
    HEADER_EXPLICIT = 2,
    HEADER_DATA = 4, /* the step's data is here; no bytes: all weights are 0 */
};

struct header {
    uint8_t kind; /* EXCHANGE_HEADER */
    uint8_t phase;
    uint8_t flags;
    uint8_t algorithm;
    uint16_t n, sender;      /* members; index of the one that sends */
    uint16_t first, records; /* members */
    uint32_t bytes;          /* of data */
    int64_t version;
};

struct early { /* before a header in exchange.early */
    int32_t from;
    uint32_t bytes;
};

size_t exchange_eager_bytes(void) {
    return TRANSPORT_CONTROL_MAX - sizeof(struct header) - sizeof(exchange_record);
}

size_t exchange_attached_most(void) { /* one record, with its own, is in one message */
    return exchange_eager_bytes();
}

/* ---- sending --------------------------------------------------------------------------------- */

int exchange_tell(struct exchange_pool *pool, struct exchange *e, int phase, int step,
                  const void *data, size_t bytes) {
    const schedule_step *s = &e->schedule.step[step];
    const int eager = e->transfers[step].out.eager;
    const size_t each = sizeof(exchange_record) + e->attached;
    const size_t most = (TRANSPORT_CONTROL_MAX - sizeof(struct header)) / each;
    const int to = e->members[s->peer];
    unsigned char message[TRANSPORT_CONTROL_MAX];
    struct header h = {
        .kind = EXCHANGE_HEADER,
        .phase = (uint8_t)phase,
        .algorithm = (uint8_t)e->schedule.algorithm,
        .n = (uint16_t)e->schedule.n,
        .sender = (uint16_t)e->schedule.index,
        .version = e->start.version,
    };
    const uint8_t flags = (e->start.sync ? HEADER_SYNC : 0) |
                          (e->start.mine.flags & EXCHANGE_EXPLICIT_SYNC ? HEADER_EXPLICIT : 0);
    for (size_t first = s->tell.begin;;) {
        const size_t left = s->tell.end - first, n = left < most ? left : most;
        size_t size = sizeof h;
        memcpy(message + size, e->records + first, n * sizeof(exchange_record));
        size += n * sizeof(exchange_record);
        if (e->attached != 0)
            memcpy(message + size, e->attachments + first * e->attached, n * e->attached);
        size += n * e->attached;
        const int last = n == left && (!eager || size + bytes <= TRANSPORT_CONTROL_MAX);
        h.first = (uint16_t)first, h.records = (uint16_t)n;
        h.flags = flags, h.bytes = 0;
        if (last && eager) {
            h.flags |= HEADER_DATA, h.bytes = (uint32_t)bytes;
            if (bytes > 0)
                memcpy(message + size, data, bytes);
            size += bytes;
        }
        memcpy(message, &h, sizeof h);
        const int status = pool->transport->calls->send_control(pool->transport, to, message, size);
        if (status != WAGMA_OK)
            return status;
        pool->sent++;
        if (pool->trace)
            trace_now(pool->trace, TRACE_SEND, e->start.version, to, EXCHANGE_HEADER);
        if (last)
            return WAGMA_OK;
        first += n;
    }
}

/* ---- receiving ------------------------------------------------------------------------------- */

static int damaged(const struct exchange_pool *pool, int from, const char *what) {
    return error_set(WAGMA_ESYS,
                     "a header from rank %d has %s: two programs use one communicator, or the "
                     "messages of %s are damaged",
                     from, what, pool->transport->name);
}

/* The step of the phase with this peer; -1: there is none. */
static int find_step(const struct exchange *e, int phase, int peer) {
    int low = e->schedule.phase[phase].begin, high = e->schedule.phase[phase].end;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (e->schedule.step[middle].peer < peer)
            low = middle + 1;
        else
            high = middle;
    }
    return low < e->schedule.phase[phase].end && e->schedule.step[low].peer == peer ? low : -1;
}

/* Records of members first..first+n-1, their attachments behind them. */
static void take_records(struct exchange *e, size_t first, size_t n, const unsigned char *records) {
    memcpy(e->records + first, records, n * sizeof(exchange_record));
    if (e->attached != 0)
        memcpy(e->attachments + first * e->attached, records + n * sizeof(exchange_record),
               n * e->attached);
    e->unknown -= (int)n;
    if (first <= (size_t)e->schedule.index && (size_t)e->schedule.index < first + n)
        e->unknown++; /* its own, which it knew */
}

static int take_data(struct exchange_pool *pool, struct exchange *e, int phase, int step, int from,
                     const unsigned char *data, size_t bytes) {
    stream *in = &e->transfers[step].in;
    const size_t expected =
        (in->range.end - in->range.begin) * sum_size(pool->dtype, phase_form(e, phase));
    if (!in->eager || in->posted != 0 || (bytes != 0 && bytes != expected))
        return damaged(pool, from, "data that nobody expects");
    if (bytes > 0)
        memcpy(in->ring, data, bytes);
    in->posted = 1;
    exchange_over(pool, e, step, 0, 0);
    return WAGMA_OK;
}

/* To an exchange that has begun. */
static int deliver(struct exchange_pool *pool, struct exchange *e, int from,
                   const unsigned char *message, size_t bytes) {
    struct header h;
    memcpy(&h, message, sizeof h);
    if (!(h.flags & HEADER_SYNC) != !e->start.sync)
        return WAGMA_OK; /* the ranks disagree: who learns of the header says so */
    if (h.n != e->schedule.n || h.algorithm != (uint8_t)e->schedule.algorithm)
        return error_set(
            WAGMA_EMISMATCH,
            "version %" PRId64 ": rank %d exchanges it among %u ranks by algorithm %u, this "
            "rank among %d by %d: all ranks have to pass the same options",
            h.version, from, h.n, h.algorithm, e->schedule.n, (int)e->schedule.algorithm);
    if (h.phase >= e->schedule.phases || h.sender >= h.n || e->members[h.sender] != from)
        return damaged(pool, from, "a phase or a sender that cannot be");
    const int step = find_step(e, h.phase, h.sender);
    if (step < 0)
        return damaged(pool, from, "no step of the schedule");
    transfer *t = &e->transfers[step];
    const size_t each = sizeof(exchange_record) + e->attached;
    const size_t end = e->schedule.step[step].hear.end;
    if (bytes != sizeof h + h.records * each + h.bytes || h.records > t->hears_left ||
        (h.records > 0 && h.first != end - (size_t)t->hears_left))
        return damaged(pool, from, "records that nobody expects");
    if (h.records > 0)
        take_records(e, h.first, h.records, message + sizeof h);
    t->hears_left -= h.records;
    e->left -= h.records;
    if (h.records > 0 && t->hears_left == 0) {
        e->phase[h.phase].unheard--;
        exchange_heard(pool, e, h.phase);
    }
    if (h.flags & HEADER_DATA)
        return take_data(pool, e, h.phase, step, from, message + bytes - h.bytes, h.bytes);
    return WAGMA_OK;
}

static int keep(struct exchange *e, int from, const void *message, size_t bytes) {
    const struct early head = {from, (uint32_t)bytes};
    const size_t size = sizeof head + bytes;
    if (e->early_bytes + size > e->early_room) {
        const size_t room = 2 * (e->early_bytes + size);
        unsigned char *larger = realloc(e->early, room);
        if (!larger)
            return error_set(WAGMA_ENOMEM, "no memory for headers that come early: %zu bytes",
                             room);
        e->early = larger;
        e->early_room = room;
    }
    memcpy(e->early + e->early_bytes, &head, sizeof head);
    memcpy(e->early + e->early_bytes + sizeof head, message, bytes);
    e->early_bytes += size;
    return WAGMA_OK;
}

int exchange_receive(struct exchange_pool *pool, int from, const void *message, size_t bytes,
                     int64_t *version, int *sync, int *explicit_sync) {
    struct header h;
    if (bytes < sizeof h)
        return damaged(pool, from, "less than a header");
    memcpy(&h, message, sizeof h);
    *version = h.version;
    *sync = (h.flags & HEADER_SYNC) != 0;
    *explicit_sync = (h.flags & HEADER_EXPLICIT) != 0;
    pool->received++;
    if (h.kind != EXCHANGE_HEADER || h.version < 0)
        return damaged(pool, from, "another kind");
    struct exchange *e = exchange_announce(pool, h.version);
    if (!e)
        return WAGMA_ENOMEM;
    return e->begun ? deliver(pool, e, from, message, bytes) : keep(e, from, message, bytes);
}

int exchange_replay(struct exchange_pool *pool, struct exchange *e) {
    int status = WAGMA_OK;
    for (size_t at = 0; at < e->early_bytes && status == WAGMA_OK;) {
        struct early head;
        memcpy(&head, e->early + at, sizeof head);
        status = deliver(pool, e, head.from, e->early + at + sizeof head, head.bytes);
        at += sizeof head + head.bytes;
    }
    e->early_bytes = 0;
    return status;
}
