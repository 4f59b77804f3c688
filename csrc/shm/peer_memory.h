/* Reads memory of another process of this node without its help (process_vm_readv). Systems and
 * containers may refuse that. A different process may have the same ID, later or in another PID
 * namespace (process.h). Every read therefore checks a cookie in the same system call: it reads the
 * intended process, or fails. */
#ifndef WAGMA_SHM_PEER_MEMORY_H
#define WAGMA_SHM_PEER_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct peer_memory {
    uint32_t pid;
    uint64_t cookie, cookie_at; /* number, and its address in that process */
};

/* Return a number that another process cannot have by chance. */
uint64_t peer_memory_cookie(void);

/* Copy `bytes` at address `from` of the process into `to`. Return 0 or an errno (ESRCH: the process
 * is gone, or is another one; EFAULT: part of the memory is not mapped); after an error the
 * contents of `to` are undefined. */
int peer_memory_read(const struct peer_memory *peer, void *to, uint64_t from, size_t bytes);

#endif
