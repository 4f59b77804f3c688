/* How many times less a test does under a sanitizer. */
#ifndef WAGMA_TESTS_SLOWDOWN_H
#define WAGMA_TESTS_SLOWDOWN_H

/* SLOWDOWN: how much less it repeats; they cost a factor of 3 (address) to 10 (thread).
 * SLOWDOWN_ALONE: how much less what one thread does with all ranks, in which the thread sanitizer
 * has little to see.
 * SEES_PROCESSES: the thread sanitizer sees races of threads only. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLOWDOWN_TSAN
#elif __has_feature(address_sanitizer)
#define SLOWDOWN_ASAN
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(SLOWDOWN_TSAN)
enum { SLOWDOWN = 8, SLOWDOWN_ALONE = 32, SEES_PROCESSES = 0 };
#elif defined(__SANITIZE_ADDRESS__) || defined(SLOWDOWN_ASAN)
enum { SLOWDOWN = 4, SLOWDOWN_ALONE = 4, SEES_PROCESSES = 1 };
#else
enum { SLOWDOWN = 1, SLOWDOWN_ALONE = 1, SEES_PROCESSES = 1 };
#endif

#endif
