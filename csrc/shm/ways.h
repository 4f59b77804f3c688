/* Which of two ways of moving data is faster, where it cannot be asked for and only timing tells:
 * whether two cores share a cache, or what the system's calls take. A virtual machine may move its
 * cores while it runs; so both are timed, the one that is not in use once in a while. Pure.
 *
 * Stores into memory that another core reads and has read before: ordinary ones (the first way)
 * keep the lines in this core's caches, streaming (non-temporal) ones bypass the caches. Where two
 * cores share a cache, lines that are kept are near for the reader, too. Where they do not (other
 * core complexes of one processor, other sockets), every ordinary store first fetches the line back
 * from the reader: several times slower than a streaming one. */
#ifndef WAGMA_SHM_WAYS_H
#define WAGMA_SHM_WAYS_H

#include <stdint.h>

enum {
    WAYS_TURNS = 32,       /* of which one tries the other way */
    WAYS_BYTES_MIN = 4096, /* of a store that is worth timing */
    WAYS_OF_STORES = 2,    /* streaming costs the reader more than the writer sees */
};

struct ways {
    uint32_t turn;
    int second;       /* the faster one now */
    uint64_t cost[2]; /* ps per byte of either; 0: not known */
};

/* Which way is next: 0 or 1. */
int ways_choose(struct ways *w);
/* It took `ns` to move `bytes`, at least 1, in the way that ways_choose() said. The second one is
 * the faster if it is `times` as fast as the first. A cost grows by a quarter per note at most, and
 * falls at once: a thread that was off its core meanwhile makes little difference, and none after
 * the next note of the same way. */
void ways_note(struct ways *w, int way, uint64_t ns, uint64_t bytes, uint64_t times);

#endif
