#include "engine/absence.h"

#include <stdio.h>
#include <string.h>

#include "base/numbers.h"

/* ---- what ranks have not done ---------------------------------------------------------------- */

struct deed {
    const char *phase;
    const char *one, *many;       /* of ranks that have not called */
    const char *caller, *callers; /* of those that have, or where that makes no difference */
};

static const struct deed deeds[] = {
    {"quorum", "has not called yet", "have not called yet", "has called, but not sent its data yet",
     "have called, but not sent their data yet"},
    {"creation", "has not joined yet", "have not joined yet", "has joined, but says nothing more",
     "have joined, but say nothing more"},
    {"close", "has not closed yet", "have not closed yet",
     "has closed, but not sent its last messages yet",
     "have closed, but not sent their last messages yet"},
    {"window", "is too many versions behind", "are too many versions behind", NULL, NULL},
    {"data", "has not sent its data yet", "have not sent their data yet", NULL, NULL},
    {"slices", "has not done its part yet", "have not done their parts yet", NULL, NULL},
    {"buffer", "still reads an earlier contribution", "still read earlier contributions", NULL,
     NULL},
    {"device", "has not finished its work on the device yet",
     "have not finished their work on the device yet", NULL, NULL},
    {"round", "still uses an earlier result", "still use earlier results", NULL, NULL},
};

/* Return what the ranks have not done in a phase, also in one without a row: "sync", "neighbors".
 */
static const char *undone(const char *phase, int has_called, int several) {
    const struct deed *d = &deeds[0];
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++)
        if (strcmp(phase, deeds[i].phase) == 0)
            d = &deeds[i];
    if (has_called && d->caller)
        return several ? d->callers : d->caller;
    return several ? d->many : d->one;
}

/* ---- who ------------------------------------------------------------------------------------- */

enum { CALLED = 16 }; /* beside an enum handle_presence */

static int known(wagma_handle *h, int32_t rank) {
    const enum handle_loss loss = h->calls->lost(h, rank);
    int has_called = 0;
    if (loss == HANDLE_FAILED)
        return HANDLE_HAS_FAILED;
    if (loss == HANDLE_DEAD)
        return HANDLE_HAS_DIED;
    const enum handle_presence presence = h->calls->presence(h, rank, &has_called);
    return (int)presence | (has_called ? CALLED : 0);
}

static const char *state_of(int what, int several) {
    switch (what & ~CALLED) {
    case HANDLE_LIVES: return several ? "are alive and " : "is alive and ";
    case HANDLE_IS_SILENT: return several ? "do not answer and " : "does not answer and ";
    case HANDLE_HAS_FAILED: return several ? "have failed" : "has failed";
    case HANDLE_HAS_DIED: return several ? "are dead" : "is dead";
    default: return "";
    }
}

struct text {
    char *at;
    size_t size, used;
};

static void add(struct text *t, const char *words) {
    const int n = snprintf(t->at + t->used, t->size - t->used, "%s", words);
    t->used += (size_t)n < t->size - t->used ? (size_t)n : t->size - t->used - 1;
}

static void add_number(struct text *t, const char *before, long long number) {
    char words[64];
    snprintf(words, sizeof words, "%s%lld", before, number);
    add(t, words);
}

enum { RUNS = 8 }; /* of ranks, in a message */

/* "rank 3", "ranks 0-2, 5" of those of ranks[0..n) about which `what` is known; their number. */
static int add_ranks(struct text *t, const int32_t *ranks, const int *what_of, int n, int what) {
    int count = 0, runs = 0, left_out = 0;
    for (int i = 0; i < n; i++)
        count += what_of[i] == what;
    add(t, count == 1 ? "rank" : "ranks");
    for (int i = 0; i < n; i++) {
        int end = i;
        if (what_of[i] != what)
            continue;
        while (end + 1 < n && what_of[end + 1] == what && ranks[end + 1] == ranks[end] + 1)
            end++;
        if (++runs > RUNS) {
            left_out += end - i + 1;
        } else {
            add_number(t, runs == 1 ? " " : ", ", ranks[i]);
            if (end > i)
                add_number(t, "-", ranks[end]);
        }
        i = end;
    }
    if (left_out > 0) {
        add_number(t, " and ", left_out);
        add(t, " more");
    }
    return count;
}

void absence_ranks(wagma_handle *h, const char *phase, const int32_t *missing, int n, int needed,
                   char *text, size_t size) {
    struct text t = {text, size, 0};
    int what_of[WAGMA_MAX_RANKS];
    text[0] = 0;
    if (needed < n)
        add_number(&t, "", needed), add(&t, " of ");
    for (int i = 0; i < n; i++)
        what_of[i] = known(h, missing[i]);
    for (int i = 0; i < n; i++) {
        const int what = what_of[i];
        int is_new = 1;
        for (int k = 0; k < i; k++)
            is_new &= what_of[k] != what;
        if (!is_new)
            continue;
        if (i > 0)
            add(&t, ", and ");
        const int several = add_ranks(&t, missing, what_of, n, what) > 1;
        add(&t, ", which ");
        add(&t, state_of(what, several));
        if (what != HANDLE_HAS_FAILED && what != HANDLE_HAS_DIED)
            add(&t, undone(phase, what & CALLED, several));
    }
}

int absence_waited(const wagma_handle *h, const char *phase, double seconds, char *text,
                   size_t size) {
    const int digits = seconds < 1 ? 2 : seconds < 100 ? 1 : 0;
    return numbers_print(text, size, "rank %d has waited %.*f s at version %lld (phase %s)",
                         h->rank, digits, seconds, (long long)h->call.version, phase);
}
