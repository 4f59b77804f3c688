#include "command.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

const char *command_read(int argc, char **argv, const struct setting *settings, int n,
                         struct command *command) {
    struct limits *limits = &command->limits;
    int depth_first = 0, trace = 1, bits = 22;
    const struct setting common[] = {
        {"dfs", &depth_first, 0, 1}, {"no-trace", &trace, 0, 0}, {"table", &bits, 1, 0}};
    const int most = (int)(sizeof common / sizeof *common);
    *command = (struct command){.limits = {.seed = 1}};
    for (int k = 1; k < argc; k++) {
        const char *name = strncmp(argv[k], "--", 2) == 0 ? argv[k] + 2 : "";
        const char *value = k + 1 < argc ? argv[k + 1] : "";
        const struct setting *found = NULL;
        for (int s = 0; s < n + most; s++) {
            const struct setting *candidate = s < n ? settings + s : common + (s - n);
            if (strcmp(name, candidate->name) == 0)
                found = candidate;
        }
        if (found) {
            *found->value = found->takes ? atoi(value) : found->set;
            k += found->takes;
            continue;
        }
        if (strcmp(name, "programs") == 0)
            command->programs = value;
        else if (strcmp(name, "quorums") == 0)
            command->quorums = value;
        else if (strcmp(name, "seconds") == 0)
            limits->seconds = atof(value);
        else if (strcmp(name, "walks") == 0)
            limits->walks = strtoull(value, NULL, 10);
        else if (strcmp(name, "seed") == 0)
            limits->seed = strtoull(value, NULL, 10);
        else
            return "unknown option";
        k++;
    }
    limits->depth_first = depth_first;
    limits->trace = trace;
    limits->table_bits = bits;
    if (bits < 8 || bits > 31)
        return "--table is out of range";
    return command->programs ? NULL : "--ranks and --programs are needed";
}

const char *command_programs(const char *text, int ranks, char *programs, size_t stride,
                             size_t room) {
    for (int r = 0; r < ranks; r++) {
        const size_t n = strcspn(text, ",");
        if (n > room)
            return "a program is too long";
        memcpy(programs + (size_t)r * stride, text, n);
        programs[(size_t)r * stride + n] = 0;
        if (text[n])
            text += n + 1;
    }
    return NULL;
}

int command_wrong(const char *message, const char *usage) {
    fprintf(stderr, "explore: %s\n%s%s", message, usage, COMMAND_USAGE);
    return 2;
}

static void print(const struct space *space, const struct limits *limits, const struct result *r,
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
           (unsigned long long)r->terminal, space->bytes, seconds, cpu, mib);
}

int command_run(const struct space *space, const struct limits *limits) {
    static struct result result;
    const double began = seconds_now();
    if (limits->walks)
        walk(space, limits, &result);
    else
        search(space, limits, &result);
    print(space, limits, &result, seconds_now() - began);
    return result.outcome.invariant ? 1 : result.truncated ? 3 : 0;
}
