/* Which stores to take into memory that another core reads and has read before: those that keep the
 * lines in this core's caches, or those that go past them.
 *
 * Where two cores share a cache, the kept lines are near for the reader, too. Where they do not
 * (other groups of cores of one processor, other sockets), every store first fetches the line back
 * from the reader: several times slower than past the caches. Which it is cannot be asked for, and
 * a virtual machine may move its cores while it runs; so both are timed, the one that is not in use
 * once in a while. Pure. */
#ifndef WAGMA_STORES_H
#define WAGMA_STORES_H

#include <stdint.h>

enum {
    STORES_TURNS = 32,       /* of which one tries the other way */
    STORES_BYTES_MIN = 4096, /* of a store that is worth timing */
};

struct stores {
    uint32_t turn;
    int past;         /* what is faster now */
    uint64_t cost[2]; /* ps per byte, of what stays and of what goes past; 0: not known */
};

/* 1: the next ones go past the caches. */
int stores_choose(struct stores *s);
/* It took `ns` to store `bytes`, at least 1, in the way that stores_choose() said. A thread that
 * was off its core meanwhile makes little difference. */
void stores_note(struct stores *s, int past, uint64_t ns, uint64_t bytes);

#endif
