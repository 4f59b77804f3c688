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

/* The next memory of another rank is out of the device's reach. */
WAGMA_API void sim_fail_open(int ordinal) {
    machine_fail(device_of(ordinal), MACHINE_OPEN, 1);
}

/* Returns what was done wrong first; NULL: nothing. */
WAGMA_API const char *sim_trouble(void) {
    (void)device_of(0);
    return machine_trouble(machine);
}
