/* Ranks for tests of the engine, beside check.h: as threads over one mapping or as forked
 * processes, or all in the hands of one thread that decides who calls when (a cast).
 *
 * Ranks check with EXPECT (expect.h); the thread that started them asks with
 * CHECK(expectations_failed() == 0, ...). Whatever hangs is ended by a watchdog, which prints where
 * every rank is. */
#ifndef WAGMA_TESTS_SUPPORT_H
#define WAGMA_TESTS_SUPPORT_H

#include <stdint.h>
#include <sys/types.h>

#include "expect.h"
#include "shm/segment.h"
#include "slowdown.h"
#include "include/wagma.h"

enum { RANKS_MAX = 24, WATCHDOG_SECONDS = 60, PATIENCE_SECONDS = 20 };

/* ---- teams: ranks that run by themselves ----------------------------------------------------- */

typedef struct rank {
    int rank, size;
    wagma_segment *segment;
    struct sim *sim;   /* NULL: they share the segment */
    void *shared;      /* the test's, from shared_memory() if ranks are processes */
    uint32_t random;   /* state of random_below() */
    wagma_hooks hooks; /* counts warnings in the team; a body may replace it before joining */
    struct team *team;
} rank;

/* MESSAGES: threads whose handles are over a simulated transport; the segment only has the options.
 */
enum kind { THREADS, PROCESSES, MESSAGES };
extern const char *const kind_name[];
/* Set by a program before it starts: what asks for THREADS gets MESSAGES, and so do casts. */
extern int messages_for_threads;
/* PROCESSES, or THREADS where they would show nothing: to the thread sanitizer, which sees one
 * process at a time (and there one thread), and in a program of MESSAGES. */
enum kind processes_if_seen(void);

typedef struct team team;

/* Options of most tests: f64, sums, `size` ranks in groups of `group_size`, no grace. */
wagma_options options_of(int size, int group_size, int quorum, int64_t count);

/* Makes a segment and starts body(rank) on each rank; NULL (and a failed EXPECT) if that fails. */
team *team_start(enum kind kind, const wagma_options *options, void (*body)(rank *), void *shared);
/* Waits for the ranks, which have to return, and closes the segment. */
void team_join(team *t);
/* The same; all handles have been closed, so nothing may be referenced any more (I9). */
void team_join_clean(team *t);
wagma_segment *team_segment(team *t);

/* Stop a process, and return when it has stopped; continue it; kill it, which does not count as a
 * failure. */
void team_stop(team *t, int r);
void team_continue(team *t, int r);
void team_kill(team *t, int r);
/* Waits until rank r has stopped or killed itself, which is no failure then. */
void team_await_stopped(team *t, int r);
void team_await_killed(team *t, int r);
/* Waits until it has returned, or left otherwise with exit status 0. */
void team_await_exit(team *t, int r);
/* How many of the warnings that rank r was given (of the first 32) contain `text`, and the newest
 * of them (empty: none). */
int team_warnings(team *t, int r, const char *text);
const char *team_warning(team *t, int r);

/* A handle with `initial`, which is where the rank's arrays are (place.h); or NULL and a failed
 * EXPECT. The team's `timeout`, if there is one, begins with the handle: its creation has
 * PATIENCE_SECONDS, since ranks may come late on a busy machine. The same holds for casts. */
wagma_handle *rank_join(rank *me, const void *initial);
/* From now on the waits of the rank's handle end after so many seconds: PATIENCE_SECONDS while all
 * ranks that it needs are to come, and less when they have come and one is missing on purpose. */
void have_patience(wagma_handle *h, double timeout);
/* Add data to a digest; the result is not 0. */
uint64_t digest_of(uint64_t digest, const void *data, size_t bytes);
uint32_t random_below(rank *me, uint32_t n);
/* Now and then a yield or a short sleep, so that ranks arrive in every order. */
void jitter(rank *me);

/* ---- casts: ranks that one thread plays ------------------------------------------------------ */

typedef struct cast {
    wagma_segment *segment;
    struct sim *sim; /* NULL: they share the segment */
    int size;
    wagma_handle *handle[RANKS_MAX];
} cast;

/* Makes a segment and a handle per rank; initial[r] may be NULL (zeros), and so may `initial`. 1:
 * done. */
int cast_open(cast *c, const wagma_options *options, const void *const *initial,
              const wagma_hooks *hooks);
/* Closes and frees the handles; nothing may be referenced any more (I9). */
void cast_close(cast *c);
/* Closes and frees the handles without that check, after an error has broken them. */
void cast_drop(cast *c);

/* ---- the segment ----------------------------------------------------------------------------- */

/* Expects every reference in the segment to be gone and every round to be free. */
int expect_clean(wagma_segment *s);
/* Return the bytes that the segment's file occupies. */
uint64_t file_bytes(const wagma_segment *s);
/* Newest version that rank r has published; -1: its first contribution, INT64_MAX: departed. */
int64_t published(const wagma_segment *s, int r);

#endif
