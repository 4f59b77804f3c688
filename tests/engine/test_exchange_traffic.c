/* Checks what an exchange sends, in which order, and what memory it keeps. */
#include "check.h"
#include "exchange_stage.h"
#include "messages/exchange_state.h"
#include "schedule_formula.h"

enum { COUNT = 24576, MEMBERS = 8 }; /* parts of a third, a quarter, ... are whole units */

/* The formulas of docs/schedules.md, in what the transport was given. */
static void test_traffic(void) {
    static const int sizes[] = {2, 3, 4, 6, 8, 12};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int a = 0; a < SCHEDULE_ALGORITHMS; a++) {
            const int n = sizes[k];
            const wagma_options o = options_of_algorithm(n, (schedule_algorithm)a, COUNT);
            stage s;
            CHECK(open_stage(&s, &o, 0) == 0, "%s", wagma_last_error());
            const char *wrong = run_version(&s);
            CHECK(!wrong, "%s", wrong);
            const schedule_formula f = schedule_formula_of(n);
            const int doubled = f.log2 + f.rounded;
            const int64_t bytes = (int64_t)COUNT * 4,
                          headers = a == SCHEDULE_DIRECT ? n - 1 : f.factors;
            for (int r = 0; r < n; r++) {
                const struct sim_traffic t = sim_traffic(s.crew.sim, r);
                if (a == SCHEDULE_DOUBLING)
                    CHECK(t.data_bytes <= doubled * bytes && t.controls <= doubled,
                          "%d members: %lld bytes, %lld headers", n, (long long)t.data_bytes,
                          (long long)t.controls);
                else
                    CHECK(t.data_bytes == 2 * (bytes - bytes / n) && t.controls == headers,
                          "%s, %d members: %lld bytes, %lld headers",
                          schedule_name((schedule_algorithm)a), n, (long long)t.data_bytes,
                          (long long)t.controls);
            }
            close_stage(&s);
        }
}

/* Small contributions are in the headers, whatever the algorithm. */
static void test_small_data_is_in_headers(void) {
    for (int a = 0; a < SCHEDULE_ALGORITHMS; a++) {
        const wagma_options o = options_of_algorithm(MEMBERS, (schedule_algorithm)a, 512);
        stage s;
        CHECK(open_stage(&s, &o, 0) == 0, "%s", wagma_last_error());
        const char *wrong = run_version(&s);
        CHECK(!wrong, "%s", wrong);
        for (int r = 0; r < MEMBERS; r++)
            CHECK(sim_traffic(s.crew.sim, r).datas == 0, "rank %d sends data", r);
        close_stage(&s);
    }
}

static const transport_calls *watched;
static int has_sent[CREW_RANKS], received_first, received_early;

static int send_watched(wagma_transport *t, int to, int tag, const void *data, size_t bytes,
                        transport_completion completion) {
    has_sent[t->rank] = 1;
    return watched->send(t, to, tag, data, bytes, completion);
}

static int receive_watched(wagma_transport *t, int from, int tag, void *data, size_t bytes,
                           transport_completion completion) {
    const struct exchange *e = completion.context;
    const phase_state *last = &e->phase[e->schedule.reduces - 1];
    received_first += !has_sent[t->rank];
    received_early +=
        tag % schedule_phases(e->schedule.n) >= e->schedule.reduces && last->reduced < last->chunks;
    return watched->receive(t, from, tag, data, bytes, completion);
}

/* An MPI may fetch a message inside of the call that posts its receive, or of a poll: what others
 * wait for goes first. The smallest data that is not in headers: parts of 8 KiB. */
static void test_others_are_served_first(void) {
    for (int n = 2; n <= MEMBERS; n++)
        for (int a = SCHEDULE_HALVING; a < SCHEDULE_ALGORITHMS; a++) {
            const wagma_options o =
                options_of_algorithm(n, (schedule_algorithm)a, (size_t)n * 8192 / 4);
            transport_calls calls;
            stage s;
            CHECK(open_stage(&s, &o, 0) == 0, "%s", wagma_last_error());
            watched = sim_transport(s.crew.sim, 0)->calls;
            calls = *watched;
            calls.send = send_watched, calls.receive = receive_watched;
            received_first = received_early = 0;
            for (int r = 0; r < n; r++) {
                has_sent[r] = 0;
                sim_transport(s.crew.sim, r)->calls = &calls;
            }
            const char *wrong = run_version(&s);
            CHECK(!wrong, "%s", wrong);
            for (int r = 0; r < n; r++) {
                CHECK(has_sent[r], "rank %d sent no data", r);
                sim_transport(s.crew.sim, r)->calls = watched;
            }
            CHECK(received_first == 0 && received_early == 0,
                  "%s, %d members: %d receives before anything was sent, %d of results before the "
                  "last sum",
                  schedule_name((schedule_algorithm)a), n, received_first, received_early);
            close_stage(&s);
        }
}

static void test_no_more_memory_after_the_first_versions(void) {
    const wagma_options o = options_of_algorithm(4, SCHEDULE_HALVING, COUNT);
    uint64_t bytes = 0;
    int made = 0;
    stage s;
    CHECK(open_stage(&s, &o, 0) == 0, "%s", wagma_last_error());
    for (int v = 0; v < 60; v++) {
        const char *wrong = run_version(&s);
        CHECK(!wrong, "%s", wrong);
        int now = 0;
        uint64_t took = s.crew.arenas[0].bytes;
        for (struct exchange *e = s.crew.pools[0]->made; e; e = e->next_made) {
            now++;
            took += e->early_room;
        }
        CHECK(v < 20 || (now == made && took == bytes),
              "version %d: %d exchanges, %llu bytes; before %d, %llu", v, now,
              (unsigned long long)took, made, (unsigned long long)bytes);
        made = now, bytes = took;
    }
    CHECK(made <= 2, "%d exchanges for one version at a time", made);
    close_stage(&s);
}

int main(void) {
    RUN(test_traffic);
    RUN(test_small_data_is_in_headers);
    RUN(test_others_are_served_first);
    RUN(test_no_more_memory_after_the_first_versions);
    return check_summary();
}
