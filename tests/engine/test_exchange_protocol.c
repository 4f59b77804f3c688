/* Gives an exchange messages that come early, or never should have come. */
#include "check.h"
#include "exchange_stage.h"
#include "messages/exchange_state.h"
#include "base/mix.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 24576, MEMBERS = 8 };

/* Feeds all control messages that have come, and polls. */
static int drive(stage *s, int r) {
    wagma_transport *t = sim_transport(s->crew.sim, r);
    const void *message;
    size_t bytes;
    int from, sync, explicit_sync, ended = 0;
    int64_t version;
    exchange_end end;
    for (int k = 0; k < 50; k++) {
        while (t->calls->poll_control(t, &from, &message, &bytes) == 1)
            if (exchange_receive(s->crew.pools[r], from, message, bytes, &version, &sync,
                                 &explicit_sync))
                return -1;
        ended += exchange_poll(s->crew.pools[r], &end, 1);
    }
    return ended;
}

/* All headers and data that can come are there before a rank begins: nothing is lost. */
static void test_begins_last(void) {
    for (int a = 0; a < SCHEDULE_ALGORITHMS; a++)
        for (size_t count = 100; count <= 10000; count *= 100)
            for (int last = 0; last < MEMBERS; last += 3) {
                const wagma_options o = options_of_algorithm(MEMBERS, (schedule_algorithm)a, count);
                int ended = 0;
                stage s;
                CHECK(open_stage(&s, &o, 0) == 0, "%s", wagma_last_error());
                for (int r = 0; r < s.n; r++) {
                    for (size_t i = 0; i < count; i++)
                        element_put(WAGMA_F32, s.input[r], i, 1 << r);
                    set_start(&s, r, 1);
                    if (r != last)
                        CHECK(!exchange_begin(s.crew.pools[r], &s.parts[r].start,
                                              &s.parts[r].exchange),
                              "%s", wagma_last_error());
                }
                for (int turn = 0; turn < 5 * s.n; turn++)
                    ended += drive(&s, turn % s.n);
                CHECK(ended == 0, "%d ended without rank %d", ended, last);
                for (int r = 0; r < s.n; r++)
                    if (r != last) {
                        const int missing = exchange_missing(s.parts[r].exchange);
                        CHECK(missing >= 0 && missing != r, "rank %d waits for %d", r, missing);
                    }
                CHECK(!exchange_begin(s.crew.pools[last], &s.parts[last].start,
                                      &s.parts[last].exchange),
                      "%s", wagma_last_error());
                for (int turn = 0; turn < 10 * s.n; turn++)
                    ended += drive(&s, turn % s.n);
                CHECK(ended == s.n, "%d of %d ended", ended, s.n);
                for (int r = 0; r < s.n; r++)
                    CHECK(element_get(WAGMA_F32, s.result[r], count - 1) == 255, "rank %d: %g", r,
                          element_get(WAGMA_F32, s.result[r], count - 1));
                close_stage(&s);
            }
}

/* More records and attachments than one message holds. */
static void test_large_attachments(void) {
    enum { ATTACHED = 3000, RANKS = 11 };
    for (int a = 0; a < SCHEDULE_ALGORITHMS; a++)
        for (size_t count = 0; count <= 4000; count += 2000) {
            const wagma_options o = options_of_algorithm(RANKS, (schedule_algorithm)a, count);
            static unsigned char attachments[RANKS][ATTACHED];
            stage s;
            CHECK(open_stage(&s, &o, ATTACHED) == 0, "%s", wagma_last_error());
            for (int r = 0; r < RANKS; r++) {
                set_start(&s, r, 1);
                s.parts[r].start.sync = 1;
                s.parts[r].start.attachment = attachments[r];
                for (int i = 0; i < ATTACHED; i++)
                    attachments[r][i] = (unsigned char)mix((uint64_t)r << 32 | (unsigned)i);
            }
            const char *wrong = crew_run(&s.crew, s.parts, 1);
            CHECK(!wrong, "%s", wrong);
            for (int r = 0; r < RANKS; r++)
                for (int m = 0; m < RANKS; m++)
                    CHECK(memcmp(exchange_attachment(s.parts[r].exchange, m), attachments[m],
                                 ATTACHED) == 0,
                          "rank %d has another attachment of %d", r, m);
            crew_release(&s.crew, s.parts, 1);
            wrong = crew_leftover(&s.crew);
            CHECK(!wrong, "%s", wrong);
            close_stage(&s);
        }
}

static void test_tags_are_enough_or_creation_fails(void) {
    wagma_options o = options_of_algorithm(8, SCHEDULE_DIRECT, 10);
    struct sim *sim = sim_create(8, 1, (struct sim_options){.tags = 3 * 17 * schedule_phases(8)});
    arena memory = {0};
    struct exchange_pool *pool =
        exchange_pool_create(sim_transport(sim, 0), &o, reduce_best(), &memory, 0); /* window 16 */
    CHECK(pool, "%s", wagma_last_error());
    exchange_pool_free(pool);
    o.window = 17;
    pool = exchange_pool_create(sim_transport(sim, 0), &o, reduce_best(), &memory, 0);
    CHECK(!pool && strstr(wagma_last_error(), "window is 17") &&
              strstr(wagma_last_error(), "simulation") && strstr(wagma_last_error(), "16"),
          "%s", wagma_last_error());
    arena_free(&memory);
    sim_free(sim);
}

/* Ranks that were given different options notice it at their first exchange. */
static void test_mismatch(void) {
    const wagma_options o = options_of_algorithm(2, SCHEDULE_DIRECT, COUNT);
    const wagma_options other = options_of_algorithm(2, SCHEDULE_DOUBLING, COUNT);
    stage s;
    CHECK(open_stage(&s, &o, 0) == 0, "%s", wagma_last_error());
    exchange_pool_free(s.crew.pools[1]);
    s.crew.pools[1] = exchange_pool_create(sim_transport(s.crew.sim, 1), &other, reduce_best(),
                                           &s.crew.arenas[1], 0);
    for (int r = 0; r < 2; r++) {
        set_start(&s, r, 1);
        CHECK(!exchange_begin(s.crew.pools[r], &s.parts[r].start, &s.parts[r].exchange), "%s",
              wagma_last_error());
    }
    CHECK(drive(&s, 0) == -1 && strstr(wagma_last_error(), "rank 1"), "%s", wagma_last_error());
    CHECK(drive(&s, 1) == -1 && strstr(wagma_last_error(), "rank 0"), "%s", wagma_last_error());
    close_stage(&s);
}

/* Whether a version is a sync version is told to whom the header comes, who has to compare. */
static void test_sync_is_told(void) {
    const wagma_options o = options_of_algorithm(2, SCHEDULE_DIRECT, 10);
    for (int sync = 0; sync < 2; sync++) {
        int from, told = -1, explicit_sync = -1;
        const void *message;
        size_t bytes;
        int64_t version = -1;
        stage s;
        CHECK(open_stage(&s, &o, 0) == 0, "%s", wagma_last_error());
        s.version = 5;
        for (int r = 0; r < 2; r++) {
            set_start(&s, r, 1);
            s.parts[r].start.sync = r == 0 ? sync : !sync;
            s.parts[r].start.mine.flags = r == 0 && sync ? EXCHANGE_EXPLICIT_SYNC : 0;
            CHECK(!exchange_begin(s.crew.pools[r], &s.parts[r].start, &s.parts[r].exchange), "%s",
                  wagma_last_error());
        }
        wagma_transport *t = sim_transport(s.crew.sim, 1);
        while (t->calls->poll_control(t, &from, &message, &bytes) != 1)
            ;
        CHECK(exchange_receive(s.crew.pools[1], from, message, bytes, &version, &told,
                               &explicit_sync) == WAGMA_OK,
              "%s", wagma_last_error());
        CHECK(version == 5 && told == sync && explicit_sync == sync, "version %lld, %d, %d",
              (long long)version, told, explicit_sync);
        CHECK(exchange_missing(s.parts[1].exchange) == 0, "the header was taken");
        close_stage(&s);
    }
}

/* Headers with some other bytes are refused or taken, and read or write no foreign memory (which
 * the address sanitizer sees). */
static void test_damaged_headers(void) {
    int refused = 0;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        const wagma_options o =
            options_of_algorithm(4, (schedule_algorithm)(seed % SCHEDULE_ALGORITHMS), 300);
        int from, sync, explicit_sync;
        const void *message;
        size_t bytes;
        int64_t version;
        stage s;
        CHECK(open_stage(&s, &o, 0) == 0, "%s", wagma_last_error());
        for (int r = 0; r < s.n; r++)
            set_start(&s, r, 1);
        for (int r = 0; r < s.n; r++)
            if (r != 1 || seed % 2)
                exchange_begin(s.crew.pools[r], &s.parts[r].start, &s.parts[r].exchange);
        wagma_transport *t = sim_transport(s.crew.sim, 1);
        for (int polls = 0; polls < 40; polls++) {
            if (t->calls->poll_control(t, &from, &message, &bytes) != 1)
                continue;
            unsigned char *copy = malloc(bytes);
            memcpy(copy, message, bytes);
            const uint64_t bits = mix(seed << 8 | (uint64_t)polls);
            copy[bits % 24] = (unsigned char)(bits >> 32);
            if (bits >> 8 & 1)
                bytes = bits >> 9 & 1 ? bytes - bits % bytes : bits % 24;
            refused += exchange_receive(s.crew.pools[1], from, copy, bytes, &version, &sync,
                                        &explicit_sync) < 0;
            free(copy);
        }
        if (!(seed % 2))
            refused += exchange_begin(s.crew.pools[1], &s.parts[1].start, &s.parts[1].exchange) < 0;
        close_stage(&s);
    }
    CHECK(refused > 2000, "%d were refused", refused);
}

int main(void) {
    RUN(test_begins_last);
    RUN(test_large_attachments);
    RUN(test_tags_are_enough_or_creation_fails);
    RUN(test_mismatch);
    RUN(test_sync_is_told);
    RUN(test_damaged_headers);
    return check_summary();
}
