/* Checks and locks around every public call of a handle. */
#ifndef WAGMA_API_CALLS_H
#define WAGMA_API_CALLS_H

#include "engine/handle.h"

/* Check that the owner may start a call: WAGMA_OK, or an error if the handle is NULL, closed or
 * inherited, or a call is in progress. */
int handle_check_ready(const wagma_handle *h);
/* Enter and leave a call of the owner. In between, the executor's thread stands aside, if it has
 * one. Over a segment, wagma_fail() waits until the owner does not write into the segment; the
 * owner checks that the handle is open after it has entered. handle_leave_call() returns `status`.
 */
void handle_enter_call(wagma_handle *h);
int handle_leave_call(wagma_handle *h, int status);

#endif
