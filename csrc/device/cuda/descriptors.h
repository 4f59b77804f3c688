/* File descriptors of memory, which other processes of the same user ask for.
 *
 * A process that exports memory has a thread with a socket in the abstract namespace; the name has
 * a random number of the process, which the records of its memory carry. So a rank that sleeps or
 * computes is no hindrance; a process that is stopped makes others wait for it, at most
 * ASK_SECONDS. */
#ifndef WAGMA_DEVICE_CUDA_DESCRIPTORS_H
#define WAGMA_DEVICE_CUDA_DESCRIPTORS_H

#include <stdint.h>

enum { ASK_SECONDS = 10 };

/* Begin to answer, if that is not so yet, by the name that has this number. 0 or an errno. */
int descriptors_serve(uint64_t owner);
/* End it: no memory of this process can be asked for any more. */
void descriptors_end(void);

/* Return the descriptor of memory `id` of another process, which the caller closes; or a negative
 * errno: ENOENT: the process has no such memory any more, or has gone. */
int descriptors_ask(uint64_t owner, uint64_t id);

#endif
