/* Checks which events calls record, how many, and that every end of the process writes them. */
#include "check.h"
#include "engine/handle.h"
#include "support.h"
#include "trace_files.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Expects the events of handle r since `first` to be `wanted`. */
static void recorded(cast *c, int r, uint64_t first, const char *wanted) {
    const char *kinds = trace_kinds(c->handle[r]->trace, first);
    EXPECT(strcmp(kinds, wanted) == 0, "rank %d: \"%s\" instead of \"%s\"", r, kinds, wanted);
}

static uint64_t so_far(cast *c, int r) {
    return trace_recorded(c->handle[r]->trace);
}

static void take_part(cast *c, int r, double *x) {
    EXPECT(wagma_allreduce(c->handle[r], x, 1, NULL) == WAGMA_OK, "rank %d: %s", r,
           wagma_last_error());
}

/* ---- events per call ------------------------------------------------------------------------- */

/* One rank after the other, so that nobody waits: rank 0 executes version 0 alone, rank 1 is late,
 * then has nothing new, then rank 1 comes first. */
static void test_wait_avoiding(int traced) {
    wagma_options options = options_of(2, 2, 1, 1);
    double x[2] = {1, 2};
    cast c;
    if (traced)
        traces_begin();
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    uint64_t first[2] = {so_far(&c, 0), so_far(&c, 1)};
    take_part(&c, 0, &x[0]);
    recorded(&c, 0, first[0],
             traced ? "write arrival pin reduce complete call" : "arrival pin complete call");
    take_part(&c, 1, &x[1]);
    recorded(&c, 1, first[1], traced ? "write arrival merge call" : "arrival call");
    for (int r = 0; r < 2; r++)
        first[r] = so_far(&c, r);
    take_part(&c, 1, &x[1]);
    recorded(&c, 1, first[1],
             traced ? "compute write arrival pin reduce complete call"
                    : "arrival pin complete call");
    take_part(&c, 0, &x[0]);
    recorded(&c, 0, first[0], traced ? "compute write arrival merge call" : "arrival call");
    cast_close(&c);
    if (traced) {
        const char *text = traces_read("handle.rank-1.json");
        EXPECT(traces_words(text, "\"late\": true") == 1, "%s", text);
        EXPECT(traces_words(text, "\"name\": \"call\"") == 2, "%s", text);
        traces_end();
    }
}
static void test_wait_avoiding_recorder(void) {
    test_wait_avoiding(0);
    CHECK(expectations_failed() == 0, "see above");
}
static void test_wait_avoiding_timeline(void) {
    test_wait_avoiding(1);
    CHECK(expectations_failed() == 0, "see above");
}

/* Quorum "all": rank 0 has posted and computes, rank 1 comes last. */
static void test_quorum_all(int traced) {
    wagma_options options = options_of(2, 2, 0, 1);
    double x[2] = {1, 2};
    cast c;
    if (traced)
        traces_begin();
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    const uint64_t first[2] = {so_far(&c, 0), so_far(&c, 1)};
    CHECK(wagma_post(c.handle[0], &x[0], 1, 0) == WAGMA_INPROGRESS, "done");
    for (int i = 0; i < 5; i++) /* a look does not end the computing */
        CHECK(wagma_test(c.handle[0], &x[0], NULL) == WAGMA_INPROGRESS, "done");
    take_part(&c, 1, &x[1]);
    CHECK(wagma_test(c.handle[0], &x[0], NULL) == WAGMA_OK, "%s", wagma_last_error());
    recorded(&c, 0, first[0], traced ? "arrival reduce compute call" : "call");
    recorded(&c, 1, first[1], traced ? "arrival reduce call" : "call");
    cast_close(&c);
    if (traced) {
        const char *text = traces_read("handle.rank-0.json");
        EXPECT(traces_words(text, "\"pending\": true") == 1, "%s", text);
        EXPECT(traces_words(text, "\"posted\": true") == 1, "%s", text);
        traces_end();
    }
}
static void test_quorum_all_recorder(void) {
    test_quorum_all(0);
    CHECK(expectations_failed() == 0, "see above");
}
static void test_quorum_all_timeline(void) {
    test_quorum_all(1);
    CHECK(expectations_failed() == 0, "see above");
}

/* A large array: a write, each slice once by somebody, one completion. */
static void test_slices(void) {
    enum { COUNT = 1 << 20 };
    traces_begin();
    wagma_options options = options_of(3, 3, 1, COUNT);
    double *x = calloc(COUNT, sizeof *x);
    cast c;
    CHECK(x && cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    const int slices = c.segment->slices;
    take_part(&c, 0, x);
    cast_close(&c);
    const char *text = traces_read("handle.rank-0.json");
    EXPECT(slices > 1 && traces_words(text, "\"name\": \"reduce\"") == slices, "%d of %d slices",
           traces_words(text, "\"name\": \"reduce\""), slices);
    EXPECT(traces_words(text, "\"name\": \"write\"") == 1, "%.2000s", text);
    EXPECT(traces_words(text, "\"name\": \"complete\"") == 1, "%.2000s", text);
    free(x);
    traces_end();
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void test_stall(void) {
    traces_begin();
    wagma_options options = options_of(2, 2, 2, 1);
    char text[4096], said[256];
    double x = 1;
    cast c;
    options.timeout = 0.5;
    CHECK(cast_open(&c, &options, NULL, NULL), "%s", wagma_last_error());
    CHECK(wagma_allreduce(c.handle[0], &x, 1, NULL) == WAGMA_ESTALL, "did not stall");
    snprintf(said, sizeof said, "%s", wagma_last_error());
    CHECK(wagma_dump_state(c.handle[0], text, sizeof text) == WAGMA_OK, "%s", wagma_last_error());
    EXPECT(strstr(said, "version 0 (phase ") && strstr(said, "for rank 1, which"), "%s", said);
    EXPECT(strstr(text, "version 0: wait for "), "%s", text);
    EXPECT(strstr(text, "version 0: call broke"), "%s", text);
    EXPECT(strstr(text, "version 0: error: stalled\n"), "%s", text);
    const char *file = traces_read("handle.rank-0.json"); /* it is not free yet */
    EXPECT(strstr(file, "\"status\": \"stalled\"") && strstr(file, "\"broke\": true"), "%s", file);
    cast_drop(&c);
    REFUSED(wagma_dump_state(NULL, text, sizeof text), WAGMA_EINVAL, "handle", "NULL");
    traces_end();
    CHECK(expectations_failed() == 0, "see above");
}

static int warned;
static void note(void *context, const char *message) {
    EXPECT(strstr(message, "timeline") && strstr(message, context), "%s", message);
    warned++;
}

/* A timeline that cannot be written is a warning: the handle closes. */
static void test_folder_gone(void) {
    char folder[64];
    strcpy(folder, traces_begin());
    wagma_options options = options_of(1, 1, 0, 1);
    const wagma_hooks hooks = {.context = folder, .warn = note};
    double x = 1;
    cast c;
    warned = 0;
    CHECK(cast_open(&c, &options, NULL, &hooks), "%s", wagma_last_error());
    take_part(&c, 0, &x);
    CHECK(rmdir(folder) == 0, "not empty");
    CHECK(wagma_close(c.handle[0]) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(warned == 1, "%d warnings", warned);
    traces_end();
    unsetenv("WAGMA_TRACE");
    cast_drop(&c);
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- ends of a process ----------------------------------------------------------------------- */

enum end { EXITS, EXITS_AT_ONCE, FORKS };

/* In a process of its own: a handle of one rank, a call, and the end. */
static void live(enum end end) {
    const wagma_options options = options_of(1, 1, 0, 1);
    wagma_segment *segment;
    wagma_handle *h;
    double x = 1;
    if (wagma_segment_create(&options, NULL, &segment) != WAGMA_OK ||
        wagma_create(segment, 0, NULL, 1, NULL, &h) != WAGMA_OK ||
        wagma_allreduce(h, &x, 1, NULL) != WAGMA_OK)
        _exit(1);
    if (end == FORKS && fork_child() == 0) { /* has copies of the events, and leaves first */
        (void)wagma_allreduce(h, &x, 1, NULL);
        exit(0);
    }
    while (end == FORKS && wait(NULL) > 0)
        ;
    if (end == FORKS && traces_count() > 0)
        _exit(2);
    end == EXITS_AT_ONCE ? _exit(0) : exit(0);
}

static void ends(enum end end, const char *how, int files) {
    traces_begin();
    const pid_t pid = fork_child();
    int status = -1;
    if (pid == 0)
        live(end);
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0, "%s: wait status %#x", how,
           (unsigned)status);
    EXPECT(traces_count() == files, "%s: %d files", how, traces_count());
    if (files)
        EXPECT(traces_words(traces_read("handle.rank-0.json"), "\"name\": \"call\"") == 1, "%s",
               how);
    traces_end();
}

static void test_exits(void) {
    ends(EXITS, "exit()", 1);
    ends(FORKS, "exit() after a fork", 1);
    ends(EXITS_AT_ONCE, "_exit()", 0);
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    RUN(test_wait_avoiding_recorder);
    RUN(test_wait_avoiding_timeline);
    RUN(test_quorum_all_recorder);
    RUN(test_quorum_all_timeline);
    RUN(test_slices);
    RUN(test_stall);
    RUN(test_folder_gone);
    RUN(test_exits);
    return check_summary();
}
