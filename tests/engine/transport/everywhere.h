/* check.h for tests that run on every rank: one that fails on a rank failed, and rank 0 prints. */
#ifndef WAGMA_TESTS_EVERYWHERE_H
#define WAGMA_TESTS_EVERYWHERE_H

#include "../check.h"
#include "world.h"

/* RUN() of check.h, for a test that every rank runs. */
#define RUN_EVERYWHERE(test) world_run(#test, test)

static inline void world_run(const char *name, void (*test)(void)) {
    check_in_test = 0;
    test();
    int failures = world_failures(check_in_test);
    check_passed += failures == 0;
    check_failed += failures != 0;
    if (world_rank == 0) {
        printf("%s %s\n", failures == 0 ? "ok    " : "FAILED", name);
        fflush(stdout);
    }
}

#endif
