/* Memory of a segment in forked children.
 *
 * A child shares a segment with its parent until the parent has a handle over it: the ranks may be
 * forked processes. From then on a child has a copy of its own, at the same addresses: what it
 * writes stays with it, and what it reads may be newer than the fork, since a page is copied when
 * the child first writes to it. */
#ifndef WAGMA_SHM_FORKED_H
#define WAGMA_SHM_FORKED_H

#include "include/wagma.h"

/* Lists an open segment: WAGMA_OK or WAGMA_ENOMEM. Takes it off the list again. */
int forked_add(wagma_segment *segment);
void forked_remove(wagma_segment *segment);
/* Notes that this process has a handle over it. */
void forked_inhabit(wagma_segment *segment);

/* Sets the error of a call with what belongs to a parent; `what` is its subject. Returns
 * WAGMA_ECLOSED. */
int forked_refuse(const char *what);

#endif
