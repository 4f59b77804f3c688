/* See peer_memory.h. */
#define _GNU_SOURCE /* process_vm_readv, getrandom */
#include "shm/peer_memory.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/mix.h"
#include "shm/wait.h"

/* Reads what it can. The number of bytes, or -1 and errno. */
static ssize_t read_some(const struct peer_memory *peer, void *to, uint64_t from, size_t bytes) {
    uint64_t cookie = ~peer->cookie;
    const struct iovec here[] = {{&cookie, sizeof cookie}, {to, bytes}};
    const struct iovec there[] = {{(void *)(uintptr_t)peer->cookie_at, sizeof cookie},
                                  {(void *)(uintptr_t)from, bytes}};
    const ssize_t n = process_vm_readv((pid_t)peer->pid, here, 2, there, 2, 0);
    if (n >= 0 && cookie != peer->cookie) {
        errno = ESRCH;
        return -1;
    }
    return n < 0 ? n : n - (ssize_t)sizeof cookie;
}

int peer_memory_read(const struct peer_memory *peer, void *to, uint64_t from, size_t bytes) {
    unsigned char *at = to;
    while (bytes > 0) { /* the kernel may have read a part */
        const ssize_t n = read_some(peer, at, from, bytes);
        if (n < 0)
            return errno;
        if (n == 0)
            return EFAULT;
        at += n, from += (uint64_t)n, bytes -= (size_t)n;
    }
    return 0;
}

uint64_t peer_memory_cookie(void) {
    uint64_t cookie;
    if (getrandom(&cookie, sizeof cookie, GRND_NONBLOCK) != (ssize_t)sizeof cookie)
        cookie = mix_draw(clock_now(), (uint64_t)getpid(), 0, 0);
    return cookie;
}
