/* The rank's array of a large wait-avoiding handle: its address stays, its memory changes.
 *
 * A contribution has to stay readable after its rank has gone on, so that a rank cannot write into
 * what it has published. Instead of copying the array, the engine publishes the memory that the
 * array shows and lets it show other memory: page tables are moved (mremap). The engine and all
 * other ranks read a buffer where the segment is mapped. */
#ifndef WAGMA_SHM_REMAP_H
#define WAGMA_SHM_REMAP_H

#include <sys/types.h>

#include "shm/segment.h"

struct remap;

/* For rank's array, which shows contribution buffer 1. NULL: this system has no way to do it
 * (Linux before 5.13, pages of more than 4 KiB, no address space). Its first buffers are mapped. */
struct remap *remap_new(const wagma_segment *s, int rank);
void remap_free(struct remap *remap);

/* Where the array is, for as long as the segment is mapped. */
void *remap_array(const struct remap *remap);
/* The same, and what is mapped there: `*bytes` of the file from `*offset` on. Safe in a child that
 * was forked meanwhile. NULL: the array must not be touched any more. */
void *remap_shows(const struct remap *remap, size_t *bytes, off_t *offset);
/* The buffer that it shows. */
int remap_shown(const struct remap *remap);
/* Does before it is needed what can be done for showing buffer b, which is committed: 0, or -1. */
int remap_prepare(struct remap *remap, int b);
/* Lets it show buffer b; what was said of its pages (advice, protection, locks) is forgotten. 0, or
 * -1: no memory for a mapping, and the array must not be touched any more. */
int remap_show(struct remap *remap, int b);

#endif
