/* A digest of data: like FNV-1a, by words, since sanitizers check every access. */
#ifndef WAGMA_TESTS_DIGEST_H
#define WAGMA_TESTS_DIGEST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint64_t __attribute__((may_alias)) digest_word;

static inline uint64_t digest_one(uint64_t digest, uint64_t word) {
    digest = (digest ^ word) * UINT64_C(0x100000001b3);
    return digest ^ digest >> 29;
}

/* Add data to a digest; the result does not depend on the data's address. */
static inline uint64_t digest_add(uint64_t digest, const void *data, size_t bytes) {
    const char *at = data;
    uint64_t word;
    if ((uintptr_t)data % sizeof word == 0) /* the thread sanitizer is slow with any others */
        for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word)
            digest = digest_one(digest, *(const digest_word *)(const void *)at);
    for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
        memcpy(&word, at, sizeof word);
        digest = digest_one(digest, word);
    }
    if (bytes) {
        word = 0;
        memcpy(&word, at, bytes);
        digest = digest_one(digest, word);
    }
    return digest;
}

#endif
