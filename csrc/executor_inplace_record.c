/* The ranks' records of quorum "all": what a rank writes before it publishes, and the sums of small
 * payloads, which lie in the records themselves. */
#include <string.h>

#include "executor_inplace.h"

static int no_space(uint64_t bytes) {
    return error_set(WAGMA_ENOSPC,
                     "no %llu bytes of shared memory to pass on a private array: enlarge /dev/shm, "
                     "or pass the handle's shared array",
                     (unsigned long long)bytes);
}

/* Says where a large x lies. Of a private one there is a copy in the segment if others may need it
 * while this rank is elsewhere; otherwise it passes in chunks. Memory for either is committed when
 * it is first used. */
static int place(wagma_handle *h, inplace_record *record) {
    struct inplace_executor *e = h->inplace;
    wagma_segment *s = h->segment;
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
    }
    return WAGMA_OK;
}

int inplace_write_record(wagma_handle *h) {
    struct inplace_executor *e = h->inplace;
    wagma_segment *s = h->segment;
    inplace_record *record = inplace_record_of(s, h->rank, (int)(h->call.version & 1));
    record->weight = h->call.weight;
    record->where = INPLACE_NOWHERE;
    e->mine = h->call.x;
    if (inplace_is_heavy(h))
        return place(h, record);
    if (h->call.n > 1)
        memcpy(inplace_payload(s, record), h->call.x, s->bytes_n);
    return WAGMA_OK;
}

void *inplace_payload_of(const wagma_handle *h, int q) {
    const wagma_segment *s = h->segment;
    inplace_record *record = inplace_record_of(s, q, (int)(h->call.version & 1));
    if (inplace_is_small(s))
        return inplace_payload(s, record);
    return record->where == INPLACE_NOWHERE ? NULL : segment_region(s, q) + record->where;
}

/* For versions that need no drain. All members get the same bits, and one that is alone its x. Of
 * this rank's own contribution x is what the record holds, and is nearer: others are fetching the
 * record's lines meanwhile. */
void inplace_reduce_records(wagma_handle *h) {
    const struct inplace_local *l = &h->inplace->local;
    const wagma_options *o = &h->segment->options;
    if (l->divisor == 0 || (l->present_n == 1 && (o->average || l->divisor == 1)))
        return;
    const uint64_t began = trace_begin(h->trace);
    for (int k = 0; k < l->contributors_n; k++) {
        const int q = l->contributors[k];
        h->inputs[k] = q == h->rank ? h->call.x : inplace_payload_of(h, q);
    }
    h->kernels->sum((wagma_dtype)o->dtype, h->call.x, h->inputs, h->weights, l->contributors_n,
                    inplace_divisor(h), (size_t)o->count);
    trace_end(h->trace, TRACE_REDUCE, began, h->call.version, -1, 0);
}

/* Asks for the line at `p`, to write to it, and does not wait. */
static inline void fetch_to_write(const void *p) {
#if defined(__x86_64__)
    /* Without flags for newer CPUs compilers only ask for lines to read. Where there is no such
     * instruction it does nothing. */
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
    __builtin_prefetch(p, 1);
#endif
}

void inplace_fetch_next_record(const wagma_handle *h) {
    const wagma_segment *s = h->segment;
    const unsigned char *record = segment_flat(s, h->rank, (int)((h->call.version + 1) & 1));
    const size_t payload = inplace_is_small(s) && s->bytes_n > INPLACE_INLINE ? s->bytes_n : 0;
    for (size_t i = 0; i < sizeof(inplace_record) + payload; i += INPLACE_LINE)
        fetch_to_write(record + i);
}
