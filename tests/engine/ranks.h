/* Teams of support.h whose bodies get a handle that has joined, and say how they ended:
 *
 *     static int body(wagma_handle *h, int rank, void *context) {
 *         REQUIRE(wagma_allreduce(h, x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
 *         return 0;
 *     }
 *     CHECK(ranks_run(THREADS, &options, body, context) == 0, "...");
 *
 * A body that does not return 0 leaves its handle unclosed, so that the other ranks end with
 * WAGMA_EPEER instead of waiting for it. */
#ifndef WAGMA_TESTS_RANKS_H
#define WAGMA_TESTS_RANKS_H

#include "support.h"

/* In a body: prints and leaves it with 1. */
#define REQUIRE(...)                                                                               \
    do {                                                                                           \
        if (!EXPECT(__VA_ARGS__))                                                                  \
            return 1;                                                                              \
    } while (0)

typedef int (*handle_body)(wagma_handle *h, int rank, void *context);

struct ranks_job { /* in shared_memory() */
    handle_body body;
    void *context;
    const wagma_hooks *hooks; /* NULL: the team's */
    int result[RANKS_MAX];
};

static void ranks_main(rank *me) {
    struct ranks_job *job = me->shared;
    if (job->hooks)
        me->hooks = *job->hooks;
    wagma_handle *h = rank_join(me, NULL);
    job->result[me->rank] = h ? job->body(h, me->rank, job->context) : 1;
    if (job->result[me->rank] == 0)
        EXPECT(wagma_close(h) == WAGMA_OK, "rank %d: %s", me->rank, wagma_last_error());
    wagma_free(h);
}

static team *ranks_start(enum kind kind, const wagma_options *options, const wagma_hooks *hooks,
                         handle_body body, void *context, struct ranks_job **job) {
    *job = shared_memory(sizeof **job);
    **job = (struct ranks_job){.body = body, .context = context, .hooks = hooks};
    return team_start(kind, options, ranks_main, *job);
}

/* The number of ranks whose body did not return 0, and of what was expected in vain. */
static inline int ranks_run(enum kind kind, const wagma_options *options, handle_body body,
                            void *context) {
    struct ranks_job *job;
    team_join(ranks_start(kind, options, NULL, body, context, &job));
    int failed = expectations_failed();
    for (int r = 0; r < options->size; r++)
        failed += job->result[r] != 0;
    return failed;
}

/* Quorum "all", averages. */
static inline wagma_options ranks_options(int size, int group_size, wagma_dtype dtype,
                                          int64_t count) {
    wagma_options options = options_of(size, group_size, 0, count);
    options.dtype = (int32_t)dtype;
    options.average = 1;
    return options;
}

#endif
