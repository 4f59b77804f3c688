/* How much less a test repeats under a sanitizer. */
#ifndef WAGMA_TESTS_SLOWDOWN_H
#define WAGMA_TESTS_SLOWDOWN_H

/* They cost a factor of 3 (address) to 10 (thread). */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLOWDOWN_TSAN
#elif __has_feature(address_sanitizer)
#define SLOWDOWN_ASAN
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(SLOWDOWN_TSAN)
enum { SLOWDOWN = 8 };
#elif defined(__SANITIZE_ADDRESS__) || defined(SLOWDOWN_ASAN)
enum { SLOWDOWN = 4 };
#else
enum { SLOWDOWN = 1 };
#endif

#endif
