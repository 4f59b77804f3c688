/* The simulated transport keeps the promises of csrc/messages/transport.h, and no others. */
#include "check.h"
#include "transport_sim.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 5, MESSAGES = 200 };

static int send_number(struct sim *s, int from, int to, int number) {
    wagma_transport *t = sim_transport(s, from);
    return t->calls->send_control(t, to, &number, sizeof number);
}

static int poll_number(struct sim *s, int rank, int *from, int *number) {
    wagma_transport *t = sim_transport(s, rank);
    const void *message;
    size_t bytes;
    *number = -1;
    const int got = t->calls->poll_control(t, from, &message, &bytes);
    if (got == 1)
        memcpy(number, message, sizeof *number);
    return got;
}

static transport_completion named(uint64_t cookie) {
    return (transport_completion){.cookie = cookie};
}

/* Cookies of what ends within some polls, as bits. */
static uint64_t ends_of(struct sim *s, int rank) {
    wagma_transport *t = sim_transport(s, rank);
    transport_completion done[3];
    uint64_t bits = 0;
    for (int polls = 0; polls < 40; polls++) {
        const int n = t->calls->poll_data(t, done, 3);
        for (int k = 0; k < n; k++)
            bits |= UINT64_C(1) << done[k].cookie;
    }
    return bits;
}

/* Everybody sends to rank 0; the order of arrival, as senders, into order[]. */
static int collect(uint64_t seed, int *order) {
    struct sim *s = sim_create(SIZE, seed, (struct sim_options){.delay = 9});
    int next[SIZE] = {0}, in_order = 1;
    for (int k = 0; k < MESSAGES; k++)
        for (int r = 1; r < SIZE; r++)
            send_number(s, r, 0, k);
    for (int n = 0; n < MESSAGES * (SIZE - 1);) {
        int from, number;
        if (!poll_number(s, 0, &from, &number))
            continue;
        in_order &= number == next[from]++;
        order[n++] = from;
    }
    in_order &= sim_pending(s) == 0 && sim_trouble(s) == NULL;
    sim_free(s);
    return in_order;
}

static void test_pairs_keep_their_order_and_overtake_each_other(void) {
    static int order[3][MESSAGES * (SIZE - 1)];
    CHECK(collect(1, order[0]) && collect(1, order[1]) && collect(2, order[2]), "order of a pair");
    CHECK(memcmp(order[0], order[1], sizeof order[0]) == 0, "a seed gives two runs");
    CHECK(memcmp(order[0], order[2], sizeof order[0]) != 0, "seeds give the same run");
    int overtaken = 0;
    for (int k = 1; k < MESSAGES; k++)
        overtaken += order[0][k] < order[0][k - 1];
    CHECK(overtaken > MESSAGES / 8, "%d times", overtaken);
}

static void test_data_matches_by_tag_in_order(void) {
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct sim *s = sim_create(2, seed, (struct sim_options){.delay = 3});
        wagma_transport *a = sim_transport(s, 0), *b = sim_transport(s, 1);
        const int data[4] = {10, 11, 20, 21};
        int got[4] = {0};
        a->calls->send(a, 1, 1, &data[0], sizeof(int), named(0));
        a->calls->send(a, 1, 2, &data[2], sizeof(int), named(2));
        a->calls->send(a, 1, 1, &data[1], sizeof(int), named(1));
        b->calls->receive(b, 0, 2, &got[2], sizeof(int), named(2));
        b->calls->receive(b, 0, 2, &got[3], sizeof(int), named(3));
        CHECK(got[2] != 0 && got[2] != 20, "a posted receive is readable");
        b->calls->receive(b, 0, 1, &got[0], sizeof(int), named(0));
        b->calls->receive(b, 0, 1, &got[1], sizeof(int), named(1));
        CHECK(ends_of(s, 1) == 0x7, "seed %d", (int)seed);
        CHECK(ends_of(s, 0) == 0x7, "seed %d", (int)seed);
        CHECK(sim_pending(s) == 1, "%d", (int)sim_pending(s));
        a->calls->send(a, 1, 2, &data[3], sizeof(int), named(3));
        CHECK(ends_of(s, 1) == 0x8 && ends_of(s, 0) == 0x8, "seed %d", (int)seed);
        CHECK(memcmp(data, got, sizeof data) == 0, "%d %d %d %d", got[0], got[1], got[2], got[3]);
        CHECK(sim_pending(s) == 0 && !sim_trouble(s), "%s", sim_trouble(s));
        a->calls->close(a, 1);
        b->calls->close(b, 1);
        CHECK(!sim_trouble(s), "%s", sim_trouble(s));
        sim_free(s);
    }
}

/* Some sends are over before their receive is posted and some are not: both must be provided for.
 */
static void test_some_sends_are_over_at_once(void) {
    int over = 0;
    for (uint64_t seed = 0; seed < 64; seed++) {
        struct sim *s = sim_create(2, seed, (struct sim_options){0});
        wagma_transport *a = sim_transport(s, 0);
        int data = 1;
        a->calls->send(a, 1, 0, &data, sizeof data, named(0));
        over += ends_of(s, 0) == 1;
        sim_free(s);
    }
    CHECK(over > 16 && over < 48, "%d of 64", over);
}

static void test_finds_misuse(void) {
    for (int kind = 0; kind < 5; kind++) {
        static const char *const words[] = {"changed data", "bytes with tag", "tag 7 of 7",
                                            "which closes", "after close()"};
        struct sim *s = sim_create(2, 3, (struct sim_options){.tags = 7});
        wagma_transport *a = sim_transport(s, 0), *b = sim_transport(s, 1);
        int data = 1, got[2];
        if (kind == 2)
            CHECK(a->calls->send(a, 1, 7, &data, sizeof data, named(0)) == WAGMA_EINVAL, "sent");
        else
            a->calls->send(a, 1, 0, &data, sizeof data, named(0));
        if (kind == 0)
            data = 2;
        b->calls->receive(b, 0, 0, got, kind == 1 ? sizeof got : sizeof data, named(0));
        if (kind < 2)
            ends_of(s, 1), ends_of(s, 0);
        if (kind == 3)
            b->calls->close(b, 1);
        if (kind == 4) {
            a->calls->close(a, 0);
            a->calls->flushed(a);
        }
        CHECK(sim_trouble(s) && strstr(sim_trouble(s), words[kind]), "%d: %s", kind,
              sim_trouble(s) ? sim_trouble(s) : "nothing");
        sim_free(s);
    }
}

static void test_sums(void) {
    struct sim *s = sim_create(SIZE, 4, (struct sim_options){.delay = 5});
    for (int round = 0; round < 6; round++) {
        int over[SIZE] = {0}, left = SIZE;
        for (int polls = 0; left; polls++) {
            const int r = polls % SIZE;
            wagma_transport *t = sim_transport(s, r);
            int64_t totals[2];
            if (over[r] || (r == 2 && polls < 100)) /* which comes last */
                continue;
            const int64_t mine[2] = {r + round, 1};
            over[r] = t->calls->sum(t, mine, totals);
            left -= over[r];
            CHECK(polls >= 100 || !over[r], "over without rank 2");
            CHECK(!over[r] || (totals[0] == 10 + SIZE * round && totals[1] == SIZE), "%d",
                  (int)totals[0]);
        }
    }
    CHECK(!sim_trouble(s), "%s", sim_trouble(s));
    sim_free(s);
}

static void test_hold_and_kill(void) {
    struct sim *s = sim_create(3, 5, (struct sim_options){.delay = 0});
    wagma_transport *t = sim_transport(s, 0);
    int from, number;
    int32_t dead[3];
    sim_hold(s, 1, 0, 1);
    send_number(s, 1, 0, 7);
    CHECK(poll_number(s, 0, &from, &number) == 0, "it was held");
    sim_hold(s, 1, -1, 0);
    CHECK(poll_number(s, 0, &from, &number) == 1 && from == 1 && number == 7, "%d", number);
    CHECK(t->calls->dead(t, dead) == 0, "nobody is");
    send_number(s, 1, 0, 8);
    sim_kill(s, 1, 1);
    send_number(s, 1, 0, 9);
    send_number(s, 2, 0, 10);
    CHECK(t->calls->dead(t, dead) == 1 && dead[0] == 1, "rank 1 is");
    int sum = 0;
    for (int k = 0; k < 4; k++)
        sum += poll_number(s, 0, &from, &number) ? number : 0;
    CHECK(sum == 18, "%d", sum);
    CHECK(sim_pending(s) == 0, "%d", (int)sim_pending(s));
    CHECK(t->calls->flushed(t) == 1, "nothing was sent");
    CHECK(sim_traffic(s, 2).controls == 1 && sim_traffic(s, 1).controls == 2, "dead ranks send");
    sim_free(s);
}

/* ---- one thread per rank --------------------------------------------------------------------- */
static struct sim *ring;
static int ring_sums[SIZE];

/* Passes an array around the ring, by data messages, and counts laps by control messages. */
static void *run(void *argument) {
    const int me = *(int *)argument, right = (me + 1) % SIZE, left = (me + SIZE - 1) % SIZE;
    wagma_transport *t = sim_transport(ring, me);
    for (int lap = 0; lap < 100; lap++) {
        int out[64], in[64], from, number, ends = 0, controls = 0;
        for (int k = 0; k < 64; k++)
            out[k] = lap * 1000 + me * 100 + k;
        t->calls->receive(t, left, lap % 4, in, sizeof in, named(0));
        t->calls->send(t, right, lap % 4, out, sizeof out, named(1));
        send_number(ring, me, right, lap);
        while (ends < 2 || controls < 1) {
            transport_completion done[2];
            ends += t->calls->poll_data(t, done, 2);
            if (controls == 0 && poll_number(ring, me, &from, &number))
                controls = from == left && number == lap ? 1 : 1000;
            sched_yield();
        }
        for (int k = 0; k < 64; k++)
            ring_sums[me] += in[k] == lap * 1000 + left * 100 + k && controls == 1;
    }
    int64_t totals[2], mine[2] = {me, 1};
    while (!t->calls->sum(t, mine, totals))
        sched_yield();
    t->calls->close(t, 1);
    return NULL;
}

static void test_threads(void) {
    pthread_t threads[SIZE];
    int ranks[SIZE];
    ring = sim_create(SIZE, 6, (struct sim_options){.delay = 8, .threads = 1});
    for (int r = 0; r < SIZE; r++) {
        ranks[r] = r;
        pthread_create(&threads[r], NULL, run, &ranks[r]);
    }
    for (int r = 0; r < SIZE; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < SIZE; r++)
        CHECK(ring_sums[r] == 6400, "rank %d: %d", r, ring_sums[r]);
    CHECK(!sim_trouble(ring), "%s", sim_trouble(ring));
    sim_free(ring);
}

int main(void) {
    RUN(test_pairs_keep_their_order_and_overtake_each_other);
    RUN(test_data_matches_by_tag_in_order);
    RUN(test_some_sends_are_over_at_once);
    RUN(test_finds_misuse);
    RUN(test_sums);
    RUN(test_hold_and_kill);
    RUN(test_threads);
    return check_summary();
}
