/* See contribution.h. */
#include "contribution.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "periodic.h"

/* Inline: a sanitizer makes calls expensive. */
static inline uint64_t mixed(uint64_t a) { /* splitmix64's finaliser */
    a = (a ^ a >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    a = (a ^ a >> 27) * UINT64_C(0x94d049bb133111eb);
    return a ^ a >> 31;
}

static inline double element(int dtype, int rank, int64_t version, int64_t i) {
    const uint64_t of = (uint64_t)(i % PERIODIC_ELEMENTS);
    const uint64_t bits = mixed((uint64_t)(version + 2) << 40 ^ (uint64_t)rank << 32 ^ of);
    if (dtype == WAGMA_F64)
        return (double)(bits >> 17); /* 47 bits: sums of 64 are exact */
    const uint32_t word = (uint32_t)(117 + (bits >> 23) % 20) << 23 | (uint32_t)(bits & 0x7fffff);
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

double contribution(int dtype, int rank, int64_t version, int64_t i) {
    return element(dtype, rank, version, i);
}

void contribute(int dtype, void *x, int rank, int64_t version, int64_t count) {
    const size_t bytes = dtype == WAGMA_F64 ? sizeof(double) : sizeof(float);
    for (int64_t i = 0; i < periodic_head(count); i++)
        if (dtype == WAGMA_F64)
            ((double *)x)[i] = element(dtype, rank, version, i);
        else
            ((float *)x)[i] = (float)element(dtype, rank, version, i);
    periodic_repeat(x, PERIODIC_ELEMENTS * bytes, (size_t)count * bytes);
}

static int is_result(const wagma_options *options, int in_order, double got, double want) {
    if (!options->average && (in_order || options->dtype != WAGMA_F32))
        return got == want;
    const double last_digit = options->dtype == WAGMA_F32 ? 2e-7 : 4e-16;
    return fabs(got - want) <= fabs(want) * (in_order ? 1 : 4) * last_digit;
}

int expect_result(const rank *me, const void *x, const wagma_outcome *o) {
    const wagma_options *options = &me->segment->options;
    const int dtype = options->dtype, in_order = !me->sim;
    const double divisor = o->merged && options->average ? o->weight : 1;
    /* Copied: a sanitizer checks each read of what others could write. */
    int32_t ranks[RANKS_MAX + 1];
    int64_t versions[RANKS_MAX + 1];
    int n = 0;
    if (!EXPECT(o->contributors_count <= RANKS_MAX, "%d contributors", o->contributors_count))
        return 0;
    for (int k = 0; o->merged && k < o->contributors_count; k++, n++)
        ranks[n] = o->contributors[k], versions[n] = o->versions[k];
    if (o->late || !o->merged)
        ranks[n] = me->rank, versions[n++] = o->version;
    const size_t bytes = dtype == WAGMA_F64 ? sizeof(double) : sizeof(float);
    const int64_t enough = periodic_enough(x, bytes, PERIODIC_ELEMENTS, options->count);
    for (int64_t i = 0; i < enough; i++) {
        double sum = 0;
        for (int k = 0; k < n; k++) {
            sum += element(dtype, ranks[k], versions[k], i);
            if (dtype == WAGMA_F32)
                sum = (float)sum; /* of two floats: rounding twice changes nothing */
        }
        const double want = sum / divisor;
        const double got =
            dtype == WAGMA_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
        if (is_result(options, in_order, got, want))
            continue;
        char list[256] = "";
        for (int k = 0, at = 0; k < o->contributors_count && at < 200; k++)
            at += snprintf(list + at, sizeof list - (size_t)at, " %d@%" PRId64, o->contributors[k],
                           o->versions[k]);
        return EXPECT(0,
                      "rank %d version %" PRId64 " late %d merged %d of%s: x[%" PRId64
                      "] is %.17g, not %.17g",
                      me->rank, o->version, o->late, o->merged, list, i, got, want);
    }
    return 1;
}
