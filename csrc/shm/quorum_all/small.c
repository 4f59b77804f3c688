/* Small payloads of quorum "all": they lie in the ranks' records, and every rank sums all of them.
 */
#include "shm/quorum_all/executor.h"

enum { FETCHED_MAX = 2048 }; /* bytes: lines that a core can have under way */

/* Asks for all lines at once: another core has them, and the sum takes less time than one of them
 * if the two share no cache. Longer ones the core itself asks for in time. */
static inline void fetch_to_read(const void *p, size_t bytes) {
    for (size_t i = 0; bytes <= FETCHED_MAX && i < bytes; i += QUORUM_ALL_LINE)
        __builtin_prefetch((const char *)p + i);
}

/* All members get the same bits, and one that is alone its x. Of this rank's own contribution x is
 * what the record holds, and is nearer: others are fetching the record's lines meanwhile. */
void quorum_all_reduce_privately(wagma_handle *h) {
    const struct quorum_all_local *l = &quorum_all_of(h)->local;
    const wagma_segment *s = handle_segment(h);
    const wagma_options *o = &s->options;
    if (l->divisor == 0 || (l->present_n == 1 && merge_alone(&h->policy, l->divisor, 0) == 1))
        return;
    const uint64_t began = trace_begin(h->trace);
    for (int k = 0; k < l->contributors_n; k++) {
        const int q = l->contributors[k];
        if (q == h->rank) {
            h->inputs[k] = h->call.x;
            continue;
        }
        h->inputs[k] =
            quorum_all_payload(s, quorum_all_record_of(s, q, (int)(h->call.version & 1)));
        fetch_to_read(h->inputs[k], s->bytes_n);
    }
    h->kernels->sum((wagma_dtype)o->dtype, h->call.x, h->inputs, h->weights, l->contributors_n,
                    quorum_all_divisor(h), (size_t)o->count);
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

void quorum_all_fetch_next_record(const wagma_handle *h) {
    const wagma_segment *s = handle_segment(h);
    const unsigned char *record = segment_flat(s, h->rank, (int)((h->call.version + 1) & 1));
    for (size_t i = 0; i < quorum_all_record_bytes(s); i += QUORUM_ALL_LINE)
        fetch_to_write(record + i);
}
