/* Ranks that disagree whether a version is a sync version, at csrc/protocol/activation.c under
 * random schedules: somebody has to notice, whatever the policy and the order of events. Nobody
 * needs to wait for a timeout. */
#include "protocol/activation.h"
#include "check.h"
#include "base/mix.h"
#include "support.h"
#include "include/wagma.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 5, SCHEDULES = 20000, QUEUE = 512, SILENCE = 400, PATIENCE = 2 };

struct letter { /* data of the disputed version if `data`, otherwise a message */
    int data, sync;
    struct activation_message message;
};

struct line { /* in order, between two ranks */
    struct letter letters[QUEUE];
    int first, end;
};

enum place { OUTSIDE, CALLING, ARRIVED, BACK };

struct player {
    struct activation *core;
    enum place place;
    int syncs;        /* calls sync(x) */
    int pinned, sync; /* the version has begun here: as a sync version */
    int complete;
    unsigned heard[2]; /* ranks whose data has come: of an ordinary, of a sync version */
};

static struct world {
    struct activation_config rules;
    struct player players[RANKS];
    struct line lines[RANKS][RANKS];
    uint64_t random, now;
    int noticed, broken; /* MISMATCH; anything else */
} * w;

static uint64_t draw(uint64_t below) {
    return mix(w->random++) % below;
}

static void post(int from, int to, struct letter letter) {
    struct line *line = &w->lines[from][to];
    if (line->end == QUEUE)
        abort();
    line->letters[line->end++] = letter;
}

static int group_of(int rank, int sync, int32_t *members) {
    if (!sync)
        return topology_members(&w->rules.topology, rank, 0, members);
    for (int r = 0; r < w->rules.size; r++)
        members[r] = r;
    return w->rules.size;
}

static void tell(int rank, struct activation_event event);

static void begin_version(int rank, int sync) {
    struct player *p = &w->players[rank];
    int32_t members[RANKS];
    const int n = group_of(rank, sync, members);
    p->pinned = 1;
    p->sync = sync;
    for (int i = 0; i < n; i++)
        if (members[i] != rank)
            post(rank, members[i], (struct letter){.data = 1, .sync = sync});
}

static void end_version(int rank) {
    struct player *p = &w->players[rank];
    int32_t members[RANKS];
    if (!p->pinned || p->complete)
        return;
    const int n = group_of(rank, p->sync, members);
    for (int i = 0; i < n; i++)
        if (members[i] != rank && !(p->heard[p->sync] >> members[i] & 1))
            return;
    p->complete = 1;
    tell(rank, (struct activation_event){.kind = ACTIVATION_EVENT_COMPLETE, .version = 0});
}

static void tell(int rank, struct activation_event event) {
    struct player *p = &w->players[rank];
    struct activation_action action;
    event.now = w->now;
    activation_step(p->core, &event);
    while (activation_next(p->core, &action)) {
        if (action.kind == ACTIVATION_SEND)
            post(rank, action.to, (struct letter){.message = action.message});
        else if (action.kind == ACTIVATION_PIN && action.version == 0)
            begin_version(rank, action.sync);
        else if (action.kind == ACTIVATION_TROUBLE)
            *(action.reason == ACTIVATION_MISMATCH ? &w->noticed : &w->broken) = 1;
    }
    end_version(rank);
}

static int deliver(int from, int to) {
    struct line *line = &w->lines[from][to];
    if (line->first == line->end)
        return 0;
    const struct letter *letter = &line->letters[line->first++];
    struct activation_event event = {
        .kind = ACTIVATION_EVENT_MESSAGE, .from = from, .message = letter->message};
    if (letter->data) {
        w->players[to].heard[letter->sync] |= 1u << from;
        event = (struct activation_event){.kind = ACTIVATION_EVENT_DATA,
                                          .from = from,
                                          .sync = letter->sync,
                                          .is_explicit = letter->sync};
    }
    tell(to, event);
    return 1;
}

static int go_on(int rank) {
    struct player *p = &w->players[rank];
    struct activation_event event = {.sync = p->syncs, .is_explicit = p->syncs};
    if (p->place == OUTSIDE)
        event.kind = ACTIVATION_EVENT_CALL;
    else if (p->place == CALLING && activation_may_arrive(p->core))
        event.kind = ACTIVATION_EVENT_ARRIVAL;
    else if (p->place == ARRIVED && activation_ask(p->core).state == ACTIVATION_DONE)
        event = (struct activation_event){.kind = ACTIVATION_EVENT_RETURN, .version = 1};
    else
        return 0;
    p->place++;
    tell(rank, event);
    return 1;
}

static int tick(int rank) {
    const uint64_t deadline = activation_deadline(w->players[rank].core);
    if (deadline == 0)
        return 0;
    w->now = deadline > w->now ? deadline : w->now;
    tell(rank, (struct activation_event){.kind = ACTIVATION_EVENT_TICK});
    return activation_deadline(w->players[rank].core) != deadline;
}

/* Whatever can happen, once. */
static int everything(void) {
    int moved = 0;
    for (int r = 0; r < w->rules.size; r++) {
        moved += go_on(r) + tick(r);
        for (int from = 0; from < w->rules.size; from++)
            moved += deliver(from, r);
    }
    return moved;
}

/* A rank that waits for a second asks the others where they are. */
static void inquire(void) {
    for (int r = 0; r < w->rules.size; r++)
        if (w->players[r].place == CALLING || w->players[r].place == ARRIVED)
            tell(r, (struct activation_event){.kind = ACTIVATION_EVENT_INQUIRE});
}

static void draw_rules(void) {
    struct activation_config *c = &w->rules;
    const int size = 2 + (int)draw(RANKS - 1), group = 1 + (int)draw((uint64_t)size);
    *c = (struct activation_config){.size = size, .window = 8, .seed = draw(1000)};
    c->topology = (struct topology){.size = size, .group_size = group, .seed = c->seed};
    c->world = group < size && draw(3) == 0;
    const int most = c->world ? size : group;
    const uint64_t kind = draw(4);
    c->quorum = kind == 0 && !c->world ? 0 : kind == 1 ? -1 : 1 + (int)draw((uint64_t)most);
    if (c->quorum == most)
        c->quorum = c->world ? 1 : 0;
    c->grace = c->quorum != 0 && draw(2) ? 100 : 0;
    c->automatic = c->grace != 0 && draw(2);
    c->forward = draw(3) == 0;
}

/* 0: all ranks agree, so that there is nothing to be seen. */
static int draw_players(void) {
    int syncs = 0;
    for (int r = 0; r < w->rules.size; r++) {
        struct activation_config mine = w->rules;
        mine.rank = r;
        w->players[r].core = malloc(activation_bytes(&mine));
        if (!w->players[r].core)
            abort();
        activation_init(w->players[r].core, &mine);
        syncs += w->players[r].syncs = (int)draw(2);
    }
    return syncs > 0 && syncs < w->rules.size;
}

static void play(void) {
    int silence = 0, asked = 0;
    while (!w->noticed && !w->broken) {
        const int rank = (int)draw((uint64_t)w->rules.size);
        const uint64_t choice = draw(3), deadline = activation_deadline(w->players[rank].core);
        w->now += draw(30);
        int moved = 0;
        if (choice == 0)
            moved = go_on(rank);
        else if (choice == 1)
            moved = deliver((int)draw((uint64_t)w->rules.size), rank);
        else if (deadline != 0 && w->now >= deadline)
            moved = tick(rank);
        silence = moved ? 0 : silence + 1;
        if (silence < SILENCE)
            continue;
        silence = 0;
        if (everything())
            continue;
        if (asked++ == PATIENCE)
            return;
        inquire();
    }
}

static void test_disputes_are_noticed(void) {
    int64_t disputes = 0;
    w = calloc(1, sizeof *w);
    CHECK(w, "no memory");
    for (uint64_t seed = 0; seed < SCHEDULES; seed++) {
        memset(w, 0, sizeof *w);
        w->random = mix(seed + 1);
        w->now = 1;
        draw_rules();
        if (draw_players()) {
            disputes++;
            play();
            int waiting = 0, stale = 0;
            for (int r = 0; r < w->rules.size; r++) {
                waiting += w->players[r].place == ARRIVED;
                stale += activation_deadline(w->players[r].core) != 0;
            }
            CHECK(!w->broken && (w->noticed || (waiting == 0 && stale == 0)),
                  "seed %" PRIu64 ": P=%d S=%d quorum=%d%s grace=%" PRIu64
                  ": %d ranks wait for ever, %d have a deadline that has passed",
                  seed, w->rules.size, w->rules.topology.group_size, w->rules.quorum,
                  w->rules.world ? " world" : "", w->rules.grace, waiting, stale);
        }
        for (int r = 0; r < w->rules.size; r++)
            free(w->players[r].core);
    }
    free(w);
    CHECK(disputes > SCHEDULES / 2, "only %" PRId64 " disputes", disputes);
}

int main(void) {
    RUN(test_disputes_are_noticed);
    return check_summary();
}
