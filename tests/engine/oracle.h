/* Checks the outcome of each call of a trial. The policies have to allow its list (contributors,
 * versions, weight), its result has to match the list to within rounding, and ranks that take the
 * same version have to agree on lists and bits. */
#ifndef WAGMA_TESTS_ORACLE_H
#define WAGMA_TESTS_ORACLE_H

#include "trial.h"

/* After a call that has returned WAGMA_OK. */
void player_check(player *p, const wagma_handle *h, const wagma_outcome *o);

#endif
