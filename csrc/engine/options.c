/* Options: defaults, and the checks of all values. */
#define _GNU_SOURCE /* CPU_SETSIZE */
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <string.h>

#include "base/error.h"
#include "engine/policy.h"
#include "kernels/reduce.h"
#include "protocol/graph.h"

enum {
    DEFAULT_WINDOW = 64,   /* without sync versions */
    DEFAULT_RESULTS = 8,   /* window where every result is kept until all ranks have it */
    RESULTS_MAX = 1 << 24, /* rounds are numbered with 24 bits, window + 2 for each rank */
    /* measured: docs/schedules.md */
    DEFAULT_SWITCH = 8 << 10,
    DEFAULT_CHUNK = 256 << 10,
    DEFAULT_PART = 32 << 10,
    DEFAULT_DIRECT = 16,
    CHUNK_MIN = 256, /* bytes of a message between nodes */
    CHUNK_MAX = 1 << 30,
    GRAPH_WINDOW = 2,        /* contributions that a rank keeps for its neighbours */
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
    options->progress_sleep = 1e-3;
    options->progress_cpu = -1;
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

static int check_count(const char *name, int64_t value, const char *needed) {
    if (value >= 0)
        return WAGMA_OK;
    return error_set(WAGMA_EINVAL, "%s is %" PRId64 ": it must be %s", name, value, needed);
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
    return WAGMA_OK;
}

static int check_choice(const char *name, int32_t value, int32_t last, const char *choices) {
    if (value >= 0 && value <= last)
        return WAGMA_OK;
    return error_set(WAGMA_EINVAL, "%s is %" PRId32 ": it must be %s", name, value, choices);
}

/* Pairs are groups of two. */
static int check_grouping(wagma_options *o) {
    const int32_t pair = o->size < 2 ? o->size : 2;
    int status = check_choice("grouping", o->grouping, WAGMA_GROUPING_PAIRS,
                              "WAGMA_GROUPING_DYNAMIC (0), _FIXED (1) or _PAIRS (2)");
    if (status != WAGMA_OK)
        return status;
    if (o->group_size == 0)
        o->group_size = o->grouping == WAGMA_GROUPING_PAIRS ? pair : o->size;
    if (o->grouping == WAGMA_GROUPING_PAIRS && o->group_size != pair)
        return error_set(WAGMA_EINVAL,
                         "group_size is %" PRId32 " and grouping is WAGMA_GROUPING_PAIRS: it must "
                         "be %" PRId32 ", or 0 for that",
                         o->group_size, pair);
    return WAGMA_OK;
}

/* Whose arrival starts a version. */
static int check_start(wagma_options *o) {
    int status = check_choice("activation", o->activation, WAGMA_ACTIVATION_WORLD,
                              "WAGMA_ACTIVATION_GROUP (0) or _WORLD (1)");
    if (status != WAGMA_OK)
        return status;
    if (o->group_size == o->size) /* the group is the world */
        o->activation = WAGMA_ACTIVATION_GROUP;
    const int world = o->activation == WAGMA_ACTIVATION_WORLD;
    const int32_t most = world ? o->size : o->group_size;
    if (o->quorum == 0)
        o->quorum = most;
    if (o->quorum != WAGMA_QUORUM_MAJORITY && (o->quorum < 1 || o->quorum > most))
        return error_set(WAGMA_EINVAL,
                         "quorum is %" PRId32 ": it must be 1 to %s (%" PRId32
                         "), 0 for all, or WAGMA_QUORUM_MAJORITY (-1)",
                         o->quorum, world ? "size" : "group_size", most);
    if (world && o->quorum == o->size) { /* no rank is late: no need to wait for other groups */
        o->activation = WAGMA_ACTIVATION_GROUP;
        o->quorum = o->group_size;
    }
    return WAGMA_OK;
}

/* Check the rule for late ranks. */
static int check_late(const wagma_options *o) {
    const struct policy_late *late = policy_late(o->late);
    if (!late)
        return error_set(WAGMA_EINVAL, "late is %" PRId32 ": it must be " POLICY_LATE_CHOICES,
                         o->late);
    const int status = check_choice("missed", o->missed, WAGMA_MISSED_FAST_FORWARD,
                                    "WAGMA_MISSED_ONCE (0) or _FAST_FORWARD (1)");
    if (status != WAGMA_OK || !late->ordered)
        return status;
    if (o->missed != WAGMA_MISSED_ONCE)
        return error_set(WAGMA_EINVAL,
                         "missed is WAGMA_MISSED_FAST_FORWARD and late is %s, which delivers every "
                         "result: set missed to WAGMA_MISSED_ONCE, or late to WAGMA_LATE_STALE",
                         late->name);
    if (o->activation == WAGMA_ACTIVATION_WORLD)
        return error_set(WAGMA_EINVAL,
                         "activation is WAGMA_ACTIVATION_WORLD, late is %s and group_size is "
                         "%" PRId32 ": set activation to WAGMA_ACTIVATION_GROUP, or group_size to "
                         "size (%" PRId32 ")",
                         late->name, o->group_size, o->size);
    return WAGMA_OK;
}

/* Check that options without meaning for a graph have their defaults: a rank waits only for its
 * neighbours. */
static int check_graph_alone(const wagma_options *o, const char *graph) {
    const struct {
        const char *name;
        long long value, unset, set; /* as it comes, and once it was filled in */
    } others[] = {
        {"group_size", o->group_size, 0, o->size},
        {"quorum", o->quorum, 0, o->size},
        {"late", o->late, WAGMA_LATE_STALE, WAGMA_LATE_STALE},
        {"missed", o->missed, WAGMA_MISSED_ONCE, WAGMA_MISSED_ONCE},
        {"activation", o->activation, WAGMA_ACTIVATION_GROUP, WAGMA_ACTIVATION_GROUP},
        {"grouping", o->grouping, WAGMA_GROUPING_DYNAMIC, WAGMA_GROUPING_DYNAMIC},
        {"sync_period", o->sync_period, 0, 0},
        {"window", o->window, 0, GRAPH_WINDOW},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].value != others[i].unset && others[i].value != others[i].set)
            return error_set(WAGMA_EINVAL,
                             "%s is %lld and graph is %s, where ranks wait for their neighbours "
                             "and for nobody else: leave %s at its default",
                             others[i].name, others[i].value, graph, others[i].name);
    if (o->seed != 0)
        return error_set(WAGMA_EINVAL,
                         "seed is %" PRIu64 " and graph is %s, which draws nothing: leave seed at "
                         "its default",
                         o->seed, graph);
    if (o->grace >= 0)
        return error_set(WAGMA_EINVAL,
                         "grace is %g and graph is %s, where every neighbour is waited for: leave "
                         "grace at its default",
                         o->grace, graph);
    return WAGMA_OK;
}

static int check_neighbors(wagma_options *o, const char *graph) {
    const int most = o->graph == WAGMA_GRAPH_RING ? 1 : graph_neighbors_most(o->size);
    if (o->neighbors == 0)
        o->neighbors = 1;
    if (o->neighbors >= 1 && o->neighbors <= most)
        return WAGMA_OK;
    return error_set(WAGMA_EINVAL,
                     "neighbors is %" PRId32 " and graph is %s of %" PRId32
                     " ranks: it must be 1 to %d, or 0 for 1",
                     o->neighbors, graph, o->size, most);
}

/* Fills in what check_graph_alone() has found unset. */
static int check_graph(wagma_options *o) {
    const int status = check_choice("graph", o->graph, WAGMA_GRAPH_EXPONENTIAL,
                                    "WAGMA_GRAPH_NONE (0), _RING (1) or _EXPONENTIAL (2)");
    if (status != WAGMA_OK)
        return status;
    const char *graph =
        o->graph == WAGMA_GRAPH_RING ? "WAGMA_GRAPH_RING" : "WAGMA_GRAPH_EXPONENTIAL";
    if (o->graph != WAGMA_GRAPH_NONE && o->memory == WAGMA_MEMORY_DEVICE)
        return error_set(WAGMA_EINVAL,
                         "memory is WAGMA_MEMORY_DEVICE and graph is %s, which exchanges arrays in "
                         "host memory alone: set memory to WAGMA_MEMORY_STAGED, or graph to "
                         "WAGMA_GRAPH_NONE",
                         graph);
    if (o->graph != WAGMA_GRAPH_NONE) {
        const int wrong = check_graph_alone(o, graph);
        o->window = GRAPH_WINDOW;
        return wrong != WAGMA_OK ? wrong : check_neighbors(o, graph);
    }
    if (o->neighbors == 0)
        return WAGMA_OK;
    return error_set(WAGMA_EINVAL,
                     "neighbors is %" PRId32
                     " and graph is WAGMA_GRAPH_NONE: set graph to another, or neighbors to 0",
                     o->neighbors);
}

static int check_data(const wagma_options *o) {
    if (o->dtype < 0 || reduce_dtype_size((wagma_dtype)o->dtype) == 0)
        return error_set(WAGMA_EINVAL,
                         "dtype is %" PRId32 ": it must be one of WAGMA_F32 (0) to WAGMA_I64 (5)",
                         o->dtype);
    const int status = check_choice("memory", o->memory, WAGMA_MEMORY_STAGED,
                                    "WAGMA_MEMORY_HOST (0), _DEVICE (1) or _STAGED (2)");
    if (status != WAGMA_OK)
        return status;
    if (o->average != 0 && o->average != 1)
        return error_set(WAGMA_EINVAL, "average is %" PRId32 ": it must be 0 or 1", o->average);
    if (o->average && reduce_dtype_is_integer((wagma_dtype)o->dtype))
        return error_set(WAGMA_ETYPE,
                         "average is 1 and dtype is %s: integers are only summed, set average to 0",
                         reduce_dtype_name((wagma_dtype)o->dtype));
    if (o->graph != WAGMA_GRAPH_NONE && reduce_dtype_is_integer((wagma_dtype)o->dtype))
        return error_set(WAGMA_ETYPE,
                         "dtype is %s and graph is not WAGMA_GRAPH_NONE: neighbours get fractions "
                         "of an array, use a floating dtype",
                         reduce_dtype_name((wagma_dtype)o->dtype));
    return check_count("count", o->count, "0 or more elements");
}

static int check_versions(wagma_options *o) {
    const int status =
        check_count("sync_period", o->sync_period, "1 or more versions, or 0 for never");
    const int ordered = policy_late(o->late)->ordered;
    if (status != WAGMA_OK)
        return status;
    if (o->window < 0 || o->window > WINDOW_MAX)
        return error_set(WAGMA_EINVAL,
                         "window is %" PRId64 ": it must be 1 to %d versions, or 0 for the default",
                         o->window, WINDOW_MAX);
    if (o->window == 0)
        o->window = ordered                       ? DEFAULT_RESULTS
                    : o->sync_period == 0         ? DEFAULT_WINDOW
                    : o->sync_period > WINDOW_MAX ? WINDOW_MAX
                                                  : o->sync_period;
    const int64_t results = RESULTS_MAX / o->size - 2;
    if (ordered && o->window > results)
        return error_set(WAGMA_EINVAL,
                         "window is %" PRId64 ": where late is " POLICY_LATE_ORDERED " it must be "
                         "1 to %" PRId64 " versions for %" PRId32 " ranks",
                         o->window, results, o->size);
    return WAGMA_OK;
}

/* Check how a handle over a transport makes progress while its rank computes. */
static int check_progress(const wagma_options *o) {
    const int status = check_choice("progress", o->progress, WAGMA_PROGRESS_MAIN,
                                    "WAGMA_PROGRESS_SLEEP, _YIELD, _SPIN or _MAIN");
    if (status != WAGMA_OK)
        return status;
    if (!(o->progress_sleep >= 10e-6 && o->progress_sleep <= 1))
        return error_set(WAGMA_EINVAL, "progress_sleep is %g: it must be 10e-6 to 1 seconds",
                         o->progress_sleep);
    if (o->progress_cpu < -1 || o->progress_cpu >= CPU_SETSIZE)
        return error_set(WAGMA_EINVAL,
                         "progress_cpu is %" PRId32
                         ": it must be a core, 0 to %d; leave it unset for any",
                         o->progress_cpu, CPU_SETSIZE - 1);
    return WAGMA_OK;
}

/* Check how data is exchanged over a transport. */
static int check_schedule(wagma_options *o) {
    int status =
        check_count("schedule_switch", o->schedule_switch, "1 or more bytes, or 0 for the default");
    if (status != WAGMA_OK)
        return status;
    if (o->schedule_chunk != 0 && (o->schedule_chunk < CHUNK_MIN || o->schedule_chunk > CHUNK_MAX))
        return error_set(WAGMA_EINVAL,
                         "schedule_chunk is %" PRId64
                         ": it must be %d to %d bytes, or 0 for the default",
                         o->schedule_chunk, CHUNK_MIN, CHUNK_MAX);
    status =
        check_count("schedule_part", o->schedule_part, "1 or more bytes, or 0 for the default");
    if (status != WAGMA_OK)
        return status;
    status = check_count("schedule_direct", o->schedule_direct,
                         "1 or more members, or 0 for the default");
    if (status != WAGMA_OK)
        return status;
    if (o->schedule_switch == 0)
        o->schedule_switch = DEFAULT_SWITCH;
    if (o->schedule_chunk == 0)
        o->schedule_chunk = DEFAULT_CHUNK;
    if (o->schedule_part == 0)
        o->schedule_part = DEFAULT_PART;
    if (o->schedule_direct == 0)
        o->schedule_direct = DEFAULT_DIRECT;
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
    if ((status = check_ranks(options)) || (status = check_graph(options)) ||
        (status = check_grouping(options)) || (status = check_start(options)) ||
        (status = check_late(options)) || (status = check_data(options)) ||
        (status = check_versions(options)) ||
        (status = check_seconds("grace", options->grace, "auto")) ||
        (status = check_seconds("timeout", options->timeout, "never")) ||
        (status = check_seconds("stall_warning", options->stall_warning, "none")) ||
        (status = check_seconds("redo_after", options->redo_after, NULL)) ||
        (status = check_progress(options)) || (status = check_schedule(options)))
        return status;
    return WAGMA_OK;
}
