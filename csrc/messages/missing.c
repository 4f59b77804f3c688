/* Finds the missing ranks of a wait over a transport. A rank that has waited for long asks the
 * others for their versions; their threads answer, also while they compute. Most ranks that a rank
 * waits for are only waiting themselves. An answer therefore names the rank whose data is missing,
 * and tells whether the answering rank is in a call, so that a message names the ranks at the end
 * of such chains. */
#include <math.h>
#include <string.h>

#include "messages/executor.h"

#define SECOND 1000000000.0

enum { ANSWER_NS = 2 * WAIT_HEARTBEAT_NS }; /* one that has not answered after that is silent */

/* ---- questions and answers ------------------------------------------------------------------- */

static void ask(struct messages_executor *e, int rank, uint64_t now) {
    messages_word *w = &e->words[rank];
    if (w->asked <= w->heard)
        w->asked = now;
}

static int ask_directly(wagma_handle *h, int rank, uint64_t now) {
    const struct activation_message m = {.kind = ACTIVATION_INQUIRE, .version = h->call.version};
    ask(h->state, rank, now);
    return messages_send(h, rank, &m);
}

/* Seconds from the beginning of a wait to the first question: not before the first look. */
static double first_question(const wagma_options *o) {
    return o->timeout < 0 || o->timeout > 4 ? 1 : fmax(o->timeout / 4, WAIT_HEARTBEAT_NS / SECOND);
}

/* 1: `due` seconds of the wait have passed, and no question was asked since. */
static int has_passed(const struct messages_executor *e, double waited, double due) {
    return due > 0 && waited >= due && e->inquired < due;
}

/* Return 1 if it is time to ask: after a second (or a quarter of the timeout), after 2, 4, 8 ...
 * times that, and before a message that names the missing ranks. Not more often: every waiting rank
 * asks all others. */
static int has_to_ask(wagma_handle *h) {
    struct messages_executor *e = h->state;
    const wagma_options *o = e->options;
    const double first = first_question(o);
    const double waited = (double)h->call.delay / SECOND;
    double due = first;
    while (2 * due <= waited)
        due *= 2;
    if (!has_passed(e, waited, due) && !has_passed(e, waited, o->timeout - first) &&
        !has_passed(e, waited, o->stall_warning * (h->call.warnings + 1) - first))
        return 0;
    e->inquired = waited;
    return 1;
}

int messages_inquire(wagma_handle *h, uint64_t now) {
    struct messages_executor *e = h->state;
    int status = WAGMA_OK;
    handle_count_delay(h);
    if (!has_to_ask(h))
        return WAGMA_OK;
    if (e->activation) { /* which may have more to say to them */
        for (int r = 0; r < h->size; r++)
            ask(e, r, now);
        return messages_tell(h, ACTIVATION_EVENT_INQUIRE);
    }
    for (int r = 0; r < h->size && status == WAGMA_OK; r++)
        if (r != h->rank)
            status = ask_directly(h, r, now);
    return status;
}

void messages_note_word(struct messages_executor *e, int from, const struct activation_message *m) {
    messages_word *w = &e->words[from];
    w->told = clock_now();
    w->calls = m->sync;
    w->lacks = m->detail >= 0 && m->detail < e->options->size ? m->detail : -1;
}

/* Return the answer of a rank in this wait; NULL: none yet. */
static const messages_word *answer_of(const wagma_handle *h, int rank) {
    const messages_word *w = &messages_of(h)->words[rank];
    return w->told >= h->call.began ? w : NULL;
}

enum handle_presence messages_presence(wagma_handle *h, int rank, int *has_called) {
    const struct messages_executor *e = h->state;
    const messages_word *w = &e->words[rank];
    if (!h->call.active)
        *has_called = e->core->has_departed(e, rank);
    else
        *has_called = e->activation && !activation_behind(e->activation, rank);
    if (w->asked > w->heard && clock_now() - w->asked >= ANSWER_NS)
        return HANDLE_IS_SILENT;
    return answer_of(h, rank) ? HANDLE_LIVES : HANDLE_UNKNOWN;
}

/* ---- of a call ------------------------------------------------------------------------------- */

/* The rank for which `rank` waits in the end. */
static int end_of_chain(const wagma_handle *h, int rank) {
    int at = rank;
    for (int steps = 0; steps < h->size; steps++) {
        const messages_word *w = answer_of(h, at);
        if (!w || w->lacks < 0)
            return at;
        if (w->lacks == h->rank)
            break;
        at = w->lacks;
    }
    return rank; /* each waits for the next one, in a circle: messages are on their way */
}

static int has(const int32_t *ranks, int n, int rank) {
    for (int i = 0; i < n; i++)
        if (ranks[i] == rank)
            return 1;
    return 0;
}

int messages_follow(wagma_handle *h, int32_t *ranks, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
        const int rank = end_of_chain(h, ranks[i]);
        if (!has(ranks, kept, rank))
            ranks[kept++] = rank;
    }
    for (int i = 1; i < kept; i++) /* ascending */
        for (int k = i; k > 0 && ranks[k - 1] > ranks[k]; k--) {
            const int32_t rank = ranks[k];
            ranks[k] = ranks[k - 1];
            ranks[k - 1] = rank;
        }
    return kept;
}

static int is_in_call(const wagma_handle *h, int rank) {
    const messages_word *w = answer_of(h, rank);
    return w && w->calls;
}

/* Leaves out those that are in a call, where others are not. */
static int leave_out_callers(const wagma_handle *h, int32_t *ranks, int n) {
    int kept = 0, callers = 0;
    for (int i = 0; i < n; i++)
        callers += is_in_call(h, ranks[i]);
    for (int i = 0; i < n && callers < n; i++)
        if (!is_in_call(h, ranks[i]))
            ranks[kept++] = ranks[i];
    return callers < n ? kept : n;
}

int messages_missing_in_groups(wagma_handle *h, const struct activation_call *answer,
                               int32_t *ranks, int *needed) {
    struct messages_executor *e = h->state;
    const messages_version *v = messages_version_find(e, answer->taken);
    const int sender = v && v->exchange ? exchange_missing(v->exchange) : -1;
    int n = activation_missing(e->activation, ranks, needed);
    const int are_behind = n > 0 && activation_behind(e->activation, ranks[0]);
    const int all_have_to_come = h->call.sync || h->policy.in_place;
    if (are_behind && (all_have_to_come || answer->state != ACTIVATION_WAITS_DATA)) {
        n = leave_out_callers(h, ranks, n);
    } else if (sender >= 0) {
        ranks[0] = sender;
        n = messages_follow(h, ranks, 1);
        *needed = n;
    }
    *needed = *needed < n ? *needed : n;
    return n;
}

/* ---- of all ranks together ------------------------------------------------------------------- */

/* Which ranks have given a sign of life since the last look. */
static void see_signs(wagma_handle *h, uint64_t now) {
    struct messages_executor *e = h->state;
    handle_count_delay(h);
    for (int r = 0; r < h->size; r++)
        if (e->words[r].heard >= e->signs)
            e->words[r].sign = h->call.delay;
    e->signs = now;
}

/* For how long this rank has waited, ns, since the last sign of life of `rank`. */
static uint64_t silence_of(const wagma_handle *h, int rank) {
    const struct messages_executor *e = h->state;
    const uint64_t sign = e->words[rank].sign;
    return h->call.delay - (sign > e->together ? sign : e->together);
}

static int ask_the_silent(wagma_handle *h, const int32_t *ranks, int n, uint64_t now) {
    struct messages_executor *e = h->state;
    const uint64_t pause = (uint64_t)(first_question(e->options) * SECOND);
    int status = WAGMA_OK;
    if (h->call.delay - e->questions < pause)
        return WAGMA_OK;
    e->questions = h->call.delay;
    for (int i = 0; i < n && status == WAGMA_OK; i++)
        if (silence_of(h, ranks[i]) >= pause / 2)
            status = ask_directly(h, ranks[i], now);
    return status;
}

/* Write the ranks that have not arrived, or not departed; if all have, all other ranks. */
static int absent(wagma_handle *h, enum trace_wait what, int32_t *ranks) {
    const struct messages_executor *e = h->state;
    int n = 0;
    for (int r = 0; r < h->size; r++)
        if (r != h->rank &&
            (what == TRACE_FOR_CREATION ? e->words[r].heard == 0 : !e->core->has_departed(e, r)))
            ranks[n++] = r;
    for (int r = 0; n == 0 && r < h->size; r++)
        if (r != h->rank)
            ranks[n++] = r;
    return n;
}

int messages_missing_together(wagma_handle *h, enum trace_wait what, int32_t *ranks, uint64_t now,
                              int *n) {
    struct messages_executor *e = h->state;
    uint64_t longest = 0, least = UINT64_MAX;
    int status = WAGMA_OK;
    *n = absent(h, what, ranks);
    see_signs(h, now);
    /* Questions on their way would keep the last sums from agreeing (messages/end.c). */
    if (what == TRACE_FOR_CREATION || !e->adding)
        status = ask_the_silent(h, ranks, *n, now);
    if (what == TRACE_FOR_CREATION || status != WAGMA_OK)
        return status;
    for (int i = 0; i < *n; i++) {
        const uint64_t silence = silence_of(h, ranks[i]);
        longest = silence > longest ? silence : longest;
        least = silence < least ? silence : least;
    }
    const uint64_t silence = e->adding ? least : longest;
    const double timeout = e->options->timeout;
    const int is_over = timeout >= 0 && (double)silence / SECOND >= timeout;
    h->call.alive = is_over ? h->call.delay - silence : h->call.delay;
    int kept = 0;
    for (int i = 0; is_over && i < *n; i++)
        if ((double)silence_of(h, ranks[i]) / SECOND >= timeout)
            ranks[kept++] = ranks[i];
    *n = is_over ? kept : *n;
    return WAGMA_OK;
}
