/* The rank's array of a large wait-avoiding handle: its address stays, its memory changes.
 *
 * A contribution has to stay readable after its rank has gone on, so that a rank cannot write into
 * what it has published. Instead of copying the array, the engine publishes the memory that the
 * array shows and lets it show other memory: page tables are moved (mremap). The engine and all
 * other ranks read a buffer where the segment is mapped. */
#ifndef WAGMA_REMAP_H
#define WAGMA_REMAP_H

#include "segment.h"

struct remap;

/* For rank's array, which shows contribution buffer 1. NULL: this system has no way to do it
 * (Linux before 5.13, pages of more than 4 KiB, no address space). */
struct remap *remap_new(const wagma_segment *s, int rank);
void remap_free(struct remap *remap);

/* Where the array is, for as long as the segment is mapped. */
void *remap_array(const struct remap *remap);
/* The buffer that it shows. */
int remap_shown(const struct remap *remap);
/* Lets it show buffer b. WAGMA_OK, or WAGMA_ENOMEM (error_set(), it shows what it showed). */
int remap_show(struct remap *remap, int b);

#endif
