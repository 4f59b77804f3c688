/* What surrounds every public call of a handle. */
#ifndef WAGMA_API_CALLS_H
#define WAGMA_API_CALLS_H

#include "engine/handle.h"

/* WAGMA_OK, or why the owner may not start a call: the handle is NULL, closed or inherited, or a
 * call is in progress. */
int handle_check_ready(const wagma_handle *h);
/* Around every call of the owner. Where an executor has a thread of its own, it stands aside
 * meanwhile. Where there is a segment, wagma_fail() waits until the owner does not write into it;
 * the owner asks whether the handle is open after it has entered. The second returns `status`. */
void handle_enter_call(wagma_handle *h);
int handle_leave_call(wagma_handle *h, int status);

#endif
