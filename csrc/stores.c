#include "stores.h"

int stores_choose(struct stores *s) {
    const int tries = s->turn++ % STORES_TURNS == STORES_TURNS - 1;
    return s->streamed ^ tries;
}

/* Streaming costs the reader more than it shows here: it has to be twice as fast. */
void stores_note(struct stores *s, int streamed, uint64_t ns, uint64_t bytes) {
    const uint64_t new = 1 + 1000 * ns / bytes, old = s->cost[streamed], most = old + old / 4 + 1;
    s->cost[streamed] = old != 0 && new > most ? most : new;
    s->streamed = s->cost[1] != 0 && s->cost[0] > 2 * s->cost[1];
}
