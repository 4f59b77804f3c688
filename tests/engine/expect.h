/* Expectations of ranks, which threads or forked processes check: EXPECT counts failures for all of
 * them and does not leave the function, so that a failed rank does not leave the others waiting.
 * And what forked processes need. */
#ifndef WAGMA_TESTS_EXPECT_H
#define WAGMA_TESTS_EXPECT_H

#include <stddef.h>
#include <sys/types.h>

/* Evaluates the arguments to print only if the condition does not hold. */
#define EXPECT(condition, ...)                                                                     \
    ((condition) ? 1 : expect(0, __FILE__, __LINE__, #condition, __VA_ARGS__))

/* Returns `holds`; counts and prints what does not (the first few of a test). For any rank. */
int expect(int holds, const char *file, int line, const char *what, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Expects `call` to return `wanted`, with every word in its message. */
#define REFUSED(call, wanted, ...)                                                                 \
    expect_refused(__FILE__, __LINE__, call, wanted, (const char *const[]){__VA_ARGS__},           \
                   (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))
void expect_refused(const char *file, int line, int status, int wanted, const char *const *words,
                    int n);

/* Expectations that have failed since the last such question. */
int expectations_failed(void);

/* Zeroed memory that forked ranks share with the test; never freed. */
void *shared_memory(size_t bytes);

double seconds(void); /* CLOCK_MONOTONIC */
void sleep_ms(double ms);

/* Times, in seconds, of what a test does again and again. Each may hold a time in which its thread
 * had no core; so the median tells how fast something is. */
typedef struct times {
    _Atomic int n;
    double value[2048];
} times;

void times_add(times *t, double value); /* by any thread; beyond the last one it does nothing */
double times_median(const times *t);    /* the lower one of two; INFINITY without any */
/* Expects that there are times, their median is below the limit, and none is 20 s or more. Empties
 * them for the next test. */
int times_are_soon(times *t, double limit, const char *what);

/* Whether processes may read the memory of one that is none of their children. */
int peers_may_read(void);

/* fork(); the child is killed with its parent, so that a failed test leaves none. */
pid_t fork_child(void);

#endif
