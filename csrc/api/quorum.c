/* The quorum of a handle, which may change from version to version. */
#include "api/calls.h"
#include "base/error.h"

int wagma_set_quorum(wagma_handle *h, int32_t quorum) {
    const int status = handle_check_ready(h);
    if (status != WAGMA_OK)
        return status;
    if (quorum < 1 || quorum > h->size)
        return error_set(WAGMA_EINVAL, "quorum is %d: it must be 1 to size (%d)", (int)quorum,
                         h->size);
    const char *fixed = policy_fixed_quorum(&h->options);
    if (fixed && quorum != h->quorum)
        return error_set(WAGMA_EINVAL, "quorum is %d and cannot become %d: %s", (int)h->quorum,
                         (int)quorum, fixed);
    if (quorum == h->quorum)
        return WAGMA_OK;
    handle_enter_call(h);
    h->quorum = quorum;
    h->calls->set_quorum(h);
    return handle_leave_call(h, handle_check_open(h));
}

int32_t wagma_quorum(const wagma_handle *h) {
    return h->quorum;
}
