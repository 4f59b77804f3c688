/* Timelines and the last events of a handle. */
#include "base/error.h"
#include "engine/handle.h"

int wagma_dump_state(const wagma_handle *h, char *text, size_t size) {
    if (!h)
        return error_set(WAGMA_EINVAL, "handle is NULL");
    if (!text || size == 0)
        return error_set(WAGMA_EINVAL, "text has no room: pass a buffer and its size");
    trace_dump(h->trace, text, size);
    return WAGMA_OK;
}

int wagma_is_traced(const wagma_handle *h) {
    return h && trace_is_on(h->trace);
}

int wagma_label_trace(wagma_handle *h, const wagma_trace_label *label) {
    if (!h)
        return error_set(WAGMA_EINVAL, "handle is NULL");
    if (!label || label->struct_size != sizeof *label)
        return error_set(WAGMA_EINVAL,
                         "label is NULL, or its struct_size is not sizeof(wagma_trace_label)");
    trace_label(h->trace, label);
    return WAGMA_OK;
}
