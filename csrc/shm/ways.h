/* Chooses the faster of two ways of moving data by timing both. Timing is the only way to learn
 * whether two cores share a cache, or how long system calls take. A virtual machine may move its
 * cores while it runs, so the way that is not in use is timed again once in a while. Pure.
 *
 * Example: stores into memory that another core reads and has read before. Ordinary stores (the
 * first way) keep the lines in this core's caches; streaming (non-temporal) stores bypass the
 * caches. If two cores share a cache, the reader finds the kept lines there. If they do not (other
 * core complexes of one processor, other sockets), every ordinary store first fetches the line back
 * from the reader, and is several times slower than a streaming store. */
#ifndef WAGMA_SHM_WAYS_H
#define WAGMA_SHM_WAYS_H

#include <stdint.h>

enum {
    WAYS_TURNS = 32,       /* one in so many turns tries the other way */
    WAYS_BYTES_MIN = 4096, /* smallest store that is worth timing */
    WAYS_OF_STORES = 2,    /* streaming costs the reader more than the writer sees */
};

struct ways {
    uint32_t turn;
    int second;       /* the faster one now */
    uint64_t cost[2]; /* ps per byte of either; 0: not known */
};

/* Return the way to use next: 0 or 1. */
int ways_choose(struct ways *w);
/* Note that moving `bytes`, at least 1, took `ns` with `way`, which ways_choose() returned. The
 * second way counts as the faster one if it is `times` as fast as the first. A cost grows by at
 * most a quarter per note, and falls at once: time that the thread spent off its core has little
 * effect, and none after the next note of the same way. */
void ways_note(struct ways *w, int way, uint64_t ns, uint64_t bytes, uint64_t times);

#endif
