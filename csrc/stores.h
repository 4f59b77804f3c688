/* Which stores to take into memory that another core reads and has read before: ordinary ones,
 * which keep the lines in this core's caches, or streaming (non-temporal) ones, which bypass the
 * caches.
 *
 * Where two cores share a cache, lines that are kept are near for the reader, too. Where they do
 * not (other core complexes of one processor, other sockets), every ordinary store first fetches
 * the line back from the reader: several times slower than a streaming one. Which it is cannot be
 * asked for, and a virtual machine may move its cores while it runs; so both are timed, the one
 * that is not in use once in a while. Pure. */
#ifndef WAGMA_STORES_H
#define WAGMA_STORES_H

#include <stdint.h>

enum {
    STORES_TURNS = 32,       /* of which one tries the other way */
    STORES_BYTES_MIN = 4096, /* of a store that is worth timing */
};

struct stores {
    uint32_t turn;
    int streamed;     /* what is faster now */
    uint64_t cost[2]; /* ps per byte of ordinary and of streaming stores; 0: not known */
};

/* 1: the next ones are streaming stores. */
int stores_choose(struct stores *s);
/* It took `ns` to store `bytes`, at least 1, in the way that stores_choose() said. A cost grows by
 * a quarter per note at most, and falls at once: a thread that was off its core meanwhile makes
 * little difference, and none after the next note of the same way. */
void stores_note(struct stores *s, int streamed, uint64_t ns, uint64_t bytes);

#endif
