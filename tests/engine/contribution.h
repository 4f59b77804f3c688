/* Contributions that tell whose they are and of which version, and what a call has to make of them.
 */
#ifndef WAGMA_TESTS_CONTRIBUTION_H
#define WAGMA_TESTS_CONTRIBUTION_H

#include "support.h"

/* Element i of what `rank` contributes at `version` (-1: at creation), F64 or F32. F64: whole
 * numbers, so that sums are exact. F32: of many magnitudes, so that the order of a sum shows. Any
 * two contributions differ in (almost) every element. They are periodic (periodic.h). */
double contribution(int dtype, int rank, int64_t version, int64_t i);
void contribute(int dtype, void *x, int rank, int64_t version, int64_t count);
/* Expects x to be the sum of what `o` lists, and the own contribution of o->version if it was late;
 * the own contribution alone if it was not merged. For weights of 1. Bit by bit; averages, and
 * floats that came over messages (in other orders), to within their last digits. */
int expect_result(const rank *me, const void *x, const wagma_outcome *o);

#endif
