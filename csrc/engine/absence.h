/* Text about a long wait: its duration, its phase, the missing ranks, and what is known about them.
 */
#ifndef WAGMA_ENGINE_ABSENCE_H
#define WAGMA_ENGINE_ABSENCE_H

#include "engine/handle.h"

enum { ABSENCE_TEXT = 512 };

/* "rank 0 has waited 3.0 s at version 30 (phase sync)". */
int absence_waited(const wagma_handle *h, const char *phase, double seconds, char *text,
                   size_t size);
/* "rank 1, which is alive and has not called yet": `needed` of the n missing ranks have to come. */
void absence_ranks(wagma_handle *h, const char *phase, const int32_t *missing, int n, int needed,
                   char *text, size_t size);

#endif
