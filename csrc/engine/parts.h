/* Arrays of a call that are copied by parts while the call goes on (staged/): the contribution is
 * still being written when the executor begins, and results are copied away as they become final.
 * Ranges are of elements. Everything is touched between enter() and leave() alone, of the owner or
 * of the executor's thread. */
#ifndef WAGMA_ENGINE_PARTS_H
#define WAGMA_ENGINE_PARTS_H

#include <stddef.h>

#include "include/wagma.h"

typedef struct call_parts {
    size_t count;
    /* Elements first..first+written-1, modulo count, of the contribution are written. Those of a
     * call that is over all are. */
    size_t first, written;
    double divisor; /* set by the executor: by which the caller divides x; 1: it has been */
    /* Looks whether more of the contribution is written: 1, 0, or an error. */
    int (*look)(wagma_handle *h);
    /* Notes that elements begin..end-1 of a result are final; element 0 of it is at `result`. */
    void (*note)(struct call_parts *p, const void *result, size_t begin, size_t end);
    /* Copies what is final; in finish() alone, because arrays of calls that were only posted stay
     * as they are. WAGMA_OK or an error. */
    int (*take)(wagma_handle *h);
} call_parts;

/* NULL: the array is whole. */
static inline int parts_whole(const call_parts *p) {
    return !p || p->written == p->count;
}

/* Return 1 if elements begin..end-1, begin < end, are written. */
static inline int parts_written(const call_parts *p, size_t begin, size_t end) {
    if (parts_whole(p))
        return 1;
    if (begin < p->first && p->first < end)
        return 0; /* the first and the last that are written */
    return (end > p->first ? end - p->first : end + p->count - p->first) <= p->written;
}

#endif
