/* The flight recorder: a handle's last events, as text. */
#include "trace/events.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/numbers.h"
#include "trace/text.h"
#include "trace/timeline.h"

int trace_create(const struct trace_origin *origin, struct trace **trace) {
    *trace = NULL;
    struct trace *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(WAGMA_ENOMEM, "no memory for a handle's last events");
    t->rank = origin->rank;
    t->size = origin->options->size;
    atomic_init(&t->calling, -1);
    atomic_init(&t->newest, clock_now());
    const int status = timeline_create(origin, &t->timeline);
    if (status != WAGMA_OK) {
        free(t);
        return status;
    }
    t->shared = origin->shared;
    t->slow = t->shared || t->timeline;
    pthread_mutex_init(&t->lock, NULL);
    *trace = t;
    return WAGMA_OK;
}

void trace_name_messages(struct trace *t, trace_message_name *name) {
    t->message_name = name;
    if (t->timeline)
        timeline_name_messages(t->timeline, name);
}

int trace_write(struct trace *t) {
    return t->timeline ? timeline_write(t->timeline) : WAGMA_OK;
}

void trace_free(struct trace *t) {
    if (!t)
        return;
    timeline_free(t->timeline);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void trace_label(struct trace *t, const wagma_trace_label *label) {
    if (t->timeline)
        timeline_label(t->timeline, label);
}

void trace_record_slowly(struct trace *t, enum trace_kind kind, uint64_t began, uint64_t duration,
                         int64_t version, int peer, int detail) {
    if (t->shared)
        pthread_mutex_lock(&t->lock);
    const struct trace_event *event = trace_put(t, kind, began, duration, version, peer, detail);
    if (t->timeline)
        timeline_keep(t->timeline, event);
    if (t->shared)
        pthread_mutex_unlock(&t->lock);
}

/* ---- text ------------------------------------------------------------------------------------ */

int trace_read(const struct trace *t, uint64_t i, struct trace_seen *event) {
    *event = trace_see(&t->ring[i % TRACE_RING]);
    /* acquire: pairs with trace_record(). Event i + TRACE_RING is being written from when
     * `recorded` is i + TRACE_RING on. */
    return atomic_load_explicit(&t->recorded, memory_order_acquire) < i + TRACE_RING;
}

static int format_event(const struct trace *t, const struct trace_seen *e, uint64_t now, char *line,
                        size_t size) {
    char detail[64], took[32] = "";
    trace_detail_text(e, t->message_name, detail, sizeof detail);
    if (e->duration)
        numbers_print(took, sizeof took, ", %.1f us", (double)e->duration * 1e-3);
    return numbers_print(line, size, "%14.6f s ago  version %lld: %s%s%s\n",
                         (double)(int64_t)(now - e->began) * 1e-9, (long long)e->version,
                         trace_kind_name(e->kind), detail, took);
}

static int format_head(struct trace *t, uint64_t now, char *line, size_t size) {
    /* relaxed: words that tell, each by itself, what this moment is like */
    const int64_t version = atomic_load_explicit(&t->calling, memory_order_relaxed);
    const uint64_t called = atomic_load_explicit(&t->called, memory_order_relaxed);
    const int32_t waiting = atomic_load_explicit(&t->waiting, memory_order_relaxed);
    if (version < 0)
        return snprintf(line, size, "rank %d of %d: in no call; its last events:\n", t->rank,
                        t->size);
    return numbers_print(
        line, size, "rank %d of %d: in version %lld for %.6f s%s%s; its last events:\n", t->rank,
        t->size, (long long)version, (double)(int64_t)(now - called) * 1e-9,
        waiting ? ", waits for " : "", waiting ? trace_wait_name(waiting) : "");
}

void trace_dump(struct trace *t, char *text, size_t size) {
    const uint64_t now = clock_now();
    char line[192];
    if (size == 0)
        return;
    /* acquire: the events before */
    const uint64_t end = atomic_load_explicit(&t->recorded, memory_order_acquire);
    const uint64_t oldest = end > TRACE_RING ? end - TRACE_RING : 0;
    size_t used = (size_t)snprintf(text, size, "%s", "");
    size_t left = size - 1, lines = (size_t)format_head(t, now, line, sizeof line);
    if (lines > left)
        return;
    used = (size_t)snprintf(text, size, "%s", line);
    left -= used;
    /* The newest are the ones that matter: as many of them as fit. */
    uint64_t first = end;
    struct trace_seen event;
    while (first > oldest && trace_read(t, first - 1, &event)) {
        const size_t length = (size_t)format_event(t, &event, now, line, sizeof line);
        if (length > left)
            break;
        left -= length;
        first--;
    }
    for (; first < end; first++)
        if (trace_read(t, first, &event) &&
            (size_t)format_event(t, &event, now, line, sizeof line) < size - used)
            used += (size_t)snprintf(text + used, size - used, "%s", line);
}
