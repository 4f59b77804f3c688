#ifndef EXPLORE_ACTIVATION_MAIN_H
#define EXPLORE_ACTIVATION_MAIN_H

/* Explores one configuration of the groups that span nodes; returns the exit status. */
int activation_main(int argc, char **argv);

#endif
