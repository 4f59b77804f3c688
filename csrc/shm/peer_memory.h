/* Memory of another process of this node, read without its help (process_vm_readv). Systems and
 * containers may refuse it. Another process may have the same ID, later or in another PID namespace
 * (process.h): every read looks for the cookie in the same call, so that it is of the process that
 * was meant, or fails. */
#ifndef WAGMA_SHM_PEER_MEMORY_H
#define WAGMA_SHM_PEER_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct peer_memory {
    uint32_t pid;
    uint64_t cookie, cookie_at; /* the number that it has there */
};

/* A number that another process cannot have by chance. */
uint64_t peer_memory_cookie(void);

/* to[0, bytes) = what lies at `from` in the process. 0, or an errno (ESRCH: it is gone, or it is
 * another one; EFAULT: not all of it is there); then to[] has anything. */
int peer_memory_read(const struct peer_memory *peer, void *to, uint64_t from, size_t bytes);

#endif
