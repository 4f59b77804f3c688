/* libwagma_device_sim.so: simulated devices behind wagma_device_open(), for tests that have no GPU.
 * A process has one machine with DEVICES of them; ranks that are threads and open the same one
 * share it. Python's tests make arrays and streams by the sim_*() functions. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "device_sim.h"

enum { DEVICES = 4 };

static struct machine *machine;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void begin(void) {
    machine = machine_new(DEVICES, (uint64_t)getpid());
}

static wagma_device *device_of(int ordinal) {
    pthread_once(&once, begin);
    return machine_device(machine, ordinal);
}

WAGMA_API int wagma_device_library_open(int ordinal, wagma_device **device, char *message,
                                        size_t size) {
    if (ordinal < 0 || ordinal >= DEVICES) {
        snprintf(message, size, "gpu %d: the simulated machine has %d", ordinal, DEVICES);
        return WAGMA_EINVAL;
    }
    *device = device_of(ordinal);
    return WAGMA_OK;
}

WAGMA_API void wagma_device_library_close(wagma_device *device) {
    (void)device; /* the machine's */
}

/* Returns a new stream of a device. */
WAGMA_API void *sim_stream(int ordinal) {
    wagma_device *d = device_of(ordinal);
    void *stream;
    return d->calls->stream_new(d, &stream) == WAGMA_OK ? stream : NULL;
}

/* Allocates an array on a device, which sim_free() frees. */
WAGMA_API void *sim_alloc(int ordinal, size_t bytes) {
    wagma_device *d = device_of(ordinal);
    void *array;
    return d->calls->alloc(d, bytes ? bytes : 1, &array) == WAGMA_OK ? array : NULL;
}

WAGMA_API void sim_free(int ordinal, void *array) {
    wagma_device *d = device_of(ordinal);
    d->calls->free(d, array);
}

/* Queues: array = data, which is copied. */
WAGMA_API void sim_write(int ordinal, void *stream, void *array, const void *data, size_t bytes) {
    machine_write(device_of(ordinal), stream, array, data, bytes);
}

/* data = array, behind what is queued on the stream. */
WAGMA_API void sim_read(int ordinal, void *stream, void *data, const void *array, size_t bytes) {
    wagma_device *d = device_of(ordinal);
    machine_read(d, stream, data, array, bytes);
    d->calls->synchronise(d, stream);
}

/* Waits until all is done that is queued on the stream. */
WAGMA_API void sim_finish(int ordinal, void *stream) {
    wagma_device *d = device_of(ordinal);
    d->calls->synchronise(d, stream);
}

/* Returns a new event of a device, which sim_event_free() frees. */
WAGMA_API void *sim_event(int ordinal) {
    wagma_device *d = device_of(ordinal);
    void *event;
    return d->calls->event_new(d, &event) == WAGMA_OK ? event : NULL;
}

WAGMA_API void sim_event_free(int ordinal, void *event) {
    wagma_device *d = device_of(ordinal);
    d->calls->event_free(d, event);
}

/* The event is complete behind what is queued on the stream. */
WAGMA_API void sim_record(int ordinal, void *event, void *stream) {
    wagma_device *d = device_of(ordinal);
    d->calls->record(d, event, stream);
}

/* What is queued on the stream from now on waits for the event. */
WAGMA_API void sim_wait(int ordinal, void *stream, void *event) {
    wagma_device *d = device_of(ordinal);
    d->calls->wait(d, stream, event);
}

/* Returns 1 if the event is complete. */
WAGMA_API int sim_query(int ordinal, void *event) {
    wagma_device *d = device_of(ordinal);
    return d->calls->query(d, event) == WAGMA_OK;
}

/* The nth such call of the device from now on fails (1: the next); 0: none. */
WAGMA_API void sim_fail(int ordinal, enum machine_call call, int nth) {
    machine_fail(device_of(ordinal), call, nth);
}

/* Returns what was done wrong first; NULL: nothing. */
WAGMA_API const char *sim_trouble(void) {
    (void)device_of(0);
    return machine_trouble(machine);
}
