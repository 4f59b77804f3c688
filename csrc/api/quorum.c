/* The quorum of a handle, and whether it may change from version to version. */
#include "engine/handle.h"
#include "base/error.h"

/* Why the quorum stays what the handle was made with; NULL: it may change. All results have to
 * reach all ranks, so that a late rank can compare its quorum with the one its version was started
 * with. */
static const char *fixed_quorum(const wagma_options *o) {
    if (o->graph != WAGMA_GRAPH_NONE)
        return "the handle has a graph, where every neighbour is waited for";
    if (o->quorum == WAGMA_QUORUM_MAJORITY)
        return "it was made with WAGMA_QUORUM_MAJORITY (\"majority\")";
    if (o->late == WAGMA_LATE_STALE)
        return "late is WAGMA_LATE_STALE (\"stale\"): set it to WAGMA_LATE_SKIP or _CARRY";
    if (o->group_size != o->size)
        return "group_size is less than size: make the group the world";
    if (o->quorum == o->size)
        return "a handle that was made with all ranks reduces in place and keeps no results for "
               "late ranks: make it with fewer ranks, and set all before the first version";
    return NULL;
}

int handle_quorum_varies(const wagma_options *o) {
    return fixed_quorum(o) == NULL;
}

int wagma_set_quorum(wagma_handle *h, int32_t quorum) {
    const int status = handle_check_ready(h);
    if (status != WAGMA_OK)
        return status;
    if (quorum < 1 || quorum > h->size)
        return error_set(WAGMA_EINVAL, "quorum is %d: it must be 1 to size (%d)", (int)quorum,
                         h->size);
    const char *fixed = fixed_quorum(h->options);
    if (fixed && quorum != h->quorum)
        return error_set(WAGMA_EINVAL, "quorum is %d and cannot become %d: %s", (int)h->quorum,
                         (int)quorum, fixed);
    if (quorum == h->quorum)
        return WAGMA_OK;
    handle_enter_call(h);
    h->quorum = quorum;
    h->executor->set_quorum(h);
    return handle_leave_call(h, handle_check_open(h));
}

int32_t wagma_quorum(const wagma_handle *h) {
    return h->quorum;
}
