/* Memory of a segment in forked children.
 *
 * A child forked before its parent has a handle over a segment shares the segment: the ranks may be
 * forked processes. A child forked later has a private copy at the same addresses: its writes are
 * invisible to others, and its reads may return data newer than the fork, because a page is copied
 * only when the child first writes to it. */
#ifndef WAGMA_SHM_FORKED_H
#define WAGMA_SHM_FORKED_H

#include "include/wagma.h"

/* Add an open segment to the list (WAGMA_OK or WAGMA_ENOMEM); remove it. */
int forked_add(wagma_segment *segment);
void forked_remove(wagma_segment *segment);
/* Notes that this process has a handle over it. */
void forked_inhabit(wagma_segment *segment);

/* Set the error of a call that uses an object of the parent process; `what` names the object.
 * Return WAGMA_ECLOSED. */
int forked_refuse(const char *what);

#endif
