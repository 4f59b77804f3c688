#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "search.h"

static void *zeros(uint64_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* every look is somewhere else: fewer walks of pages */
    return p;
}

int table_open(struct table *t, int bits, int breadth_first, int ranks) {
    memset(t, 0, sizeof *t);
    t->mask = (UINT64_C(1) << bits) - 1;
    t->ranks = ranks;
    t->entries = zeros((t->mask + 1) * sizeof *t->entries);
    if (breadth_first) {
        t->numbers = zeros((t->mask + 1) * sizeof *t->numbers);
        t->parents = zeros((t->mask + 1) * sizeof *t->parents);
    }
    if (ranks)
        t->notes = zeros((t->mask + 1) * (uint64_t)ranks * sizeof *t->notes);
    if (t->entries && (!breadth_first || (t->numbers && t->parents)) && (!ranks || t->notes))
        return 0;
    table_close(t);
    return -1;
}

void table_close(struct table *t) {
    const uint64_t n = t->mask + 1;
    if (t->entries)
        munmap(t->entries, n * sizeof *t->entries);
    if (t->numbers)
        munmap(t->numbers, n * sizeof *t->numbers);
    if (t->parents)
        munmap(t->parents, n * sizeof *t->parents);
    if (t->notes)
        munmap(t->notes, n * (uint64_t)t->ranks * sizeof *t->notes);
}

static uint64_t mix(uint64_t a, uint64_t b) {
    const __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

struct table_key table_key(const struct table *t, const void *state, int bytes) {
    uint64_t a = UINT64_C(0x9E3779B97F4A7C15), b = UINT64_C(0xC2B2AE3D27D4EB4F);
    const unsigned char *p = state;
    for (int k = 0; k < bytes; k += 32) {
        uint64_t lanes[4];
        memcpy(lanes, p + k, 32);
        a = mix(a ^ lanes[0], lanes[1] ^ UINT64_C(0xD6E8FEB86659FD93));
        b = mix(b ^ lanes[2], lanes[3] ^ UINT64_C(0xA0761D6478BD642F));
    }
    /* Place and fingerprint are different functions of 128 bits: two states are taken for one only
     * if half of those agree by chance, about n * n / 2^65 for n states. */
    const uint64_t home =
        mix(a ^ UINT64_C(0xE7037ED1A0B428DB), b ^ UINT64_C(0x589965CC75374CC3)) & t->mask;
    const uint64_t print =
        (mix(b ^ UINT64_C(0x1D8E4E27C47D124F), a ^ UINT64_C(0x8EBC6AF09C88C6E3)) | (FLAGS + 1)) &
        ~(uint64_t)FLAGS;
    __builtin_prefetch(&t->entries[home]);
    return (struct table_key){home, print};
}

uint64_t table_at(struct table *t, struct table_key key) {
    for (uint64_t k = key.home;; k = (k + 1) & t->mask) {
        if (t->entries[k] == 0) {
            t->entries[k] = key.print;
            t->used++;
            return k;
        }
        if ((t->entries[k] & ~(uint64_t)FLAGS) == key.print)
            return k;
    }
}

uint64_t table_find(struct table *t, const void *state, int bytes) {
    return table_at(t, table_key(t, state, bytes));
}
