/* The flight recorder and timelines by themselves: what is kept, what is said, where it goes. */
/* short run: c */
#include "check.h"
#include "support.h"
#include "messages/names.h"
#include "protocol/topology.h"
#include "trace_files.h"
#include "trace/text.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int group_of(const void *topology, int rank, int64_t version, int32_t *members) {
    return topology_members(topology, rank, version, members);
}

static struct trace *new_shared_trace(int shared) {
    const wagma_options options = options_of(4, 2, 1, 1);
    static const struct topology topology = {.size = 4, .group_size = 2};
    const struct trace_origin origin = {
        .rank = 1,
        .options = &options,
        .group = group_of,
        .groups = &topology,
        .transport = "test",
        .inode = 7,
        .shared = shared,
    };
    struct trace *t = NULL;
    EXPECT(trace_create(&origin, &t) == WAGMA_OK, "%s", wagma_last_error());
    trace_name_messages(t, message_name);
    return t;
}

static struct trace *new_trace(void) {
    return new_shared_trace(0);
}

/* ---- the flight recorder ------------------------------------------------------------------- */

static void test_newest_stay(void) {
    struct trace *t = new_trace();
    char text[16384], little[200], tiny[10];
    const int n = 3 * TRACE_RING;
    for (int i = 0; i < n; i++)
        trace_now(t, TRACE_REDUCE, i, -1, i);
    trace_dump(t, text, sizeof text);
    CHECK(strstr(text, "rank 1 of 4: in no call") == text, "%.100s", text);
    CHECK(traces_words(text, "reduce slice") == TRACE_RING - 1, "%d",
          traces_words(text, "reduce slice"));
    CHECK(strstr(text, "version 257: reduce slice 257\n"), "the oldest that is kept is missing");
    CHECK(!strstr(text, "version 256:"), "one that was overwritten is there");
    CHECK(strcmp(text + strlen(text) - strlen("version 383: reduce slice 383\n"),
                 "version 383: reduce slice 383\n") == 0,
          "the newest is not last");
    trace_dump(t, little, sizeof little);
    CHECK(strlen(little) < sizeof little && strstr(little, "slice 383\n") &&
              strstr(little, "slice 382\n") && !strstr(little, "slice 380\n"),
          "not the newest that fit: %s", little);
    trace_dump(t, tiny, sizeof tiny);
    CHECK(strcmp(tiny, "") == 0, "%s", tiny);
    trace_free(t);
}

/* Every kind, as a reader of the text sees it. */
static void test_words(void) {
    struct trace *t = new_trace();
    char text[16384];
    trace_called(t, clock_now(), 7);
    trace_waits(t, TRACE_FOR_QUORUM);
    trace_dump(t, text, sizeof text);
    EXPECT(strstr(text, "in version 7 for ") && strstr(text, "waits for quorum"), "%s", text);
    trace_waited(t, TRACE_FOR_QUORUM, 1000, 26000, 7, 3);
    trace_waited(t, TRACE_FOR_WINDOW, 1000, 10999, 7, 3); /* too short */
    trace_waited(t, TRACE_FOR_GRACE, 0, 0, 7, 3);         /* did not pause */
    trace_at(t, TRACE_SEND, 5000, 7, 2, 1);
    trace_at(t, TRACE_RECEIVE, 5000, 8, 3, 64);
    trace_at(t, TRACE_PIN, 5000, 7, -1, 2);
    trace_at(t, TRACE_PIN, 5000, 8, -1, TRACE_WITHOUT);
    trace_span(t, TRACE_PHASE, 5000, 6000, 7, 2, 1);
    trace_at(t, TRACE_ERROR, 7000, 7, -1, WAGMA_ESTALL);
    trace_returned(t, TRACE_LATE | TRACE_SYNC);
    trace_dump(t, text, sizeof text);
    const char *const words[] = {
        "rank 1 of 4: in no call",
        "version 7: wait for quorum of 3, 25.0 us\n",
        "version 7: send activate to 2\n",
        "version 8: receive header from 3\n",
        "version 7: pin 2 behind\n",
        "version 8: pin without this rank's contribution\n",
        "version 7: phase 1 with 2, 1.0 us\n",
        "version 7: error: stalled\n",
        "version 7: call sync late",
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        EXPECT(strstr(text, words[i]), "\"%s\" is missing in\n%s", words[i], text);
    EXPECT(!strstr(text, "grace") && !strstr(text, "window"), "waits that were none");
    trace_free(t);
    CHECK(expectations_failed() == 0, "see above");
}

/* Without a timeline no clock is read and nothing is recorded of what only a timeline shows. */
static void test_off(void) {
    struct trace *t = new_trace();
    const uint64_t newest = trace_newest(t);
    CHECK(!trace_is_on(t) && trace_begin(t) == 0, "is on");
    trace_end(t, TRACE_MERGE, trace_begin(t), 1, -1, 0);
    trace_left(t);
    trace_back(t, newest, 1, 0);
    CHECK(trace_recorded(t) == 0, "recorded %s", trace_kinds(t, 0));
    trace_now(t, TRACE_ARRIVAL, 1, -1, 0);
    CHECK(trace_newest(t) == newest && trace_recorded(t) == 1, "the clock was read");
    CHECK(trace_write(t) == WAGMA_OK, "%s", wagma_last_error());
    trace_free(t);
    trace_free(NULL);
}

/* ---- a look while another thread records ----------------------------------------------------- */

static _Atomic int enough;

static void *record(void *argument) {
    struct trace *t = argument;
    for (int i = 1; !atomic_load(&enough); i++)
        trace_record(t, TRACE_REDUCE, (uint64_t)i, (uint64_t)i, i, i, i);
    return NULL;
}

/* The oldest events, which are about to be overwritten: none is made of two. */
static void test_read_from_another_thread(void) {
    enum { READS = 2000000 / SLOWDOWN };
    struct trace *t = new_trace();
    const double until = seconds() + 30;
    pthread_t thread;
    struct trace_seen seen;
    char text[16384];
    int reads = 0, torn = 0;
    atomic_store(&enough, 0);
    pthread_create(&thread, NULL, record, t);
    while (trace_recorded(t) < TRACE_RING && seconds() < until)
        ;
    for (int i = 0; reads < READS && (i % 1024 || seconds() < until); i++) {
        if (!trace_read(t, trace_recorded(t) - TRACE_RING + 1 + (uint64_t)(i % 8), &seen))
            continue;
        const int64_t is = seen.version;
        torn += (int64_t)seen.began != is || (int64_t)seen.duration != is || seen.peer != is ||
                seen.detail != is || seen.kind != TRACE_REDUCE;
        reads++;
    }
    for (int i = 0; i < 100; i++)
        trace_dump(t, text, sizeof text);
    atomic_store(&enough, 1);
    pthread_join(thread, NULL);
    CHECK(reads == READS && torn == 0, "%d of %d are torn", torn, reads);
    trace_free(t);
}

/* A progress thread and its owner: no event is lost, in the ring or in the file. */
static _Atomic int many;

static void *record_many(void *argument) {
    struct trace *t = argument;
    const int n = atomic_load(&many);
    for (int i = 0; i < n; i++)
        trace_now(t, TRACE_SEND, i, 0, 1);
    return NULL;
}

static uint64_t two_record(struct trace *t, int each) {
    pthread_t thread;
    atomic_store(&many, each);
    pthread_create(&thread, NULL, record_many, t);
    record_many(t);
    pthread_join(thread, NULL);
    return trace_recorded(t);
}

static void test_two_record(void) {
    enum { RING = 400000 / SLOWDOWN, FILED = 10000 };
    struct trace *t = new_shared_trace(1);
    uint64_t recorded = two_record(t, RING);
    trace_free(t);
    CHECK(recorded == 2 * RING, "%d of %d", (int)recorded, 2 * RING);
    traces_begin();
    t = new_shared_trace(1);
    recorded = two_record(t, FILED);
    trace_free(t);
    const int written =
        traces_words(traces_read("handle.rank-1.json"), "\"name\": \"send activate\"");
    traces_end();
    CHECK(recorded == 2 * FILED && written == 2 * FILED, "%d, %d", (int)recorded, written);
}

/* ---- timelines ------------------------------------------------------------------------------- */

static void label(struct trace *t, const char *name) {
    const wagma_trace_label label = {
        .struct_size = sizeof label,
        .name = name,
        .clock_compared = 1,
        .clock_offset_ns = -5,
        .clock_error_ns = 3,
    };
    trace_label(t, &label);
}

static void test_file(void) {
    traces_begin();
    struct trace *t = new_trace();
    CHECK(t && trace_is_on(t), "off");
    label(t, "mo\"del/1");
    trace_span(t, TRACE_WAIT, 1234567, 2000000, 3, 0, TRACE_FOR_SYNC);
    trace_at(t, TRACE_SEND, 2000001, 4, 2, 2);
    trace_called(t, 3000000, 5);
    trace_returned(t, 0);
    CHECK(trace_write(t) == WAGMA_OK, "%s", wagma_last_error());
    const char *text = traces_read("mo_del_1.rank-1.json");
    const char *const words[] = {
        "\"handle\": \"mo\\\"del/1\"",
        "\"rank\": 1, \"size\": 4",
        "\"events\": 3, \"dropped\": 0",
        "\"to_rank_0_ns\": -5, \"error_ns\": 3",
        "\"ph\": \"X\", \"pid\": 1, \"tid\": 0, \"cat\": \"wait\", \"name\": \"wait for sync\"",
        "\"ts\": 1234.567, \"dur\": 765.433",
        "\"args\": {\"version\": 3, \"peer\": 0, \"for\": \"sync\"}",
        "\"name\": \"send notice\", \"ts\": 2000.001, \"s\": \"t\"",
        "\"args\": {\"version\": 4, \"peer\": 2, \"message\": \"notice\"}",
        "\"group\": [1, 3]",
        "\"name\": \"rank 1\"",
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        EXPECT(strstr(text, words[i]), "%s is missing in\n%s", words[i], text);
    trace_free(t);
    EXPECT(traces_count() == 1, "%d files", traces_count());
    traces_end();
    CHECK(expectations_failed() == 0, "see above");
}

/* Steps of exchanges that overlap are on tracks of their own, the others share one. */
static void test_tracks(void) {
    traces_begin();
    struct trace *t = new_trace();
    trace_span(t, TRACE_PHASE, 1000, 2000, 0, 1, 0);
    trace_span(t, TRACE_PHASE, 1500, 2500, 1, 1, 0);
    trace_span(t, TRACE_PHASE, 2000, 3000, 0, 1, 1);
    trace_free(t);
    const char *text = traces_read("handle.rank-1.json");
    EXPECT(traces_words(text, "\"tid\": 3, \"cat\": \"phase\"") == 2, "%s", text);
    EXPECT(traces_words(text, "\"tid\": 4, \"cat\": \"phase\"") == 1, "%s", text);
    EXPECT(strstr(text, "\"exchange 2\"") && !strstr(text, "\"exchange 3\""), "%s", text);
    traces_end();
    CHECK(expectations_failed() == 0, "see above");
}

static void test_limit(void) {
    traces_begin();
    setenv("WAGMA_TRACE_LIMIT", "10", 1);
    struct trace *t = new_trace();
    for (int i = 0; i < 15; i++)
        trace_now(t, TRACE_ARRIVAL, i, -1, 0);
    trace_free(t);
    const char *text = traces_read("handle.rank-1.json");
    EXPECT(strstr(text, "\"events\": 10, \"dropped\": 5"), "%.300s", text);
    EXPECT(traces_words(text, "\"name\": \"arrival\"") == 10, "%d",
           traces_words(text, "\"name\": \"arrival\""));
    traces_end();
    CHECK(expectations_failed() == 0, "see above");
}

/* Blocks of events are not moved when there are more; none is lost between two of them. */
static void test_many(void) {
    enum { MANY = 10000 };
    traces_begin();
    struct trace *t = new_trace();
    for (int i = 0; i < MANY; i++)
        trace_now(t, TRACE_ARRIVAL, i, -1, 0);
    trace_free(t);
    const char *at = traces_read("handle.rank-1.json");
    for (int i = 0; i < MANY; i++) {
        char word[32];
        snprintf(word, sizeof word, "\"version\": %d}", i);
        at = traces_find(at, word);
        CHECK(at, "event %d is missing, or out of order", i);
    }
    traces_end();
}

/* Two handles with one name in one process keep both files; files of an earlier run go. */
static void test_names(void) {
    const char *folder = traces_begin();
    char path[128];
    const struct timespec long_ago[2] = {{1, 0}, {1, 0}};
    for (int i = 0; i < 2; i++) {
        struct trace *t = new_trace();
        label(t, "model");
        trace_now(t, TRACE_ARRIVAL, 100 + i, -1, 0);
        trace_free(t);
    }
    EXPECT(strstr(traces_read("model.rank-1.json"), "\"version\": 100}"), "the first is gone");
    EXPECT(strstr(traces_read("model-2.rank-1.json"), "\"version\": 101}"), "no second one");
    snprintf(path, sizeof path, "%s/model.rank-1.json", folder);
    EXPECT(utimensat(AT_FDCWD, path, long_ago, 0) == 0, "utimensat");
    struct trace *t = new_trace();
    label(t, "model");
    trace_now(t, TRACE_ARRIVAL, 102, -1, 0);
    trace_free(t);
    EXPECT(strstr(traces_read("model.rank-1.json"), "\"version\": 102}"), "an old one stayed");
    EXPECT(traces_count() == 2, "%d files", traces_count());
    traces_end();
    CHECK(expectations_failed() == 0, "see above");
}

static int create(void) {
    const wagma_options options = options_of(1, 1, 0, 1);
    const struct trace_origin origin = {.options = &options, .transport = ""};
    struct trace *t;
    const int status = trace_create(&origin, &t);
    if (status == WAGMA_OK)
        trace_free(t);
    return status;
}

static void test_environment(void) {
    char deep[128];
    snprintf(deep, sizeof deep, "%s/a/b", traces_begin());
    const char *const limits[] = {"many", "-1", "0", "1.5", "99999999999999999999999"};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        setenv("WAGMA_TRACE_LIMIT", limits[i], 1);
        REFUSED(create(), WAGMA_EINVAL, "WAGMA_TRACE_LIMIT=", limits[i], "number of events");
    }
    setenv("WAGMA_TRACE_LIMIT", "", 1);
    setenv("WAGMA_TRACE", "/proc/none/here", 1);
    REFUSED(create(), WAGMA_EINVAL, "WAGMA_TRACE=/proc/none/here", "cannot be made", "No such file",
            "unset");
    setenv("WAGMA_TRACE", "/dev/null", 1);
    REFUSED(create(), WAGMA_EINVAL, "WAGMA_TRACE=/dev/null", "unset");
    char endless[4096] = "";
    memset(endless, 'x', sizeof endless - 1);
    setenv("WAGMA_TRACE", endless, 1);
    REFUSED(create(), WAGMA_EINVAL, "WAGMA_TRACE has 4095 bytes", "xxx");
    setenv("WAGMA_TRACE", "", 1);
    EXPECT(create() == WAGMA_OK && traces_count() == 0, "empty is not unset");
    setenv("WAGMA_TRACE", deep, 1);
    EXPECT(create() == WAGMA_OK && access(deep, W_OK) == 0, "folders are not made");
    strcat(deep, "/handle.rank-0.json");
    EXPECT(unlink(deep) == 0, "%s", deep);
    *strrchr(deep, '/') = 0;
    rmdir(deep);
    *strrchr(deep, '/') = 0;
    rmdir(deep);
    traces_end();
    CHECK(expectations_failed() == 0, "see above");
}

/* What an event costs is told, and compared to what it may: the best of many loops, as other
 * processes run. bench_trace.c has the figures. */
static double best_loop(struct trace *t) {
    enum { LOOPS = 50, EVENTS = 1000 };
    double best = 1;
    for (int i = 0; i < LOOPS; i++) {
        const double began = seconds();
        for (int k = 0; k < EVENTS; k++)
            t ? trace_now(t, TRACE_ARRIVAL, k, -1, 0) : (void)clock_now();
        const double each = (seconds() - began) / EVENTS;
        best = each < best ? each : best;
    }
    return best * 1e9;
}

static void test_cost(void) {
    enum { MOST_NS = 200 };
    struct trace *off = new_trace();
    traces_begin();
    struct trace *on = new_trace();
    const double clock = best_loop(NULL), recorder = best_loop(off), timeline = best_loop(on);
    printf("  an event: %.1f ns, with a timeline %.1f ns; the clock: %.1f ns\n", recorder, timeline,
           clock);
    trace_free(on);
    trace_free(off);
    traces_end();
    CHECK(SLOWDOWN > 1 || (recorder < 2 * clock && recorder < MOST_NS && timeline < MOST_NS),
          "at most %d ns, and less than twice the clock without a timeline: see above", MOST_NS);
}

int main(void) {
    RUN(test_newest_stay);
    RUN(test_words);
    RUN(test_off);
    RUN(test_read_from_another_thread);
    RUN(test_two_record);
    RUN(test_file);
    RUN(test_tracks);
    RUN(test_limit);
    RUN(test_many);
    RUN(test_names);
    RUN(test_environment);
    RUN(test_cost);
    return check_summary();
}
