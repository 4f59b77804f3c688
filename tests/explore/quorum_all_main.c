#include "quorum_all_main.h"

#include "command.h"
#include "quorum_all_model.h"

static const char usage[] =
    "explore --quorum-all --ranks P --group S --programs W[,W...] [options]\n"
    "  --programs  what each rank does (the last word counts for the rest): n version, s sync\n"
    "              version, z and y the same with weight 0; at the end d departure, f failure (an\n"
    "              exception); a rank whose word ends otherwise exits without a word\n"
    "  --slices N  of a version; 0: payloads in records (0)  --window N  versions ahead (3)\n"
    "  --deaths N  ranks that die, anywhere (0)              --give-up   ranks give up waiting\n";

int quorum_all_main(int argc, char **argv) {
    static struct quorum_all_config g = {.window = 3};
    const struct setting settings[] = {
        {"ranks", &g.ranks, 1, 0},   {"group", &g.group_size, 1, 0}, {"window", &g.window, 1, 0},
        {"slices", &g.slices, 1, 0}, {"deaths", &g.deaths, 1, 0},    {"give-up", &g.give_up, 0, 1},
    };
    struct command command;
    const char *error =
        command_read(argc, argv, settings, (int)(sizeof settings / sizeof *settings), &command);
    if (!error && (g.ranks < 1 || g.ranks > QUORUM_ALL_RANKS))
        error = "--ranks is out of range";
    if (!error)
        error = command_programs(command.programs, g.ranks, g.program[0], sizeof g.program[0],
                                 QUORUM_ALL_PROGRAM);
    if (!error)
        error = quorum_all_config_finish(&g);
    if (error)
        return command_wrong(error, usage);
    const struct space space = quorum_all_space(&g);
    return command_run(&space, &command.limits);
}
