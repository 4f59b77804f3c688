/* Parts that the explorer's command lines share. */
#ifndef EXPLORE_COMMAND_H
#define EXPLORE_COMMAND_H

#include <stddef.h>

#include "search.h"

struct setting { /* --name N, or --name, which means `set` */
    const char *name;
    int *value;
    int takes, set;
};

struct command {
    struct limits limits;
    const char *programs; /* NULL: not given */
    const char *quorums;  /* likewise */
};

#define COMMAND_USAGE                                                                              \
    "  --dfs       depth first                          --seconds N    limit\n"                    \
    "  --table N   2^N entries (22)                     --no-trace     no counterexample\n"        \
    "  --walks N   random walks instead                 --seed N       of the first (1)\n"

/* Reads the options that all protocols have, --programs and the `n` settings. Returns an error
 * message or NULL. */
const char *command_read(int argc, char **argv, const struct setting *settings, int n,
                         struct command *command);

/* The word of each of `ranks` ranks, of at most `room` letters; the last one counts for the rest.
 * Their places are `stride` bytes apart. Returns an error message or NULL. */
const char *command_programs(const char *text, int ranks, char *programs, size_t stride,
                             size_t room);

/* Says what was wrong; returns the exit status. */
int command_wrong(const char *message, const char *usage);

/* Explores and prints; returns the exit status: 0 all states hold, 1 an invariant is violated, 3
 * truncated by a limit. */
int command_run(const struct space *space, const struct limits *limits);

#endif
