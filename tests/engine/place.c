/* See place.h. */
#include "place.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_fake/fake.h"
#include "support.h"

int arrays_on_devices, places_gpus;

static struct machine *machine;
static place places[RANKS_MAX];
static int places_n;

static size_t seen_bytes;

/* The engine's dlopen() takes what is loaded by the same name. */
static void load_fake(const char *path) {
    if (!dlopen(path, RTLD_LOCAL | RTLD_NOW)) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
}

void places_use_cuda(void) {
    const char *gpus = getenv("WAGMA_TEST_GPUS");
    arrays_on_devices = arrays_on_devices ? arrays_on_devices : WAGMA_MEMORY_DEVICE;
    places_gpus = gpus ? atoi(gpus) : 2;
    if (gpus)
        return;
    load_fake(FAKE_CUDA "libcuda.so.1");
    load_fake(FAKE_CUDA "libnvrtc.so.13");
    setenv("XDG_CACHE_HOME", "none", 1); /* a relative path is no cache */
    unsetenv("HOME");
}

static void make(place *p, wagma_device *device) {
    *p = (place){.device = device};
    for (int i = 0; i < PLACE_STREAMS; i++)
        if (device->calls->stream_new(device, &p->stream[i]) != WAGMA_OK)
            abort();
    if (device->calls->event_new(device, &p->event) != WAGMA_OK)
        abort();
    for (int i = 0; i < PLACE_VIEWS; i++)
        p->seen[i] = malloc(seen_bytes + 1);
}

static void end(place *p) {
    for (int i = 0; i < PLACE_STREAMS; i++) {
        p->device->calls->synchronise(p->device, p->stream[i]);
        p->device->calls->stream_free(p->device, p->stream[i]);
    }
    p->device->calls->event_free(p->device, p->event);
    for (int i = 0; i < PLACE_VIEWS; i++)
        free(p->seen[i]);
    if (!machine)
        wagma_device_close(p->device);
}

void places_begin(int ranks, uint64_t seed, size_t bytes) {
    if (!arrays_on_devices)
        return;
    machine = places_gpus ? NULL : machine_new(ranks, seed);
    seen_bytes = bytes;
    places_n = ranks;
    for (int r = 0; r < ranks; r++) {
        if (machine)
            make(&places[r], machine_device(machine, r));
        else
            places[r] = (place){.opens = 1};
    }
}

void places_end(void) {
    for (int r = 0; r < places_n; r++) {
        if (places[r].device)
            end(&places[r]);
        places[r] = (place){0};
    }
    const char *trouble = places_n && machine ? machine_free(machine) : NULL;
    EXPECT(!trouble, "%s", trouble);
    machine = NULL;
    places_n = 0;
}

struct machine *places_machine(void) {
    return machine;
}

const char *places_trouble(void) {
    return machine ? machine_trouble(machine) : NULL;
}

place *place_of(int rank) {
    place *p = &places[rank];
    wagma_device *device;
    if (p->opens) {
        if (wagma_device_open(NULL, rank % places_gpus, &device) != WAGMA_OK) {
            fprintf(stderr, "%s\n", wagma_last_error());
            exit(2);
        }
        make(p, device);
    }
    return p;
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

/* Between the host and a device that is not simulated; at once. */
static void copy(const place *p, void *out, const void *in, size_t bytes) {
    void *stream = p->stream[p->used];
    EXPECT(p->device->calls->copy(p->device, stream, out, in, bytes) == WAGMA_OK &&
               p->device->calls->synchronise(p->device, stream) == WAGMA_OK,
           "%s", wagma_last_error());
}

void place_put(place *p, void *array, const void *data, size_t bytes) {
    if (!p->device) {
        if (array != data)
            memcpy(array, data, bytes);
    } else if (machine) {
        machine_write(p->device, p->stream[p->used], array, data, bytes);
    } else {
        copy(p, array, data, bytes);
    }
}

const void *place_look(place *p, const void *array, size_t bytes) {
    if (!p->device)
        return array;
    unsigned char *seen = p->seen[p->next];
    p->next = (p->next + 1) % PLACE_VIEWS;
    if (!machine) {
        copy(p, seen, array, bytes);
        return seen;
    }
    machine_read(p->device, p->stream[p->used], seen, array, bytes);
    p->device->calls->synchronise(p->device, p->stream[p->used]);
    return seen;
}

void place_keep(place *p, const void *array, size_t bytes) {
    if (p->device && machine)
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

int place_join(wagma_segment *s, wagma_transport *transport, int rank, const void *initial,
               const wagma_hooks *hooks, wagma_handle **handle) {
    const place *p = place_of(rank);
    if (transport && p->device)
        return wagma_create_over_on(transport, &s->options, p->device, p->stream[p->used], initial,
                                    1, hooks, handle);
    if (transport)
        return wagma_create_over(transport, &s->options, initial, 1, hooks, handle);
    return p->device
               ? wagma_create_on(s, rank, p->device, p->stream[p->used], initial, 1, hooks, handle)
               : wagma_create(s, rank, initial, 1, hooks, handle);
}
