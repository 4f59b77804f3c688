/* Options: defaults, and the one place that says which values are allowed. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "reduce.h"
#include "segment.h"

enum {
    DEFAULT_WINDOW = 64,     /* without sync versions */
    WINDOW_MAX = 1 << 20,    /* two words per version of the window and rank are kept */
    SECONDS_MAX = 1000000000 /* fits into 64 bits of nanoseconds */
};

void wagma_options_init(wagma_options *options) {
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
    options->dtype = WAGMA_F32;
    options->average = 1;
    options->grace = -1;
    options->timeout = -1;
    options->stall_warning = 60;
    options->redo_after = 200e-6;
}

int wagma_abi_version(void) {
    return WAGMA_ABI_VERSION;
}

static int check_seconds(const char *name, double value, const char *negative) {
    if (isfinite(value) && value <= SECONDS_MAX && (value >= 0 || negative))
        return WAGMA_OK;
    return error_set(WAGMA_EINVAL, "%s is %g: it must be 0 to %d seconds%s%s", name, value,
                     SECONDS_MAX, negative ? ", or negative for " : "", negative ? negative : "");
}

static int check_ranks(wagma_options *o) {
    if (o->size < 1 || o->size > WAGMA_MAX_RANKS)
        return error_set(WAGMA_EINVAL, "size is %" PRId32 ": it must be 1 to %d ranks", o->size,
                         WAGMA_MAX_RANKS);
    if (o->group_size < 0 || o->group_size > o->size)
        return error_set(WAGMA_EINVAL,
                         "group_size is %" PRId32 ": it must be 1 to size (%" PRId32
                         "), or 0 for all",
                         o->group_size, o->size);
    if (o->group_size == 0)
        o->group_size = o->size;
    if (o->quorum < 0 || o->quorum > o->group_size)
        return error_set(WAGMA_EINVAL,
                         "quorum is %" PRId32 ": it must be 1 to group_size (%" PRId32
                         "), or 0 for all",
                         o->quorum, o->group_size);
    if (o->quorum == 0)
        o->quorum = o->group_size;
    return WAGMA_OK;
}

static int check_data(const wagma_options *o) {
    if (o->dtype < 0 || reduce_dtype_size((wagma_dtype)o->dtype) == 0)
        return error_set(WAGMA_EINVAL,
                         "dtype is %" PRId32 ": it must be one of WAGMA_F32 (0) to WAGMA_I64 (5)",
                         o->dtype);
    if (o->average != 0 && o->average != 1)
        return error_set(WAGMA_EINVAL, "average is %" PRId32 ": it must be 0 or 1", o->average);
    if (o->average && reduce_dtype_is_integer((wagma_dtype)o->dtype))
        return error_set(WAGMA_ETYPE,
                         "average is 1 and dtype is %s: integers are only summed, set average to 0",
                         reduce_dtype_name((wagma_dtype)o->dtype));
    if (o->count < 0)
        return error_set(WAGMA_EINVAL, "count is %" PRId64 ": it must be 0 or more elements",
                         o->count);
    return WAGMA_OK;
}

static int check_versions(wagma_options *o) {
    if (o->sync_period < 0)
        return error_set(WAGMA_EINVAL,
                         "sync_period is %" PRId64
                         ": it must be 1 or more versions, or 0 for never",
                         o->sync_period);
    if (o->window < 0 || o->window > WINDOW_MAX)
        return error_set(WAGMA_EINVAL,
                         "window is %" PRId64 ": it must be 1 to %d versions, or 0 for the default",
                         o->window, WINDOW_MAX);
    if (o->window == 0)
        o->window = o->sync_period == 0           ? DEFAULT_WINDOW
                    : o->sync_period > WINDOW_MAX ? WINDOW_MAX
                                                  : o->sync_period;
    return WAGMA_OK;
}

int wagma_options_check(wagma_options *options) {
    int status;
    if (!options)
        return error_set(WAGMA_EINVAL, "options is NULL: pass options set by wagma_options_init()");
    if (options->struct_size != sizeof *options)
        return error_set(WAGMA_EINVAL,
                         "options.struct_size is %" PRIu32 ", this library's is %zu: call "
                         "wagma_options_init() first, and build against this library's wagma.h",
                         options->struct_size, sizeof *options);
    if ((status = check_ranks(options)) || (status = check_data(options)) ||
        (status = check_versions(options)) ||
        (status = check_seconds("grace", options->grace, "auto")) ||
        (status = check_seconds("timeout", options->timeout, "never")) ||
        (status = check_seconds("stall_warning", options->stall_warning, "none")) ||
        (status = check_seconds("redo_after", options->redo_after, NULL)))
        return status;
    return WAGMA_OK;
}
