/* Waits that last: dead ranks, timeouts, interrupts and warnings. */
#include <math.h>
#include <stdio.h>

#include "handle.h"

#define SHORTEST_WARNING 0.1 /* seconds between warnings, at least: nobody reads them faster */

enum {
    STOPPED_NS = 10 * WAIT_HEARTBEAT_NS
}; /* between two looks: more than a busy machine takes */

/* "1, 2, 5" of ranks[0..n), at most about 20 of them. */
static const char *list_ranks(const int32_t *ranks, int n, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < n && used < size; i++) {
        const int left = n - i;
        if (i == 20 && left > 1) {
            snprintf(text + used, size - used, " and %d more", left);
            break;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%d", i ? ", " : "", ranks[i]);
    }
    return text;
}

int handle_ended(void) {
    return error_set(WAGMA_ECLOSED, "the handle was ended during a call, by another thread or by "
                                    "what its wait let run");
}

/* A hook may end the handle, or wait for a thread that does. */
static int asked_to_stop(wagma_handle *h, const char *phase) {
    if (h->call.testing || !h->hooks.interrupted)
        return WAGMA_OK;
    const int busy = wait_step_aside(&h->wait);
    const int asked = h->hooks.interrupted(h->hooks.context);
    wait_step_back(&h->wait, busy);
    if (!asked)
        return handle_check_open(h);
    return error_set(WAGMA_EINTERRUPTED, "interrupted in version %lld (phase %s)",
                     (long long)h->call.version, phase);
}

static int is_overdue(const wagma_handle *h) {
    return h->call.until != 0 && wait_now() >= h->call.until;
}

void handle_count_delay(wagma_handle *h) {
    const uint64_t now = wait_now(), passed = now - h->call.counted;
    h->call.delay += passed < STOPPED_NS ? passed : WAIT_HEARTBEAT_NS;
    h->call.counted = now;
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
    const uint64_t now = wait_now();
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
                     h->executor->lost(h, rank) == HANDLE_FAILED ? "failed or left without close()"
                                                                 : "is dead",
                     (long long)h->call.version, phase);
}

int handle_heartbeat(wagma_handle *h, const char *phase, const int32_t *missing, int n,
                     int needed) {
    int lost = 0, first = -1;
    for (int i = 0; i < n; i++) {
        if (!h->executor->lost(h, missing[i]))
            continue;
        if (lost++ == 0)
            first = missing[i];
    }
    return n - lost < needed ? handle_lost(h, phase, first)
                             : handle_delayed(h, phase, missing, n, needed);
}

int handle_delayed(wagma_handle *h, const char *phase, const int32_t *missing, int n, int needed) {
    const wagma_options *o = h->options;
    const long long version = (long long)h->call.version;
    char ranks[256];
    handle_count_delay(h);
    const double waited = (double)h->call.delay * 1e-9;
    const int status = asked_to_stop(h, phase);
    if (status != WAGMA_OK)
        return status;
    if (o->timeout >= 0 && waited >= o->timeout)
        return error_set(WAGMA_ESTALL,
                         "version %lld (phase %s) has waited %.3g s (timeout %.3g s) for %d of the "
                         "ranks %s",
                         version, phase, waited, o->timeout, needed,
                         list_ranks(missing, n, ranks, sizeof ranks));
    const double interval = fmax(o->stall_warning, SHORTEST_WARNING);
    if (o->stall_warning >= 0 && h->hooks.warn &&
        waited >= interval * (double)(h->call.warnings + 1)) {
        char message[512];
        h->call.warnings++;
        snprintf(message, sizeof message,
                 "version %lld (phase %s) has waited %.3g s for %d of the ranks %s; none of them "
                 "is known to be dead",
                 version, phase, waited, needed, list_ranks(missing, n, ranks, sizeof ranks));
        const int busy = wait_step_aside(&h->wait);
        h->hooks.warn(h->hooks.context, message);
        wait_step_back(&h->wait, busy);
        if (handle_check_open(h) != WAGMA_OK)
            return WAGMA_ECLOSED;
    }
    if (is_overdue(h))
        return error_set(WAGMA_INPROGRESS,
                         "version %lld (phase %s) is still waiting for %d of the ranks %s", version,
                         phase, needed, list_ranks(missing, n, ranks, sizeof ranks));
    return WAGMA_OK;
}
