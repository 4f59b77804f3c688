/* See trace/text.h. */
#include "trace/text.h"

#include <stdio.h>

struct trace_seen trace_see(const struct trace_event *event) {
    /* acquire: pairs with trace_record(), for trace_read() */
    const uint64_t began = atomic_load_explicit(&event->began, memory_order_acquire);
    const uint64_t duration = atomic_load_explicit(&event->duration, memory_order_acquire);
    const uint64_t what = atomic_load_explicit(&event->what, memory_order_acquire);
    const uint64_t how = atomic_load_explicit(&event->how, memory_order_acquire);
    return (struct trace_seen){
        .began = began,
        .duration = duration,
        .version = (int64_t)what >> 8,
        .kind = (int32_t)(what & 255),
        .peer = (int32_t)(how >> 32),
        .detail = (int32_t)how,
    };
}

static const char *const kinds[TRACE_KINDS] = {
    [TRACE_COMPUTE] = "compute", [TRACE_CALL] = "call",       [TRACE_WAIT] = "wait",
    [TRACE_WRITE] = "write",     [TRACE_REDUCE] = "reduce",   [TRACE_MERGE] = "merge",
    [TRACE_PHASE] = "phase",     [TRACE_ARRIVAL] = "arrival", [TRACE_SEND] = "send",
    [TRACE_RECEIVE] = "receive", [TRACE_PIN] = "pin",         [TRACE_COMPLETE] = "complete",
    [TRACE_ERROR] = "error",
};

static const char *const waits[TRACE_WAITS] = {
    [TRACE_FOR_NOTHING] = "nothing", [TRACE_FOR_CREATION] = "creation",
    [TRACE_FOR_WINDOW] = "window",   [TRACE_FOR_QUORUM] = "quorum",
    [TRACE_FOR_SYNC] = "sync",       [TRACE_FOR_GRACE] = "grace",
    [TRACE_FOR_BUFFER] = "buffer",   [TRACE_FOR_ROUND] = "round",
    [TRACE_FOR_SLICES] = "slices",   [TRACE_FOR_DATA] = "data",
    [TRACE_FOR_DRAIN] = "drain",     [TRACE_FOR_NEIGHBORS] = "neighbors",
    [TRACE_FOR_DEVICE] = "device",
};

int trace_kind_is_span(int kind) {
    return kind <= TRACE_PHASE;
}

const char *trace_kind_name(int kind) {
    return kind >= 0 && kind < TRACE_KINDS ? kinds[kind] : "?";
}

const char *trace_wait_name(int what) {
    return what >= 0 && what < TRACE_WAITS ? waits[what] : "?";
}

const char *trace_message_text(const struct trace_seen *e, trace_message_name *name) {
    const char *text = name ? name(e->detail) : NULL;
    return text ? text : "?";
}

const char *trace_status_name(int status) {
    switch (status) {
    case WAGMA_ESTALL: return "stalled";
    case WAGMA_EPEER: return "peer lost";
    case WAGMA_EMISMATCH: return "mismatch";
    case WAGMA_EQUORUM: return "quorums differ";
    case WAGMA_EINTERRUPTED: return "interrupted";
    case WAGMA_ENOMEM:
    case WAGMA_ENOSPC: return "no memory";
    default: return "failed";
    }
}

static void call_text(int detail, char *text, size_t size) {
    snprintf(text, size, "%s%s%s%s%s", detail & TRACE_SYNC ? " sync" : "",
             detail & TRACE_POSTED ? " posted" : "", detail & TRACE_LATE ? " late" : "",
             detail & TRACE_UNMERGED ? " unmerged" : "", detail & TRACE_BROKE ? " broke" : "");
}

void trace_detail_text(const struct trace_seen *e, trace_message_name *name, char *text,
                       size_t size) {
    char peer[16] = "";
    text[0] = 0;
    if (e->peer >= 0)
        snprintf(peer, sizeof peer, " %d", e->peer);
    switch (e->kind) {
    case TRACE_COMPUTE: snprintf(text, size, "%s", e->detail ? " while posted" : ""); break;
    case TRACE_CALL: call_text(e->detail, text, size); break;
    case TRACE_WAIT:
        snprintf(text, size, " for %s%s%s", trace_wait_name(e->detail), *peer ? " of" : "", peer);
        break;
    case TRACE_REDUCE: snprintf(text, size, " slice %d", e->detail); break;
    case TRACE_PHASE: snprintf(text, size, " %d%s%s", e->detail, *peer ? " with" : "", peer); break;
    case TRACE_SEND: snprintf(text, size, " %s to%s", trace_message_text(e, name), peer); break;
    case TRACE_RECEIVE:
        snprintf(text, size, " %s from%s", trace_message_text(e, name), peer);
        break;
    case TRACE_PIN:
        if (e->detail == TRACE_WITHOUT)
            snprintf(text, size, " without this rank's contribution");
        else if (e->detail)
            snprintf(text, size, " %d behind", e->detail);
        break;
    case TRACE_ERROR: snprintf(text, size, ": %s", trace_status_name(e->detail)); break;
    default: break;
    }
}
