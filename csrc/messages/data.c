/* The data of versions over a transport: blocks, versions and their pinned inputs. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/merge.h"
#include "messages/executor.h"

static wagma_dtype dtype_of(const wagma_handle *h) {
    return (wagma_dtype)h->options.dtype;
}

static size_t elements(const wagma_handle *h) {
    return (size_t)h->options.count;
}

/* ---- blocks: as many as are in use at once, never given back --------------------------------- */

messages_block *messages_block_new(wagma_handle *h) {
    struct messages_executor *e = h->state;
    messages_block *b = e->free;
    if (b) {
        e->free = b->next;
    } else {
        b = malloc(sizeof *b);
        if (!b || !(b->data = arena_part(&e->arena, e->bytes_n))) {
            free(b);
            (void)error_set(WAGMA_ENOMEM, "no memory for a contribution or result of %zu bytes",
                            e->bytes_n);
            return NULL;
        }
        b->next_made = e->made;
        e->made = b;
    }
    b->references = 1;
    return b;
}

void messages_block_drop(struct messages_executor *e, messages_block *b) {
    if (!b || --b->references > 0)
        return;
    b->next = e->free;
    e->free = b;
}

void messages_block_put(struct messages_executor *e, messages_block **place, messages_block *b) {
    messages_block_drop(e, *place);
    *place = b;
}

/* ---- versions -------------------------------------------------------------------------------- */

messages_version *messages_version_find(const struct messages_executor *e, int64_t version) {
    messages_version *v = e->versions;
    while (v && v->version != version)
        v = v->next;
    return v;
}

static int make_room(messages_version *v, int members) {
    if (members <= v->room)
        return 1;
    free(v->members);
    free(v->records);
    v->members = malloc((size_t)members * sizeof *v->members);
    v->records = malloc((size_t)members * sizeof *v->records);
    v->room = v->members && v->records ? members : 0;
    return v->room > 0;
}

messages_version *messages_version_new(wagma_handle *h, int64_t version, int members) {
    struct messages_executor *e = h->state;
    messages_version *v = e->spare;
    if (v)
        e->spare = v->next;
    else
        v = calloc(1, sizeof *v);
    if (!v || !make_room(v, members)) {
        (void)error_set(WAGMA_ENOMEM, "no memory for a version of %d ranks", members);
        if (v) {
            v->next = e->spare;
            e->spare = v;
        }
        return NULL;
    }
    *v = (messages_version){.next = e->versions,
                            .version = version,
                            .n = members,
                            .room = v->room,
                            .members = v->members,
                            .records = v->records};
    e->versions = v;
    return v;
}

void messages_sweep(struct messages_executor *e) {
    for (messages_version **place = &e->versions; *place;) {
        messages_version *v = *place;
        if (!v->complete || v->shown || activation_keeps(e->activation, v->version)) {
            place = &v->next;
            continue;
        }
        messages_block_put(e, &v->result, NULL);
        *place = v->next;
        v->next = e->spare;
        e->spare = v;
    }
}

void messages_end_views(struct messages_executor *e) {
    for (messages_version *v = e->versions; v; v = v->next)
        v->shown = 0;
    messages_block_put(e, &e->shown, NULL);
    messages_sweep(e);
}

static void free_versions(messages_version *v) {
    while (v) {
        messages_version *next = v->next;
        free(v->members);
        free(v->records);
        free(v);
        v = next;
    }
}

void messages_free_data(struct messages_executor *e) {
    while (e->made) {
        messages_block *next = e->made->next_made;
        free(e->made);
        e->made = next;
    }
    exchange_pool_free(e->pool);
    arena_free(&e->arena);
}

void messages_free_versions(struct messages_executor *e) {
    free_versions(e->versions);
    free_versions(e->spare);
}

/* ---- contributions --------------------------------------------------------------------------- */

messages_block *messages_copy_of_call(wagma_handle *h) {
    const struct messages_executor *e = h->state;
    messages_block *b = messages_block_new(h);
    if (!b)
        return NULL;
    if (e->carried)
        merge_add_carried(h->kernels, dtype_of(h), b->data, h->call.contribution, h->call.weight,
                          e->carried->data, e->carried_weight, elements(h));
    else
        h->kernels->divided_copy(dtype_of(h), b->data, h->call.contribution, 1.0, elements(h));
    return b;
}

int messages_contribute(wagma_handle *h) {
    struct messages_executor *e = h->state;
    const int ordered = h->policy.ordered;
    const uint64_t began = trace_begin(h->trace);
    const int adds = e->carried && h->call.weight != 0;
    e->newest_version = h->call.version;
    e->newest_weight = h->call.weight;
    if (h->policy.in_place)
        return WAGMA_OK;
    if (e->lends) {
        e->lent = e->reserved;
        e->reserved = NULL;
    }
    if (e->lends && !adds)
        e->written = messages_block_hold(e->lent);
    else if (adds || (!ordered && h->call.weight != 0))
        e->written = messages_copy_of_call(h);
    else if (!ordered)
        e->written = messages_block_new(h); /* of weight 0 it is never read */
    else
        return WAGMA_OK; /* nobody reads x after the call */
    if (!e->written)
        return WAGMA_ENOMEM;
    if (!ordered)
        messages_block_put(e, &e->newest, messages_block_hold(e->written));
    trace_end(h->trace, TRACE_WRITE, began, h->call.version, -1, 0);
    return WAGMA_OK;
}

/* This rank's record of a version that holds its contribution of `version`, or none (-1). */
static exchange_record record(const wagma_handle *h, int contributes, int64_t version,
                              double weight) {
    const struct merge_part part = merge_part(&h->policy, contributes, weight);
    return (exchange_record){.version = version, .weight = part.weight, .share = part.share};
}

/* Parts of this rank's newest contribution that are still to come: only of the call in progress. */
static const call_parts *coming(const wagma_handle *h) {
    return parts_whole(h->call.parts) ? NULL : h->call.parts;
}

/* Fill in the input of a version that pins the call's contribution. */
static void pin_fresh(wagma_handle *h, messages_version *v, exchange_start *start) {
    struct messages_executor *e = h->state;
    start->mine = record(h, 1, h->call.version, h->call.weight);
    if (h->call.explicit_sync)
        start->mine.flags = EXCHANGE_EXPLICIT_SYNC;
    start->input = h->call.contribution;
    start->coming = coming(h); /* of weight 0, too: the result may be written where x comes to */
    start->going = merge_keeps_stored(&h->policy, e->out_of_place) ? h->call.parts : NULL;
    if (e->written) {
        v->input = messages_block_hold(e->written);
        start->input = v->input->data;
    }
    /* Nobody but this call asks for it; but the caller's posted x does not change before it is
     * waited for. */
    if (!h->policy.ordered && !e->out_of_place &&
        (h->policy.in_place || !h->call.posted || h->call.x != h->call.given))
        start->result = h->call.x;
}

int messages_pin_input(wagma_handle *h, messages_version *v, int64_t input, exchange_start *start) {
    struct messages_executor *e = h->state;
    start->divide = h->policy.stores_average;
    if (input == v->version) {
        pin_fresh(h, v, start);
    } else if (input == ACTIVATION_ABSENT || input == ACTIVATION_GONE) {
        start->mine = record(h, 0, -1, input == ACTIVATION_GONE ? 0 : e->newest_weight);
    } else {
        start->mine = record(h, 1, e->newest_version, e->newest_weight);
        v->input = messages_block_hold(e->newest);
        start->input = v->input->data;
        start->coming = coming(h);
    }
    if (start->mine.weight == 0)
        start->input = NULL;
    if (start->result)
        return WAGMA_OK;
    if (!(v->result = messages_block_new(h)))
        return WAGMA_ENOMEM;
    start->result = v->result->data;
    return WAGMA_OK;
}
