/* What the files of the simulated machine know of it. Everything is guarded by machine.lock. */
#ifndef WAGMA_TESTS_DEVICE_SIM_STATE_H
#define WAGMA_TESTS_DEVICE_SIM_STATE_H

#include <pthread.h>

#include "device_sim.h"

enum { INPUTS_MAX = 32, TROUBLE_BYTES = 256 };

struct memory { /* of one allocation, as far as this process uses it */
    uint64_t id;
    int fd, freed; /* fd -1: of the host */
    int mappings;
};

enum mapping_kind { MAPPING_OWN, MAPPING_OPENED, MAPPING_PINNED };

struct mapping { /* an address of a device; pinned memory is the host's */
    struct mapping *next;
    struct memory *memory;
    int device;
    enum mapping_kind kind;
    unsigned char *at;
    size_t bytes;
};

struct event {
    struct event *next;
    uint64_t recorded; /* how often */
};

enum work_kind {
    WORK_COPY,
    WORK_SUM,
    WORK_WRITE,
    WORK_READ,
    WORK_EXPECT,
    WORK_RECORD,
    WORK_WAIT,
    WORK_HOLD
};

struct work {
    struct work *next; /* of the stream */
    enum work_kind kind;
    uint64_t number; /* in the order in which work was queued, on all streams */
    int device;
    void *out;
    const void *in[INPUTS_MAX];
    double weights[INPUTS_MAX];
    int n;
    double divisor;
    wagma_dtype dtype;
    size_t bytes;
    unsigned char *data; /* of WRITE and EXPECT */
    struct event *event;
    uint64_t at; /* RECORD, WAIT: value of event->recorded */
};

struct stream {
    struct stream *next;
    int device;
    uint32_t lazy; /* it is passed over so many times of one more */
    int allowed;   /* copies and sums that are still done; -1: any number */
    struct work *first, **last;
};

struct device {
    wagma_device device; /* first */
    struct machine *machine;
    int number;
    int fails[MACHINE_CALLS]; /* which call from now on; 0: none */
    int broken, held;
};

struct machine {
    pthread_mutex_t lock;
    uint64_t random, works, memories;
    int devices, streams_n, pending;
    struct device *device;
    struct mapping *mappings;
    struct stream *streams;
    struct event *events;
    char trouble[TROUBLE_BYTES];
};

/* The device, with its machine locked. machine_unlock() returns the status. */
struct device *machine_lock(wagma_device *device);
int machine_unlock(struct device *d, int status);
/* The status of a call that a test may want to fail. */
int machine_injected(struct device *d, enum machine_call call);

/* Functions of device_calls. */
int machine_alloc(wagma_device *device, size_t bytes, void **memory);
void machine_free_memory(wagma_device *device, void *memory);
int machine_export(wagma_device *device, void *memory, device_record *record);
int machine_open(wagma_device *device, const device_record *record, void **memory);
void machine_close(wagma_device *device, void *memory);
int machine_pin(wagma_device *device, void *memory, size_t bytes);
void machine_unpin(wagma_device *device, void *memory);

uint32_t machine_draw(struct machine *m, uint32_t n);
void machine_blame(struct machine *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The mapping of a device that has these bytes; NULL. */
struct mapping *machine_mapping(struct machine *m, int device, const void *at, size_t bytes);
/* Queues work on a stream, and may do some. */
void machine_queue(struct device *d, struct stream *s, struct work *w);
/* Does up to `most` pieces of work, on drawn streams. */
void machine_do(struct machine *m, uint32_t most);
/* Is the event complete, as it was recorded for the `at`th time? */
int machine_is_complete(const struct machine *m, const struct event *event, uint64_t at);
/* Is any work queued that uses the mapping? */
int machine_uses(const struct machine *m, const struct mapping *mapping);

#endif
