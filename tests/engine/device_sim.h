/* A machine with a device for each rank, in host memory: processes share it, as they may share that
 * of GPUs. Work is done late: every call may do some of what is queued, on a stream that is drawn
 * from a seed, as far as the order of streams and events allow. Memory holds poison until it is
 * written.
 *
 * What was done wrong is kept (machine_trouble()): work that overtakes earlier work on the same
 * memory which it had to wait for; work on memory that is not the device's, not opened, or freed;
 * memory freed or closed while work uses it; what was never freed. Work of other processes is seen
 * by its values only.
 *
 * Any thread may call any function. A forked process has a machine of its own. */
#ifndef WAGMA_TESTS_DEVICE_SIM_H
#define WAGMA_TESTS_DEVICE_SIM_H

#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

struct machine;

struct machine *machine_new(int devices, uint64_t seed);
/* The device of a rank; the machine owns it. */
wagma_device *machine_device(struct machine *m, int rank);
/* What was done wrong first; NULL: nothing. */
const char *machine_trouble(struct machine *m);
/* Expects everything to be freed. Returns what was done wrong first, which is kept until the next
 * machine ends; NULL: nothing. */
const char *machine_free(struct machine *m);

/* ---- a rank's own work ----------------------------------------------------------------------- */
/* Queues: memory = data, which is copied. */
void machine_write(wagma_device *d, void *stream, void *memory, const void *data, size_t bytes);
/* Queues: data = memory. */
void machine_read(wagma_device *d, void *stream, void *data, const void *memory, size_t bytes);
/* Queues: memory has to equal data, which is copied. */
void machine_expect(wagma_device *d, void *stream, const void *memory, const void *data,
                    size_t bytes);
/* Work that is queued on the stream afterwards is not done before machine_release(). */
void machine_hold(wagma_device *d, void *stream);
void machine_release(wagma_device *d);
/* n more copies and sums of the stream are done, and then none before this is changed. -1: any
 * number. */
void machine_allow(wagma_device *d, void *stream, int n);
/* Work that is queued. */
int machine_pending(struct machine *m);

/* ---- failures -------------------------------------------------------------------------------- */
enum machine_call {
    MACHINE_ALLOC,
    MACHINE_EXPORT,
    MACHINE_OPEN,
    MACHINE_PIN,
    MACHINE_STREAM,
    MACHINE_EVENT,
    MACHINE_RECORD,
    MACHINE_WAIT,
    MACHINE_QUEUE, /* a copy or a sum is refused */
    MACHINE_WORK,  /* it fails when it is done, and query() and synchronise() say so from then on */
    MACHINE_CALLS
};
/* The nth such call of the device from now on fails (1: the next); 0: none. */
void machine_fail(wagma_device *d, enum machine_call call, int nth);

#endif
