/* Explores one configuration of the round protocol, or, with --quorum-all first, of quorum "all",
 * or, with --activation first, of groups that span nodes. Prints one line of figures and, if an
 * invariant is violated, its name and every step that leads there. Exit status: 0 all states hold,
 * 1 an invariant is violated, 2 wrong arguments, 3 truncated by a limit. */
#include <string.h>

#include "activation_main.h"
#include "command.h"
#include "model.h"
#include "quorum_all_main.h"
#include "round_space.h"

static const char usage[] =
    "explore --ranks P --group S --programs W[,W...] [options]\n"
    "  --programs  what each rank does (the last word counts for the rest): n version, z version\n"
    "              with weight 0, s sync version, o version out of place, p version with a buffer\n"
    "              reserved in vain, x version from the rank's array, whose memory is published,\n"
    "              y sync version from it, d departure at the end\n"
    "  --quorum N  members that start a version (1)     --window N  versions ahead (3)\n"
    "  --quorums W[,W...]  digits: members that start each version, the last digit the rest\n"
    "  --majority  a drawn member starts it             --world     rounds of all ranks\n"
    "  --ordered   every result for every rank (late = skip, carry)\n"
    "  --forward   on after the version merged          --pairs, --fixed  grouping\n"
    "  --slices N  slices of a result (1)               --tso       store buffers\n"
    "  --buffers N, --rounds N  instead of the protocol's bounds\n"
    "  --limited   these are fewer, and a rank may wait for them\n"
    "  --spare     and yet results are written into all arrays\n"
    "  --no-waits  who runs alone must not wait, which the protocol violates: tests the search\n"
    "  --no-collapse  every step by itself\n";

int main(int argc, char **argv) {
    static struct config g = {.quorum = 1, .window = 3, .slices = 1, .collapse = 1};
    const struct setting settings[] = {
        {"ranks", &g.ranks, 1, 0},
        {"group", &g.group_size, 1, 0},
        {"quorum", &g.quorum, 1, 0},
        {"window", &g.window, 1, 0},
        {"slices", &g.slices, 1, 0},
        {"buffers", &g.buffers, 1, 0},
        {"rounds", &g.rounds, 1, 0},
        {"tso", &g.tso, 0, 1},
        {"limited", &g.limited, 0, 1},
        {"spare", &g.spare, 0, 1},
        {"no-waits", &g.no_waits, 0, 1},
        {"majority", &g.majority, 0, 1},
        {"world", &g.world, 0, 1},
        {"ordered", &g.ordered, 0, 1},
        {"forward", &g.forward, 0, 1},
        {"no-collapse", &g.collapse, 0, 0},
        {"pairs", &g.grouping, 0, WAGMA_GROUPING_PAIRS},
        {"fixed", &g.grouping, 0, WAGMA_GROUPING_FIXED},
    };
    struct command command;
    if (argc > 1 && strcmp(argv[1], "--quorum-all") == 0)
        return quorum_all_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "--activation") == 0)
        return activation_main(argc - 1, argv + 1);
    const char *error =
        command_read(argc, argv, settings, (int)(sizeof settings / sizeof *settings), &command);
    if (!error && (g.ranks < 1 || g.ranks > MAX_RANKS))
        error = "--ranks is out of range";
    if (!error)
        error = command_programs(command.programs, g.ranks, g.program[0], sizeof g.program[0],
                                 MAX_PROGRAM);
    if (!error && command.quorums) {
        g.varies = 1;
        error = command_programs(command.quorums, g.ranks, g.quorums[0], sizeof g.quorums[0],
                                 MAX_PROGRAM);
    }
    g.collapse &= !g.tso; /* with store buffers a store is visible later than its step */
    if (!error)
        error = config_finish(&g);
    if (error)
        return command_wrong(error, usage);
    const struct space space = round_space(&g);
    return command_run(&space, &command.limits);
}
