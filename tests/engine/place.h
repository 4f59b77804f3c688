/* Where a rank's arrays are: in host memory, on a simulated device (device_sim.h), or on a device
 * of a library. Tests that move their arrays by these functions run with all. */
#ifndef WAGMA_TESTS_PLACE_H
#define WAGMA_TESTS_PLACE_H

#include <stddef.h>
#include <stdint.h>

#include "device_sim.h"

/* Set by a program before it starts: the memory of the arrays of all ranks, a wagma_memory. */
extern int arrays_on_devices;
/* Likewise: so many GPUs, of which rank r has GPU r % gpus; 0: simulated devices. A process opens
 * those of its ranks when they first ask for their place, because GPUs do not survive a fork: a
 * program has ranks that are threads, or such that are processes. */
extern int places_gpus;
/* Use as many GPUs as WAGMA_TEST_GPUS says; if it is not set, the two of a fake CUDA. */
void places_use_cuda(void);

enum { PLACE_STREAMS = 2, PLACE_VIEWS = 2 };

typedef struct place {
    wagma_device *device; /* NULL: host memory */
    void *stream[PLACE_STREAMS], *event;
    int opens;                        /* place_of() opens the device */
    int used;                         /* stream of the next call */
    unsigned char *seen[PLACE_VIEWS]; /* host memory for what was looked at */
    int next;
} place;

/* Makes the devices, and a place per rank; ends them, and expects that all was done right and is
 * freed. Nothing to do for host memory. */
void places_begin(int ranks, uint64_t seed, size_t bytes);
void places_end(void);
/* NULL: there are no simulated devices. */
struct machine *places_machine(void);
/* What was done wrong on simulated devices first; NULL: nothing. */
const char *places_trouble(void);
place *place_of(int rank);

void *place_new(place *p, size_t bytes);
void place_free(place *p, void *array);
/* array = data, behind what is queued on the place's stream. */
void place_put(place *p, void *array, const void *data, size_t bytes);
/* What the array holds for work on the place's stream; valid until PLACE_VIEWS further looks. */
const void *place_look(place *p, const void *array, size_t bytes);
/* Expects the array to stay as it is until the rank's next call: a simulated device looks at it
 * late, nobody looks on others. */
void place_keep(place *p, const void *array, size_t bytes);
/* Change to the other stream, which waits for what the first one has done. */
void place_switch(place *p);

/* Make a rank's handle by the call for its place: over a segment, or over a transport with the
 * segment's options. */
struct wagma_segment;
int place_join(struct wagma_segment *s, wagma_transport *transport, int rank, const void *initial,
               const wagma_hooks *hooks, wagma_handle **handle);

#endif
