/* Explores one configuration of the round protocol. Prints one line of figures and, if an invariant
 * is violated, its name and every step that leads there. Exit status: 0 all states hold, 1 an
 * invariant is violated, 2 wrong arguments, 3 truncated by a limit. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "model.h"
#include "round_space.h"
#include "search.h"

static const char usage[] =
    "explore --ranks P --group S --programs W[,W...] [options]\n"
    "  --programs  what each rank does (the last word counts for the rest): n version, z version\n"
    "              with weight 0, s sync version, o version out of place, p version with a buffer\n"
    "              reserved in vain, d departure at the end\n"
    "  --quorum N  members that start a version (1)     --window N  versions ahead (3)\n"
    "  --majority  a drawn member starts it             --world     rounds of all ranks\n"
    "  --ordered   every result for every rank (late = skip, carry)\n"
    "  --forward   on after the version merged          --pairs, --fixed  grouping\n"
    "  --slices N  slices of a result (1)               --tso       store buffers\n"
    "  --buffers N, --rounds N  instead of the protocol's bounds\n"
    "  --limited   these are fewer, and a rank may wait for them\n"
    "  --dfs       depth first                          --no-collapse  every step by itself\n"
    "  --table N   2^N entries (22)                     --seconds N    limit\n"
    "  --walks N   random walks instead                 --seed N       of the first (1)\n"
    "  --no-trace  no counterexample\n";

static int wrong(const char *message) {
    fprintf(stderr, "explore: %s\n%s", message, usage);
    return 2;
}

static const char *read_programs(struct config *g, const char *text) {
    int r = 0;
    for (const char *p = text; r < g->ranks; r++) {
        const size_t n = strcspn(p, ",");
        if (n > MAX_PROGRAM)
            return "a program is too long";
        memcpy(g->program[r], p, n);
        g->program[r][n] = 0;
        if (p[n])
            p += n + 1;
    }
    return NULL;
}

static void print(const struct config *g, const struct limits *limits, const struct result *r,
                  double seconds) {
    struct rusage usage_now;
    getrusage(RUSAGE_SELF, &usage_now);
    const double mib = (double)usage_now.ru_maxrss / 1024;
    const double cpu = (double)(usage_now.ru_utime.tv_sec + usage_now.ru_stime.tv_sec) +
                       1e-6 * (double)(usage_now.ru_utime.tv_usec + usage_now.ru_stime.tv_usec);
    if (r->outcome.invariant)
        printf("VIOLATED %s: %s\n", r->outcome.invariant, r->outcome.detail);
    if (r->truncated)
        printf("TRUNCATED: a limit was reached before the frontier was empty\n");
    printf("%s states=%llu transitions=%llu alone=%llu depth=%llu terminal=%llu bytes=%d "
           "seconds=%.1f cpu=%.1f mib=%.0f\n",
           limits->walks         ? "walks"
           : limits->depth_first ? "dfs"
                                 : "bfs",
           (unsigned long long)r->states, (unsigned long long)r->transitions,
           (unsigned long long)r->alone, (unsigned long long)r->depth,
           (unsigned long long)r->terminal, g->bytes, seconds, cpu, mib);
}

int main(int argc, char **argv) {
    enum {
        RANKS = 256,
        GROUP,
        PROGRAMS,
        QUORUM,
        WINDOW,
        SLICES,
        TSO,
        BUFFERS,
        ROUNDS,
        DFS,
        NO_COLLAPSE,
        TABLE,
        SECONDS,
        WALKS,
        SEED,
        NO_TRACE,
        LIMITED,
        MAJORITY,
        WORLD,
        ORDERED,
        FORWARD,
        PAIRS,
        FIXED
    };
    static const struct option options[] = {{"ranks", 1, 0, RANKS},
                                            {"group", 1, 0, GROUP},
                                            {"programs", 1, 0, PROGRAMS},
                                            {"quorum", 1, 0, QUORUM},
                                            {"window", 1, 0, WINDOW},
                                            {"slices", 1, 0, SLICES},
                                            {"tso", 0, 0, TSO},
                                            {"buffers", 1, 0, BUFFERS},
                                            {"rounds", 1, 0, ROUNDS},
                                            {"dfs", 0, 0, DFS},
                                            {"no-collapse", 0, 0, NO_COLLAPSE},
                                            {"table", 1, 0, TABLE},
                                            {"seconds", 1, 0, SECONDS},
                                            {"walks", 1, 0, WALKS},
                                            {"seed", 1, 0, SEED},
                                            {"no-trace", 0, 0, NO_TRACE},
                                            {"limited", 0, 0, LIMITED},
                                            {"majority", 0, 0, MAJORITY},
                                            {"world", 0, 0, WORLD},
                                            {"ordered", 0, 0, ORDERED},
                                            {"forward", 0, 0, FORWARD},
                                            {"pairs", 0, 0, PAIRS},
                                            {"fixed", 0, 0, FIXED},
                                            {0, 0, 0, 0}};
    static struct config g = {.quorum = 1, .window = 3, .slices = 1, .collapse = 1};
    static struct result result;
    struct limits limits = {.table_bits = 22, .trace = 1, .seed = 1};
    const char *programs = NULL;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        const int n = optarg ? atoi(optarg) : 0;
        switch (o) {
        case RANKS:
            g.ranks = n;
            break;
        case GROUP:
            g.group_size = n;
            break;
        case PROGRAMS:
            programs = optarg;
            break;
        case QUORUM:
            g.quorum = n;
            break;
        case WINDOW:
            g.window = n;
            break;
        case SLICES:
            g.slices = n;
            break;
        case TSO:
            g.tso = 1;
            break;
        case BUFFERS:
            g.buffers = n;
            break;
        case ROUNDS:
            g.rounds = n;
            break;
        case DFS:
            limits.depth_first = 1;
            break;
        case NO_COLLAPSE:
            g.collapse = 0;
            break;
        case TABLE:
            limits.table_bits = n;
            break;
        case SECONDS:
            limits.seconds = atof(optarg);
            break;
        case WALKS:
            limits.walks = strtoull(optarg, NULL, 10);
            break;
        case SEED:
            limits.seed = strtoull(optarg, NULL, 10);
            break;
        case NO_TRACE:
            limits.trace = 0;
            break;
        case LIMITED:
            g.limited = 1;
            break;
        case MAJORITY:
            g.majority = 1;
            break;
        case WORLD:
            g.world = 1;
            break;
        case ORDERED:
            g.ordered = 1;
            break;
        case FORWARD:
            g.forward = 1;
            break;
        case PAIRS:
            g.grouping = WAGMA_GROUPING_PAIRS;
            break;
        case FIXED:
            g.grouping = WAGMA_GROUPING_FIXED;
            break;
        default:
            return wrong("unknown option");
        }
    }
    if (!programs || g.ranks < 1 || g.ranks > MAX_RANKS)
        return wrong("--ranks and --programs are needed");
    g.collapse &= !g.tso; /* with store buffers a store is visible later than its step */
    const char *error = read_programs(&g, programs);
    if (!error)
        error = config_finish(&g);
    if (error)
        return wrong(error);
    if (limits.table_bits < 8 || limits.table_bits > 31)
        return wrong("--table is out of range");
    const double began = seconds_now();
    const struct space space = round_space(&g);
    if (limits.walks)
        walk(&space, &limits, &result);
    else
        search(&space, &limits, &result);
    print(&g, &limits, &result, seconds_now() - began);
    return result.outcome.invariant ? 1 : result.truncated ? 3 : 0;
}
