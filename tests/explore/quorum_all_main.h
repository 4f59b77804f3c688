#ifndef EXPLORE_QUORUM_ALL_MAIN_H
#define EXPLORE_QUORUM_ALL_MAIN_H

/* Explores one configuration of quorum "all"; returns the exit status. */
int quorum_all_main(int argc, char **argv);

#endif
