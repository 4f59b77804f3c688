/* Memory of another process of this node, read without its help (process_vm_readv). Systems and
 * containers may refuse it; processes of different containers may take each other for others. */
#ifndef WAGMA_PEER_MEMORY_H
#define WAGMA_PEER_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* to[0, bytes) = what lies at `from` in process `pid`. 0, or an errno (ESRCH: it is gone; EIO: not
 * all of it is there). */
int peer_memory_read(uint32_t pid, void *to, uint64_t from, size_t bytes);

/* A number that another process cannot have by chance, for peer_memory_is(). */
uint64_t peer_memory_cookie(void);
/* 1: process `pid` may be read, and has `cookie` at `from`: it is the one that was meant. */
int peer_memory_is(uint32_t pid, uint64_t from, uint64_t cookie);

#endif
