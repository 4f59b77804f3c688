/* See oracle.h. */
#include "oracle.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "element.h"
#include "periodic.h"

static int is_close(const wagma_options *o, double got, double want) {
    double tolerance = o->dtype == WAGMA_F16    ? 4e-3
                       : o->dtype == WAGMA_BF16 ? 2e-2
                       : o->dtype == WAGMA_F32  ? 2e-5
                       : o->dtype == WAGMA_F64  ? 1e-12
                                                : 0;
    if (o->late == WAGMA_LATE_CARRY && array_is_half(o->dtype))
        tolerance *= 6; /* what is carried is rounded in every version */
    return fabs(got - want) <= tolerance * fabs(want);
}

static size_t bytes_of(const player *p) {
    const wagma_options *o = &p->trial->options;
    return (size_t)o->count * array_element_bytes(o->dtype);
}

/* What an array of a call holds. */
static const void *look(const player *p, const void *array) {
    return place_look(p->place, array, bytes_of(p));
}

/* Elements that are the same multiples of the same inputs are the same bits. */
static void expect_array(const player *p, const void *array, double value, const char *what) {
    const wagma_options *o = &p->trial->options;
    array = look(p, array);
    const size_t bytes = array_element_bytes(o->dtype);
    const int64_t enough = periodic_enough(array, bytes, TRIAL_PERIOD, o->count);
    for (int64_t i = 0; i < enough; i++) {
        const char *at = (const char *)array + (size_t)i * bytes;
        const double want = value * (double)(1 + i % TRIAL_PERIOD);
        const int right =
            i < TRIAL_PERIOD
                ? is_close(o, element_get((wagma_dtype)o->dtype, array, (size_t)i), want)
                : memcmp(at, at - TRIAL_PERIOD * bytes, bytes) == 0;
        if (!HOLDS(p, right, "%s: element %" PRId64 " is %.17g, not %.17g", what, i,
                   element_get((wagma_dtype)o->dtype, array, (size_t)i), want))
            return;
    }
}

/* ---- outcomes -------------------------------------------------------------------------------- */

typedef struct contributions { /* what an outcome lists */
    double sum, weight;
    int own; /* with that of this call */
} contributions;

/* Nobody contributes twice, with weight 0, or a version above `newest`. */
static contributions expect_list(const player *p, const wagma_outcome *o, int64_t newest) {
    const trial *g = p->trial;
    contributions all = {0};
    for (int i = 0; i < o->contributors_count; i++) {
        const int r = o->contributors[i];
        const int64_t v = o->versions[i];
        if (!HOLDS(p, r >= 0 && r < g->options.size && v >= -1 && v < g->versions,
                   "contribution %" PRId64 " of rank %d", v, r))
            continue;
        HOLDS(p, i == 0 || o->contributors[i - 1] < r, "contributor %d is not in order", r);
        HOLDS(p, g->weight[r][v + 1] != 0, "contribution %" PRId64 " of rank %d has weight 0", v,
              r);
        HOLDS(p, v <= newest, "contribution %" PRId64 " of rank %d is newer than %" PRId64, v, r,
              newest);
        all.sum += g->weight[r][v + 1] * g->value[r][v + 1];
        all.weight += g->weight[r][v + 1];
        all.own |= r == p->rank && v == p->t;
    }
    return all;
}

/* All who take version t of a group find the same (I1). */
static void agree(const player *p, int64_t t, enum trial_digest kind, uint64_t digest) {
    trial *g = p->trial;
    int leader;
    trial_members_of(g, p->rank, t, &leader);
    pthread_mutex_lock(&g->lock);
    uint64_t *others = &g->digest[kind][leader][t];
    const int same = *others == 0 || *others == digest;
    *others = digest;
    pthread_mutex_unlock(&g->lock);
    HOLDS(p, same, "another %s of version %" PRId64 " than that of other ranks",
          kind == DIGEST_LIST ? "list" : "result", t);
}

/* NULL: none. */
static void agree_on_array(const player *p, int64_t t, enum trial_digest kind, const void *array) {
    agree(p, t, kind, array ? digest_of(3, look(p, array), bytes_of(p)) : 1);
}

static void agree_on_list(const player *p, int64_t t, const wagma_outcome *o, double weight) {
    const size_t n = (size_t)o->contributors_count;
    uint64_t digest = digest_of(5, &weight, sizeof weight);
    digest = digest_of(digest, o->contributors, n * sizeof *o->contributors);
    agree(p, t, DIGEST_LIST, digest_of(digest, o->versions, n * sizeof *o->versions));
}

/* x, whose call has not changed it. */
static void expect_untouched(const player *p) {
    if (p->weight != 0)
        expect_array(p, p->array, p->value, "what was contributed");
}

/* SKIP and CARRY: versions t to newest were delivered. */
static void expect_ordered(player *p, const wagma_outcome *o, int64_t newest,
                           const contributions *all) {
    const wagma_options *options = &p->trial->options;
    const int n = o->results_count;
    int leader;
    if (!HOLDS(p, n >= 1 && n == newest - p->t + 1, "%d results up to %" PRId64, n, newest))
        return;
    const void *last = o->results[n - 1], *x = NULL;
    for (int k = 0; k < n; k++) {
        agree_on_array(p, p->t + k, DIGEST_AVERAGE, o->results[k]);
        x = o->results[k] ? o->results[k] : x;
    }
    agree_on_list(p, newest, o, o->weight);
    for (int i = 0; i < o->contributors_count; i++)
        HOLDS(p, o->versions[i] == newest, "contribution %" PRId64 " in the result of %" PRId64,
              o->versions[i], newest);
    /* "carry": the absent at the weights of their last contributions, which are 2 at most */
    const int members = trial_members_of(p->trial, p->rank, newest, &leader);
    const double absent =
        options->late == WAGMA_LATE_CARRY ? 2.0 * (members - o->contributors_count) : 0;
    HOLDS(p, o->weight >= all->weight && o->weight <= all->weight + absent,
          "weight %g, of contributors %g", o->weight, all->weight);
    HOLDS(p, !last == (o->weight == 0), "weight %g", o->weight);
    if (last)
        expect_array(p, last, all->sum / (options->average ? o->weight : 1), "newest result");
    HOLDS(p, !o->result && o->merged == (x != NULL), "merged %d", o->merged);
    if (x && !p->out_of_place)
        HOLDS(p, memcmp(look(p, p->array), look(p, x), bytes_of(p)) == 0,
              "x is not the newest of %d results", n);
    else if (!p->out_of_place)
        expect_untouched(p);
    if (options->late == WAGMA_LATE_CARRY && p->weight != 0) {
        p->carried = p->trial->value[p->rank][p->t + 1];
        p->carried_weight = o->late ? p->weight : 0;
    }
}

/* STALE: a late rank's own is merged with the list, unless its group is it alone. */
static void expect_stale(const player *p, const wagma_outcome *o, contributions all) {
    const wagma_options *options = &p->trial->options;
    const int alone = options->activation == WAGMA_ACTIVATION_WORLD && all.own &&
                      o->contributors_count == 1 && o->weight == p->weight;
    HOLDS(p, o->results_count == 0 && !o->result == !(p->out_of_place && o->merged),
          "%d results, merged %d", o->results_count, o->merged);
    if (o->merged && !o->late)
        agree_on_list(p, p->t, o, o->weight);
    else if (o->merged && !alone && options->missed == WAGMA_MISSED_FAST_FORWARD)
        agree_on_list(p, p->t + o->skipped, o, o->weight - p->weight);
    if (o->late && o->merged && !alone) {
        all.sum += p->weight * p->value;
        all.weight += p->weight;
    }
    if (!o->merged || p->out_of_place)
        expect_untouched(p);
    if (!o->merged) {
        HOLDS(p, o->late || all.weight == 0, "fresh with weight %g, unmerged", all.weight);
        return;
    }
    const int average = options->average && !p->out_of_place;
    const void *result = p->out_of_place ? o->result : p->array;
    HOLDS(p, o->weight == all.weight, "weight %g instead of %g", o->weight, all.weight);
    if (!result)
        return;
    expect_array(p, result, all.sum / (average ? all.weight : 1), "result");
    if (!o->late)
        agree_on_array(p, p->t, average ? DIGEST_AVERAGE : DIGEST_SUM, result);
}

void player_check(player *p, const wagma_handle *h, const wagma_outcome *o) {
    const trial *g = p->trial;
    const int ordered = g->options.late != WAGMA_LATE_STALE;
    const int forward = g->options.missed == WAGMA_MISSED_FAST_FORWARD;
    const int64_t t = p->t, newest = wagma_version(h) - 1;
    HOLDS(p, o->version == t && newest >= t && newest < g->versions, "%" PRId64 " to %" PRId64,
          o->version, newest);
    HOLDS(p, ordered || newest == t + (forward ? o->skipped : 0),
          "skipped %" PRId64 " up to %" PRId64, o->skipped, newest);
    for (int64_t v = t; v <= newest; v++) /* syncs are not gone past, and end a call */
        HOLDS(p, newest == t || !trial_is_sync(g, v), "went past sync version %" PRId64, v);
    HOLDS(p, !(o->late && trial_is_sync(g, t)), "late %d in a sync version", o->late);
    /* "once": the result that is merged can be of any newer version */
    const contributions all = expect_list(p, o, ordered || forward ? newest : g->versions);
    HOLDS(p, o->late || p->weight == 0 || all.own || (ordered && newest > t), "fresh, but %s",
          "not a contributor");
    if (ordered)
        expect_ordered(p, o, newest, &all);
    else
        expect_stale(p, o, all);
    const void *shown = ordered && o->results_count > 0
                            ? o->results[draw(&p->random, (uint32_t)o->results_count)]
                            : o->result;
    if (shown)
        place_keep(p->place, shown, bytes_of(p));
}
