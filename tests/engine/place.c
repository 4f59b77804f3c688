/* See place.h. */
#include "place.h"

#include <stdlib.h>
#include <string.h>

#include "support.h"

int arrays_on_devices;

static struct machine *machine;
static place places[RANKS_MAX];
static int places_n;

void places_begin(int ranks, uint64_t seed, size_t bytes) {
    if (!arrays_on_devices)
        return;
    machine = machine_new(ranks, seed);
    places_n = ranks;
    for (int r = 0; r < ranks; r++) {
        place *p = &places[r];
        *p = (place){.device = machine_device(machine, r)};
        for (int i = 0; i < PLACE_STREAMS; i++)
            p->device->calls->stream_new(p->device, &p->stream[i]);
        p->device->calls->event_new(p->device, &p->event);
        for (int i = 0; i < PLACE_VIEWS; i++)
            p->seen[i] = malloc(bytes + 1);
    }
}

void places_end(void) {
    for (int r = 0; r < places_n; r++) {
        place *p = &places[r];
        for (int i = 0; i < PLACE_STREAMS; i++) {
            p->device->calls->synchronise(p->device, p->stream[i]);
            p->device->calls->stream_free(p->device, p->stream[i]);
        }
        p->device->calls->event_free(p->device, p->event);
        for (int i = 0; i < PLACE_VIEWS; i++)
            free(p->seen[i]);
        *p = (place){0};
    }
    const char *trouble = places_n ? machine_free(machine) : NULL;
    EXPECT(!trouble, "%s", trouble);
    places_n = 0;
}

struct machine *places_machine(void) {
    return machine;
}

place *place_of(int rank) {
    return &places[rank];
}

void *place_new(place *p, size_t bytes) {
    void *array = NULL;
    if (!p->device)
        return malloc(bytes);
    return p->device->calls->alloc(p->device, bytes, &array) == WAGMA_OK ? array : NULL;
}

void place_free(place *p, void *array) {
    if (!p->device) {
        free(array);
        return;
    }
    for (int i = 0; i < PLACE_STREAMS; i++)
        p->device->calls->synchronise(p->device, p->stream[i]);
    p->device->calls->free(p->device, array);
}

void place_put(place *p, void *array, const void *data, size_t bytes) {
    if (p->device)
        machine_write(p->device, p->stream[p->used], array, data, bytes);
    else if (array != data)
        memcpy(array, data, bytes);
}

const void *place_look(place *p, const void *array, size_t bytes) {
    if (!p->device)
        return array;
    unsigned char *seen = p->seen[p->next];
    p->next = (p->next + 1) % PLACE_VIEWS;
    machine_read(p->device, p->stream[p->used], seen, array, bytes);
    p->device->calls->synchronise(p->device, p->stream[p->used]);
    return seen;
}

void place_keep(place *p, const void *array, size_t bytes) {
    if (p->device)
        machine_expect(p->device, p->stream[p->used], array, place_look(p, array, bytes), bytes);
}

void place_switch(place *p) {
    const int before = p->used;
    if (!p->device)
        return;
    p->used = (p->used + 1) % PLACE_STREAMS;
    p->device->calls->record(p->device, p->event, p->stream[before]);
    p->device->calls->wait(p->device, p->stream[p->used], p->event);
}

int place_join(wagma_segment *s, int rank, const void *initial, const wagma_hooks *hooks,
               wagma_handle **handle) {
    const place *p = &places[rank];
    return p->device
               ? wagma_create_on(s, rank, p->device, p->stream[p->used], initial, 1, hooks, handle)
               : wagma_create(s, rank, initial, 1, hooks, handle);
}
