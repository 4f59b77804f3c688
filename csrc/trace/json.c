/* A timeline as JSON, in the Trace Event Format that Perfetto and chrome://tracing read: one event
 * per line. Times are microseconds of this node's CLOCK_MONOTONIC; `python -m wagma trace merge`
 * puts the ranks' files on one clock. */
#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "trace/text.h"
#include "trace/timeline.h"

/* Tracks of a rank: the caller, whose spans nest; moments; sums, where a progress thread makes
 * them; and the steps of exchanges, which overlap each other, on as many as that needs. */
enum { TRACK_CALLER, TRACK_MOMENTS, TRACK_SUMS, TRACK_STEPS, TRACK_STEPS_MAX = 16 };

static void print_string(FILE *file, const char *text) {
    fputc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(file, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(file, "\\u%04x", *c);
        else
            fputc(*c, file);
    }
    fputc('"', file);
}

static void print_microseconds(FILE *file, uint64_t ns) {
    fprintf(file, "%" PRIu64 ".%03u", ns / 1000, (unsigned)(ns % 1000));
}

/* ---- what is said of all events -------------------------------------------------------------- */

static void print_clock(FILE *file, const struct trace_timeline *t) {
    fprintf(file, "\"clock\": {\"boot\": ");
    print_string(file, t->boot);
    fprintf(file, ", \"namespace\": ");
    print_string(file, t->space);
    fprintf(file, ", \"realtime_ns\": %" PRId64, t->realtime_ns);
    if (t->clock_compared)
        fprintf(file, ", \"to_rank_0_ns\": %" PRId64 ", \"error_ns\": %" PRIu64, t->clock_offset_ns,
                t->clock_error_ns);
    fprintf(file, "}");
}

static void print_head(FILE *file, const struct trace_timeline *t) {
    const wagma_options *o = &t->options;
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1);
    fprintf(file, "{\"displayTimeUnit\": \"ns\",\n\"otherData\": {\"wagma\": 1, \"handle\": ");
    print_string(file, *t->name ? t->name : "handle");
    fprintf(file, ", \"collective\": \"%016" PRIx64 "\", \"rank\": %d, \"size\": %d", t->collective,
            t->rank, o->size);
    fprintf(file, ", \"group_size\": %d, \"quorum\": %d, \"transport\": ", o->group_size,
            o->quorum);
    print_string(file, t->transport);
    fprintf(file, ", \"host\": ");
    print_string(file, host);
    fprintf(file, ", \"process\": \"%ld-%" PRIu64 "\"", (long)t->pid, t->since);
    fprintf(file, ", \"events\": %" PRIu64 ", \"dropped\": %" PRIu64 ",\n", t->kept, t->dropped);
    print_clock(file, t);
    fprintf(file, "},\n\"traceEvents\": [\n");
}

static void print_name(FILE *file, const struct trace_timeline *t, const char *what, int track,
                       const char *name) {
    fprintf(file, "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"%s\", \"args\": {",
            t->rank, track, what);
    fprintf(file, "\"name\": ");
    print_string(file, name);
    fprintf(file, "}},\n");
}

/* ---- events ---------------------------------------------------------------------------------- */

struct tracks {
    uint64_t until[TRACK_STEPS_MAX]; /* ns: the track of a step is taken */
    int used;
};

static int track_of(const struct trace_timeline *t, struct tracks *tracks,
                    const struct trace_seen *e) {
    if (e->kind == TRACE_REDUCE && t->shared)
        return TRACK_SUMS;
    if (e->kind < TRACE_PHASE || e->kind == TRACE_ARRIVAL)
        return TRACK_CALLER;
    if (e->kind > TRACE_PHASE)
        return TRACK_MOMENTS;
    int i = 0;
    while (i < TRACK_STEPS_MAX - 1 && tracks->until[i] > e->began)
        i++;
    tracks->until[i] = e->began + e->duration;
    tracks->used = i < tracks->used ? tracks->used : i + 1;
    return TRACK_STEPS + i;
}

/* The ranks of the group in which this rank takes a version that is no sync version. */
static void print_group(FILE *file, const struct trace_timeline *t, int64_t version) {
    int32_t members[WAGMA_MAX_RANKS];
    const int n = t->group ? t->group(t->groups, t->rank, version, members) : 0;
    fprintf(file, ", \"group\": [");
    for (int i = 0; i < n; i++)
        fprintf(file, "%s%d", i ? ", " : "", members[i]);
    fprintf(file, "]");
}

static void print_arguments(FILE *file, const struct trace_timeline *t,
                            const struct trace_seen *e) {
    fprintf(file, "\"args\": {\"version\": %" PRId64, e->version);
    if (e->peer >= 0)
        fprintf(file, ", \"peer\": %d", e->peer);
    switch (e->kind) {
    case TRACE_COMPUTE: fprintf(file, ", \"pending\": %s", e->detail ? "true" : "false"); break;
    case TRACE_CALL:
        fprintf(file, ", \"late\": %s, \"merged\": %s, \"sync\": %s, \"posted\": %s, \"broke\": %s",
                e->detail & TRACE_LATE ? "true" : "false",
                e->detail & TRACE_UNMERGED ? "false" : "true",
                e->detail & TRACE_SYNC ? "true" : "false",
                e->detail & TRACE_POSTED ? "true" : "false",
                e->detail & TRACE_BROKE ? "true" : "false");
        if (!(e->detail & TRACE_SYNC))
            print_group(file, t, e->version);
        break;
    case TRACE_WAIT: fprintf(file, ", \"for\": \"%s\"", trace_wait_name(e->detail)); break;
    case TRACE_REDUCE: fprintf(file, ", \"slice\": %d", e->detail); break;
    case TRACE_PHASE: fprintf(file, ", \"phase\": %d", e->detail); break;
    case TRACE_SEND:
    case TRACE_RECEIVE:
        fprintf(file, ", \"message\": \"%s\"", trace_message_text(e, t->message_name));
        break;
    case TRACE_PIN:
        if (e->detail == TRACE_WITHOUT)
            fprintf(file, ", \"contributes\": false");
        else
            fprintf(file, ", \"contributes\": true, \"behind\": %d", e->detail);
        break;
    case TRACE_ERROR: fprintf(file, ", \"status\": \"%s\"", trace_status_name(e->detail)); break;
    default: break;
    }
    fprintf(file, "}");
}

static void print_event(FILE *file, const struct trace_timeline *t, struct tracks *tracks,
                        const struct trace_seen *e) {
    fprintf(file, "{\"ph\": \"%s\", \"pid\": %d, \"tid\": %d, \"cat\": \"%s\", \"name\": \"%s",
            trace_kind_is_span(e->kind) ? "X" : "i", t->rank, track_of(t, tracks, e),
            trace_kind_name(e->kind), trace_kind_name(e->kind));
    /* names by which a viewer tells and colours them */
    if (e->kind == TRACE_WAIT)
        fprintf(file, " for %s", trace_wait_name(e->detail));
    else if (e->kind == TRACE_SEND || e->kind == TRACE_RECEIVE)
        fprintf(file, " %s", trace_message_text(e, t->message_name));
    fprintf(file, "\", \"ts\": ");
    print_microseconds(file, e->began);
    if (trace_kind_is_span(e->kind)) {
        fprintf(file, ", \"dur\": ");
        print_microseconds(file, e->duration);
    } else {
        fprintf(file, ", \"s\": \"t\"");
    }
    fprintf(file, ", ");
    print_arguments(file, t, e);
    fprintf(file, "},\n");
}

int timeline_print(const struct trace_timeline *t, FILE *file) {
    char text[64];
    struct tracks tracks = {{0}, 0};
    print_head(file, t);
    const struct timeline_block *block = t->first;
    for (uint64_t i = 0; i < t->kept; i++) {
        if (i != 0 && i % TIMELINE_BLOCK == 0)
            block = block->next;
        const struct trace_seen event = trace_see(&block->events[i % TIMELINE_BLOCK]);
        print_event(file, t, &tracks, &event);
    }
    print_name(file, t, "thread_name", TRACK_CALLER, "caller");
    print_name(file, t, "thread_name", TRACK_MOMENTS, "moments");
    if (t->shared)
        print_name(file, t, "thread_name", TRACK_SUMS, "sums");
    for (int i = 0; i < tracks.used; i++) {
        snprintf(text, sizeof text, "exchange %d", i + 1);
        print_name(file, t, "thread_name", TRACK_STEPS + i, text);
    }
    /* The last one without a comma. */
    fprintf(file,
            "{\"ph\": \"M\", \"pid\": %d, \"tid\": 0, \"name\": \"process_name\", \"args\": "
            "{\"name\": \"rank %d\"}}\n]}\n",
            t->rank, t->rank);
    errno = 0;
    return ferror(file) || fflush(file) != 0 ? -1 : 0;
}
