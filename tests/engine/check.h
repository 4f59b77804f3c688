/* The frame of a C test program: named tests, one line each with its seconds, and a summary that
 * tests/run.py reads.
 *
 *     static void test_adds(void) { CHECK(1 + 1 == 2, "got %d", 1 + 1); }
 *     int main(void) {
 *         RUN(test_adds);
 *         return check_summary();
 *     }
 *
 * A failed CHECK leaves its function; only the first one of a test is printed. For tests that run
 * on one thread. */
#ifndef WAGMA_TESTS_CHECK_H
#define WAGMA_TESTS_CHECK_H

#include <stdio.h>
#include <time.h>

static int check_passed, check_failed;
static int check_in_test; /* failures of the test that runs */

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            if (check_in_test++ == 0) {                                                            \
                printf("  %s:%d: %s: ", __FILE__, __LINE__, #condition);                           \
                printf(__VA_ARGS__);                                                               \
                printf("\n");                                                                      \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
    } while (0)

#define RUN(test) check_run(#test, test)

static inline void check_run(const char *name, void (*test)(void)) {
    struct timespec began, ended;
    check_in_test = 0;
    clock_gettime(CLOCK_MONOTONIC, &began);
    test();
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%s %s, %.2f s\n", check_in_test == 0 ? "ok    " : "FAILED", name,
           (double)(ended.tv_sec - began.tv_sec) + 1e-9 * (double)(ended.tv_nsec - began.tv_nsec));
    fflush(stdout);
    if (check_in_test == 0)
        check_passed++;
    else
        check_failed++;
}

/* Exit status of main(). */
static inline int check_summary(void) {
    printf("%d passed, %d failed\n", check_passed, check_failed);
    return check_failed > 0;
}

#endif
