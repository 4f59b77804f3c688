#include "api/executors.h"

/* One line for each. The first one that fits makes the handle. */
#define EXECUTORS(EXECUTOR)                                                                        \
    EXECUTOR(shm_graph)                                                                            \
    EXECUTOR(shm_quorum_all)                                                                       \
    EXECUTOR(shm_avoiding)                                                                         \
    EXECUTOR(shm_device)                                                                           \
    EXECUTOR(messages_graph)                                                                       \
    EXECUTOR(messages_quorum_all)                                                                  \
    EXECUTOR(messages_groups)

#define DECLARE(name) extern const struct executor name##_executor;
#define ENTER(name) &name##_executor,

EXECUTORS(DECLARE)

const struct executor *const executors[] = {EXECUTORS(ENTER)};
const int executors_n = sizeof executors / sizeof *executors;
