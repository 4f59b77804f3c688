/* The weights that a handle's contributions may have. */
#include <math.h>

#include "base/error.h"
#include "engine/handle.h"

/* The largest weight of one rank. */
#define MOST_F64 1e300
#define MOST_F32 1e30

int handle_check_weight(const wagma_handle *h, double weight) {
    const wagma_dtype dtype = (wagma_dtype)h->options.dtype;
    if (!isfinite(weight) || weight < 0)
        return error_set(WAGMA_EINVAL, "weight=%g: must be finite and not negative", weight);
    if (reduce_dtype_is_integer(dtype) && weight != floor(weight))
        return error_set(WAGMA_ETYPE,
                         "weight=%g: integer arrays take whole weights only; use a floating dtype",
                         weight);
    if (reduce_dtype_is_integer(dtype) && weight > 1 && h->policy.carries)
        return error_set(
            WAGMA_ETYPE,
            "weight=%g: what integer arrays carry (late is WAGMA_LATE_CARRY, \"carry\") "
            "takes the weights 0 and 1 only; use a floating dtype",
            weight);
    /* The sum over all ranks stays finite, and over what a rank carries: every rank can tell. */
    if (weight > MOST_F64)
        return error_set(WAGMA_EINVAL,
                         "weight=%g: must be at most 1e300, so that the sum of all ranks' weights "
                         "is finite; scale all weights alike",
                         weight);
    /* all but f64 are accumulated in f32, where smaller weights vanish and sums of larger ones are
     * infinite */
    if (!reduce_dtype_is_integer(dtype) && dtype != WAGMA_F64 && weight != 0 &&
        (weight < 1 / MOST_F32 || weight > MOST_F32))
        return error_set(WAGMA_EINVAL,
                         "weight=%g: %s arrays take 0 and weights from 1e-30 to 1e30; scale all "
                         "weights alike, or use float64",
                         weight, reduce_dtype_name(dtype));
    const double carried = h->calls->carried_weight ? h->calls->carried_weight(h) : 0;
    const double ratio = carried / weight;
    const double most = dtype == WAGMA_F64 ? MOST_F64 : MOST_F32;
    if (carried != 0 && weight != 0 && (ratio < 1 / most || ratio > most))
        return error_set(WAGMA_EINVAL,
                         "weight=%g: what is carried has weight %g, and the two are too far apart "
                         "to be added in %s; use weights of similar size",
                         weight, carried, reduce_dtype_name(dtype));
    return WAGMA_OK;
}
