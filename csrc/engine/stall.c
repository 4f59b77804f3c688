/* Long waits: dead ranks, timeouts, interrupts and warnings. */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "engine/absence.h"
#include "trace/text.h"

#define SHORTEST_WARNING 0.1 /* seconds between warnings, at least: nobody reads them faster */

enum {
    STOPPED_NS = 10 * WAIT_HEARTBEAT_NS
}; /* between two looks: more than a busy machine takes */

/* At the end ranks wait for each other until nothing is on its way: until all have closed. */
const char *handle_phase(enum trace_wait what) {
    return what == TRACE_FOR_DRAIN ? "close" : trace_wait_name((int)what);
}

int handle_ended(void) {
    return error_set(WAGMA_ECLOSED, "the handle was ended during a call, by another thread or by "
                                    "what its wait let run");
}

/* A hook may end the handle, or wait for a thread that does. */
static int asked_to_stop(wagma_handle *h, const char *phase) {
    if (h->call.testing || !h->hooks.interrupted)
        return WAGMA_OK;
    const int busy = handle_step_aside(h);
    const int asked = h->hooks.interrupted(h->hooks.context);
    handle_step_back(h, busy);
    if (!asked)
        return handle_check_open(h);
    return error_set(WAGMA_EINTERRUPTED, "interrupted in version %lld (phase %s)",
                     (long long)h->call.version, phase);
}

static int is_overdue(const wagma_handle *h) {
    return h->call.until != 0 && clock_now() >= h->call.until;
}

void handle_count_delay(wagma_handle *h) {
    const uint64_t now = clock_now(), passed = now - h->call.counted;
    h->call.delay += passed < STOPPED_NS ? passed : WAIT_HEARTBEAT_NS;
    h->call.counted = now;
}

void handle_restart_delay(wagma_handle *h) {
    h->call.counted = clock_now();
    h->call.delay = 0;
    h->call.warnings = 0;
}

int handle_interrupted(wagma_handle *h, const char *phase) {
    handle_count_delay(h);
    const int status = asked_to_stop(h, phase);
    if (status != WAGMA_OK || !is_overdue(h))
        return status;
    return error_set(WAGMA_INPROGRESS, "version %lld is still in phase %s",
                     (long long)h->call.version, phase);
}

int handle_look_due(wagma_handle *h) {
    const uint64_t now = clock_now();
    if (now < h->call.look)
        return 0;
    h->call.look = now + WAIT_HEARTBEAT_NS;
    return 1;
}

int handle_lost(wagma_handle *h, const char *phase, int32_t rank) {
    return error_set(WAGMA_EPEER,
                     "rank %d %s, and version %lld (phase %s) needs it: make a new handle "
                     "without it",
                     rank,
                     h->calls->lost(h, rank) == HANDLE_FAILED ? "failed or left without close()"
                                                              : "is dead",
                     (long long)h->call.version, phase);
}

int handle_heartbeat(wagma_handle *h, const char *phase, const int32_t *missing, int n,
                     int needed) {
    int lost = 0, first = -1;
    for (int i = 0; i < n; i++) {
        if (!h->calls->lost(h, missing[i]))
            continue;
        if (lost++ == 0)
            first = missing[i];
    }
    return n - lost < needed ? handle_lost(h, phase, first)
                             : handle_delayed(h, phase, missing, n, needed);
}

int handle_delayed(wagma_handle *h, const char *phase, const int32_t *missing, int n, int needed) {
    const wagma_options *o = &h->options;
    char how_long[128], ranks[ABSENCE_TEXT];
    handle_count_delay(h);
    const double waited = (double)h->call.delay * 1e-9;
    const double idle = (double)(h->call.delay - h->call.alive) * 1e-9;
    const int status = asked_to_stop(h, phase);
    if (status != WAGMA_OK)
        return status;
    const double interval = fmax(o->stall_warning, SHORTEST_WARNING);
    const int stalls = o->timeout >= 0 && idle >= o->timeout;
    const int warns = o->stall_warning >= 0 && h->hooks.warn &&
                      waited >= interval * (double)(h->call.warnings + 1);
    if (!stalls && !warns && !is_overdue(h))
        return WAGMA_OK;
    absence_waited(h, phase, waited, how_long, sizeof how_long);
    absence_ranks(h, phase, missing, n, needed, ranks, sizeof ranks);
    if (stalls)
        return error_set(WAGMA_ESTALL, "%s for %s (timeout %.3g s)", how_long, ranks, o->timeout);
    if (warns) {
        char message[sizeof how_long + sizeof ranks + 8];
        h->call.warnings++;
        snprintf(message, sizeof message, "%s for %s", how_long, ranks);
        const int busy = handle_step_aside(h);
        h->hooks.warn(h->hooks.context, message);
        handle_step_back(h, busy);
        if (handle_check_open(h) != WAGMA_OK)
            return WAGMA_ECLOSED;
    }
    return is_overdue(h) ? error_set(WAGMA_INPROGRESS, "%s for %s", how_long, ranks) : WAGMA_OK;
}
