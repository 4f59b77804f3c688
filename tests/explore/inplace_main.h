#ifndef EXPLORE_INPLACE_MAIN_H
#define EXPLORE_INPLACE_MAIN_H

/* Explores one configuration of quorum "all"; returns the exit status. */
int inplace_main(int argc, char **argv);

#endif
