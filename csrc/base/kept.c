/* See kept.h. */
#include "base/kept.h"

#include <stdatomic.h>

static struct kept *_Atomic all;

void kept_add(struct kept *k) {
    k->next = atomic_load(&all);
    while (!atomic_compare_exchange_weak(&all, &k->next, k))
        ;
}
