/* Grace: how long a version whose quorum is present waits for members that are about to arrive.
 *
 * A value >= 0 is used as given. "auto" is min(80% quantile of the last 32 arrival spreads, 10% of
 * the median compute time), at least 50 us; 200 us until 4 spreads are known. The spread of a
 * version is last minus first arrival of the members that are at most one version behind; a member
 * that arrives after the pin is counted when it arrives. Pure. */
#ifndef WAGMA_ENGINE_GRACE_H
#define WAGMA_ENGINE_GRACE_H

#include <stdint.h>

enum { GRACE_SAMPLES = 32 };

/* The last 32 values, in order of age and of size. */
struct grace_samples {
    uint64_t by_age[GRACE_SAMPLES], by_size[GRACE_SAMPLES];
    int count, next;
};
void grace_add(struct grace_samples *samples, uint64_t value);
/* The smallest value that `share` of the samples do not exceed; count > 0. */
uint64_t grace_quantile(const struct grace_samples *samples, double share);
/* The rule above. */
uint64_t grace_auto(const struct grace_samples *spreads, const struct grace_samples *computes);

#endif
