/* The protocol of quorum "all", compiled with the explorer's memory. */
#include "quorum_all_explore_memory.h"
#include "protocol/quorum_all.c"
