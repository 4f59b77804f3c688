/* Versions in their slots, actions that wait to be taken, and the graph of activations. */
#include <string.h>

#include "base/mix.h"
#include "base/round_up.h"
#include "protocol/activation_state.h"

static size_t aligned(size_t bytes) {
    return round_up(bytes, 8);
}

/* Where everything lies; the fields of *a that say so, and nothing else, are set. */
static void lay_out(struct activation *a, const struct activation_config *c) {
    const size_t size = (size_t)c->size;
    const int64_t half = c->window / 2 > 1 ? c->window / 2 : 1;
    a->half = half;
    a->words = (c->size + 63) / 64;
    a->slots = (int32_t)(4 * half + 4);
    /* A step sends to every rank once at most, or over the dimensions and to the members of a
     * group, or tells all of a dispute besides; the rest are single. activation_next() looks at
     * other slots when it is empty. */
    a->capacity = (c->varies ? 3 : 2) * c->size + 96;
    const size_t members = c->topology.group_size < c->size ? (size_t)c->topology.group_size : 0;
    a->slot_bytes = aligned(sizeof(struct activation_version) +
                            3 * sizeof(uint64_t) * (size_t)a->words + members * sizeof(int32_t));
    a->o_slots = aligned(sizeof *a);
    a->o_departed = a->o_slots + (size_t)a->slots * a->slot_bytes;
    a->o_told = a->o_departed + size * sizeof(int64_t);
    a->o_lost = a->o_told + size * sizeof(int64_t);
    a->o_actions = aligned(a->o_lost + size); /* last: empty between steps */
    a->bytes = a->o_actions + (size_t)a->capacity * sizeof(struct activation_action);
}

size_t activation_bytes(const struct activation_config *config) {
    struct activation a;
    lay_out(&a, config);
    return a.bytes;
}

void activation_init(struct activation *a, const struct activation_config *config) {
    memset(a, 0, activation_bytes(config));
    lay_out(a, config);
    a->config = *config;
    a->newest = a->newest_pinned = a->last = a->target = -1;
    a->leaver = -1;
    for (int i = 0; i < a->slots; i++)
        activation_slot(a, i)->version = -1;
    for (int r = 0; r < config->size; r++) {
        activation_departures(a)[r] = INT64_MAX;
        activation_tales(a)[r] = -1;
    }
}

/* ---- slots ----------------------------------------------------------------------------------- */

struct activation_version *activation_find(const struct activation *a, int64_t version) {
    struct activation_version *v = activation_slot(a, version % a->slots);
    return v->version == version ? v : NULL;
}

/* Expect all ranks at version 0: no EXPECT announces it, because every rank that joined has just
 * contributed version -1. */
static void expect_all(struct activation *a, struct activation_version *v) {
    const struct activation_scope scope = activation_scope_of(a, v);
    for (int i = 0; i < scope.n; i++) {
        const int rank = activation_member(scope.members, i);
        activation_expected(a, v)[rank / 64] |= UINT64_C(1) << (rank % 64);
    }
}

struct activation_version *activation_open(struct activation *a, int64_t version) {
    struct activation_version *v = activation_slot(a, version % a->slots);
    if (v->version >= version)
        return v->version == version ? v : NULL;
    if (v->state == ACTIVATION_PINNED) {
        activation_trouble(a, ACTIVATION_PROTOCOL, version, -1);
        return NULL;
    }
    memset(v, 0, a->slot_bytes);
    v->version = version;
    if (a->config.topology.group_size < a->config.size) {
        int32_t *members = (int32_t *)((uint64_t *)(v + 1) + 3 * a->words);
        v->n = topology_members(&a->config.topology, a->config.rank, version, members);
    } else {
        v->n = a->config.size;
    }
    if (version == 0)
        expect_all(a, v);
    return v;
}

static int position(const int32_t *members, int n, int32_t rank) {
    int low = 0;
    for (int high = n - 1; low < high;) {
        const int middle = (low + high) / 2;
        if (members[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct activation_scope activation_scope_of(const struct activation *a,
                                            const struct activation_version *v) {
    const struct activation_config *c = &a->config;
    const int32_t *members = activation_group(a, v);
    if (c->world || activation_is_sync(a, v->version) || !members)
        return (struct activation_scope){NULL, c->size, c->rank};
    return (struct activation_scope){members, v->n, position(members, v->n, c->rank)};
}

/* ---- actions --------------------------------------------------------------------------------- */

static struct activation_action *action_at(const struct activation *a, int i) {
    return (struct activation_action *)activation_at(a, a->o_actions) + i % a->capacity;
}

void activation_push(struct activation *a, struct activation_action action) {
    if (a->queued == a->capacity) { /* cannot happen, see lay_out() */
        a->troubled = 1;
        return;
    }
    *action_at(a, a->ready + a->queued++) = action;
}

int activation_next(struct activation *a, struct activation_action *action) {
    while (a->queued == 0 && a->recheck > 0)
        activation_review(a, --a->recheck);
    while (a->queued == 0 && a->passing < a->passed_all)
        activation_pass(a, a->passing++);
    if (a->queued == 0) {
        a->passing = a->passed_all = 0; /* states are compared as bytes */
        a->leaver = -1;
        a->ready = 0;
        return 0;
    }
    *action = *action_at(a, a->ready);
    memset(action_at(a, a->ready), 0, sizeof *action); /* states are compared as bytes */
    a->ready = (a->ready + 1) % a->capacity;
    a->queued--;
    return 1;
}

void activation_send(struct activation *a, int to, int kind, int64_t version, int detail) {
    activation_push(a, (struct activation_action){
                           .kind = ACTIVATION_SEND,
                           .to = to,
                           .version = version,
                           .message = {.kind = (uint8_t)kind, .detail = detail, .version = version},
                       });
}

void activation_send_claim(struct activation *a, int to, int kind,
                           const struct activation_version *v, int detail) {
    activation_push(
        a, (struct activation_action){
               .kind = ACTIVATION_SEND,
               .to = to,
               .version = v->version,
               .message = {.kind = (uint8_t)kind,
                           .quorum = v->quorum,
                           .detail = kind == ACTIVATION_ACTIVATE
                                         ? detail | v->claimant << ACTIVATION_CLAIMANT_SHIFT
                                         : detail,
                           .version = v->version},
           });
}

void activation_trouble(struct activation *a, int reason, int64_t version, int rank) {
    if (a->troubled)
        return;
    a->troubled = 1;
    activation_push(
        a, (struct activation_action){
               .kind = ACTIVATION_TROUBLE, .to = rank, .reason = reason, .version = version});
}

/* ---- the graph ------------------------------------------------------------------------------- */

int activation_dimensions(int n) {
    int d = 0;
    while ((1 << d) < n)
        d++;
    return d;
}

int activation_partner(int i, int n, int d) {
    return (n & (n - 1)) == 0 ? i ^ (1 << d) : (int)(((int64_t)i + (1 << d)) % n);
}

int activation_coordinator(uint64_t seed, int64_t version, const int32_t *members, int n) {
    const uint64_t lowest = (uint64_t)activation_member(members, 0);
    const uint64_t draw = mix(mix(seed ^ UINT64_C(0xc0)) ^ mix((uint64_t)version) ^ mix(~lowest));
    return activation_member(members, (int)(draw % (uint64_t)n));
}
