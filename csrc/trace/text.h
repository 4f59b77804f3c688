/* The words for events, and what a timeline says of them. Pure. */
#ifndef WAGMA_TRACE_TEXT_H
#define WAGMA_TRACE_TEXT_H

#include "trace/events.h"

/* An event, out of a ring or a timeline. */
struct trace_seen {
    uint64_t began, duration; /* ns */
    int64_t version;
    int32_t kind, peer, detail;
};

struct trace_seen trace_see(const struct trace_event *event);
/* trace/events.c: event number i of the ring, maybe while another thread records; 0: it has been
 * overwritten. */
int trace_read(const struct trace *t, uint64_t i, struct trace_seen *event);

int trace_kind_is_span(int kind);
const char *trace_kind_name(int kind);
const char *trace_wait_name(int what);
/* Return the name of a wagma_status that breaks a handle. */
const char *trace_status_name(int status);
/* Return the name of the control message of a SEND or RECEIVE, "?" where it has none. */
const char *trace_message_text(const struct trace_seen *event, trace_message_name *name);

/* Print what is in `event` beside kind and version: "for the quorum", "to 3: activate", or "". */
void trace_detail_text(const struct trace_seen *event, trace_message_name *name, char *text,
                       size_t size);

#endif
