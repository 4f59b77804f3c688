#ifndef EXPLORE_ROUND_SPACE_H
#define EXPLORE_ROUND_SPACE_H

#include "space.h"

struct config;

/* The states and moves of a finished configuration, which must outlive it. */
struct space round_space(const struct config *g);

#endif
