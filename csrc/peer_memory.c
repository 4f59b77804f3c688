/* See peer_memory.h. */
#define _GNU_SOURCE /* process_vm_readv, getrandom */
#include "peer_memory.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include "mix.h"
#include "wait.h"

int peer_memory_read(uint32_t pid, void *to, uint64_t from, size_t bytes) {
    unsigned char *at = to;
    while (bytes > 0) { /* the kernel may have read a part */
        const struct iovec here = {at, bytes};
        const struct iovec there = {(void *)(uintptr_t)from, bytes};
        const ssize_t n = process_vm_readv((pid_t)pid, &here, 1, &there, 1, 0);
        if (n < 0)
            return errno;
        if (n == 0)
            return EIO;
        at += n, from += (uint64_t)n, bytes -= (size_t)n;
    }
    return 0;
}

uint64_t peer_memory_cookie(void) {
    uint64_t cookie;
    if (getrandom(&cookie, sizeof cookie, GRND_NONBLOCK) != (ssize_t)sizeof cookie)
        cookie = mix_draw(wait_now(), (uint64_t)getpid(), 0, 0);
    return cookie;
}

int peer_memory_is(uint32_t pid, uint64_t from, uint64_t cookie) {
    uint64_t found = ~cookie;
    return peer_memory_read(pid, &found, from, sizeof found) == 0 && found == cookie;
}
