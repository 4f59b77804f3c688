/* The rank's array of a large wait-avoiding handle: its address stays, its memory changes.
 *
 * A contribution has to stay readable after its rank has returned from the call, so a rank must not
 * write into what it has published. Instead of copying the array, the engine publishes the memory
 * that the array shows, and maps other memory at the array's address (mremap moves the page
 * tables). The engine and all other ranks read a buffer through the mapping of the segment. */
#ifndef WAGMA_SHM_REMAP_H
#define WAGMA_SHM_REMAP_H

#include <sys/types.h>

#include "shm/segment.h"

struct remap;

/* Make the mapping of `rank`'s array, which shows contribution buffer 1; its first buffers are
 * mapped. NULL: this system cannot do it (Linux before 5.13, pages of more than 4 KiB, no address
 * space). */
struct remap *remap_new(const wagma_segment *s, int rank);
void remap_free(struct remap *remap);

/* Return the address of the array, valid while the segment is mapped. */
void *remap_array(const struct remap *remap);
/* Return the address of the array, and which part of the file is mapped there: `*bytes` from
 * `*offset` on. Safe in a child that was forked meanwhile. NULL: the array must not be touched any
 * more. */
void *remap_shows(const struct remap *remap, size_t *bytes, off_t *offset);
/* Return the buffer that the array shows. */
int remap_shown(const struct remap *remap);
/* Prepare to show buffer b, which is committed: 0, or -1. */
int remap_prepare(struct remap *remap, int b);
/* Show buffer b; settings of the array's pages (advice, protection, locks) are lost. Return 0, or
 * -1: no memory for a mapping, and the array must not be touched any more. */
int remap_show(struct remap *remap, int b);

#endif
