/* The table of executors. */
#ifndef WAGMA_API_EXECUTORS_H
#define WAGMA_API_EXECUTORS_H

#include "engine/executor.h"

extern const struct executor *const executors[];
extern const int executors_n;

#endif
