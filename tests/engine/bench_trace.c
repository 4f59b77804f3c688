/* What an event costs, and a call of 4 bytes with and without a timeline; not a test.
 *
 *     gcc -std=gnu11 -O3 -pthread -Icsrc tests/engine/bench_trace.c \
 *         $(find csrc -name '*.c' | grep -vE 'mpi/|/(round|quorum_all)\.c') -lm && ./a.out
 *
 * The median and the quartiles of many loops. The calls are of one rank, so that nothing but the
 * engine's own work is timed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace/events.h"

enum { LOOPS = 200, STEPS = 2000 };

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell(const char *what, void (*step)(void *), void *context) {
    double ns[LOOPS];
    for (int i = 0; i < LOOPS; i++) {
        const uint64_t began = clock_now();
        for (int k = 0; k < STEPS; k++)
            step(context);
        ns[i] = (double)(clock_now() - began) / STEPS;
    }
    qsort(ns, LOOPS, sizeof *ns, ascending);
    printf("%-44s %7.1f ns  (%.1f to %.1f)\n", what, ns[LOOPS / 2], ns[LOOPS / 4],
           ns[LOOPS * 3 / 4]);
}

static void clock_step(void *context) {
    *(volatile uint64_t *)context = clock_now();
}
static void event_step(void *context) {
    trace_now(context, TRACE_ARRIVAL, 1, -1, 0);
}
static void span_step(void *context) {
    trace_end(context, TRACE_REDUCE, trace_begin(context), 1, -1, 0);
}
static void call_step(void *context) {
    float x = 1;
    if (wagma_allreduce(context, &x, 1, NULL) != WAGMA_OK)
        abort();
}

static void tell_all(const char *mode) {
    char what[64];
    wagma_options options;
    wagma_segment *segment;
    wagma_handle *h;
    struct trace *t;
    wagma_options_init(&options);
    options.size = options.group_size = 1;
    options.count = 1;
    if (trace_create(&(struct trace_origin){.options = &options, .transport = "none"}, &t) !=
            WAGMA_OK ||
        wagma_segment_create(&options, NULL, &segment) != WAGMA_OK ||
        wagma_create(segment, 0, NULL, 1, NULL, &h) != WAGMA_OK) {
        puts(wagma_last_error());
        exit(1);
    }
    snprintf(what, sizeof what, "a moment, %s", mode);
    tell(what, event_step, t);
    snprintf(what, sizeof what, "a span, %s", mode);
    tell(what, span_step, t);
    snprintf(what, sizeof what, "a call of one rank, 4 bytes, %s", mode);
    tell(what, call_step, h);
    trace_free(t);
    wagma_close(h);
    wagma_free(h);
    wagma_segment_close(segment);
}

int main(void) {
    char folder[] = "/tmp/wagma-bench-XXXXXX", command[64];
    uint64_t now;
    tell("reading the clock", clock_step, &now);
    unsetenv("WAGMA_TRACE");
    tell_all("flight recorder only");
    if (!mkdtemp(folder))
        return 1;
    setenv("WAGMA_TRACE", folder, 1);
    tell_all("with a timeline");
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}
