/* Device: the interface of a GPU to the executor that keeps arrays in its memory.
 *
 *   cuda/                       the CUDA driver
 *   tests/engine/device_sim.c   memory that processes share; work is done late, in drawn orders
 *
 * A device object is one rank's use of a GPU. Work is queued on streams: it is done in the order of
 * one stream, and on several streams in any order that events allow. Functions that queue work
 * return before it is done; what it reads and writes has to stay until then. A failure may be
 * returned by any later function instead.
 *
 * Thread-safety: one thread at a time per object, except free(), query() and error(), which any
 * thread may call; different objects at once. Errors: a negative wagma_status that the device's
 * `error` returned; `error` also keeps the message. */
#ifndef WAGMA_DEVICE_DEVICE_H
#define WAGMA_DEVICE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "include/wagma.h"

enum { DEVICE_RECORD_WORDS = 16 };

/* What one process needs to open memory of another. It lies in memory that ranks share. */
typedef struct device_record {
    uint64_t words[DEVICE_RECORD_WORDS];
} device_record;

typedef struct device_calls {
    /* Allocates memory of the device, which the caller owns; aligned to 256 bytes. It must not wait
     * for queued work: the caller of a handle may hold that back. WAGMA_ENOMEM: there is none. */
    int (*alloc)(wagma_device *d, size_t bytes, void **memory);
    /* Frees it. No work of this device that uses it is queued any more; the ranks that have opened
     * it may go on. */
    void (*free)(wagma_device *d, void *memory);
    /* Writes a record of memory from alloc(), by which other ranks open it until it is freed. */
    int (*export)(wagma_device *d, void *memory, device_record *record);
    /* Opens another rank's memory, of this process or of another one of this node, for reading and
     * writing. The caller owns the address until it closes it. */
    int (*open)(wagma_device *d, const device_record *record, void **memory);
    void (*close)(wagma_device *d, void *memory);

    /* Locks whole pages of the host's memory, which the caller owns, for copies from and to them.
     * WAGMA_ENOMEM: the system locks no more. */
    int (*pin)(wagma_device *d, void *memory, size_t bytes);
    /* Unlocks what pin() locked at this address. No work that uses it is queued any more. */
    void (*unpin)(wagma_device *d, void *memory);

    /* Makes a stream, which the caller owns. */
    int (*stream_new)(wagma_device *d, void **stream);
    /* Frees it when its work is done. */
    void (*stream_free)(wagma_device *d, void *stream);
    /* Makes an event, which the caller owns, and which is complete at first. */
    int (*event_new)(wagma_device *d, void **event);
    void (*event_free)(wagma_device *d, void *event);

    /* The event is complete when all work is that was queued on the stream before. */
    int (*record)(wagma_device *d, void *event, void *stream);
    /* Work that is queued on the stream afterwards begins when the event is complete, as it was
     * last recorded. */
    int (*wait)(wagma_device *d, void *stream, void *event);
    /* WAGMA_OK: the event is complete, and what was written before it can be read by any rank;
     * WAGMA_INPROGRESS; or an error, also one of its work. */
    int (*query)(wagma_device *d, void *event);
    /* Waits until all work that was queued on the stream is done, without spinning. */
    int (*synchronise)(wagma_device *d, void *stream);

    /* Queues out = in, `bytes` of the device's memory, of memory that it has opened, or of pinned
     * memory of the host. */
    int (*copy)(wagma_device *d, void *stream, void *out, const void *in, size_t bytes);
    /* Queues a sum as reduce_kernels.sum (kernels/reduce.h), with the same bits. The arrays in[]
     * and weights[] may change when it returns. n may be any number: memory that a sum of many
     * arrays takes beside them is the device's own, and free behind the sum (WAGMA_ENOMEM). The
     * first sum may compile the kernels, for seconds; one of no elements does nothing else. */
    int (*sum)(wagma_device *d, void *stream, wagma_dtype dtype, void *out, const void *const *in,
               const double *weights, int n, double divisor, size_t count);
} device_calls;

struct wagma_device {
    uint64_t abi; /* DEVICE_ABI, as its maker was compiled; first in every version of this */
    const device_calls *calls;
    const char *name; /* for messages: "NVIDIA H100 (0)", "simulation" */
    /* Keeps the message for wagma_last_error() and returns `status`; wagma_device_open() and
     * wagma_create_on() set it. */
    int (*error)(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
    void *library; /* that made it, as dlopen() returned it; wagma_device_open() sets it */
};

/* Version of this interface, as TRANSPORT_ABI of messages/transport.h. */
#define DEVICE_REVISION 4
#define DEVICE_ABI                                                                                 \
    ((uint64_t)DEVICE_REVISION << 48 | (uint64_t)sizeof(device_calls) << 24 |                      \
     (uint64_t)sizeof(struct wagma_device))

/* What a library of devices exports. Makes a device that uses GPU `ordinal`, with all fields but
 * `error` and `library`; on failure it writes a message. */
typedef int device_library_open(int ordinal, wagma_device **device, char *message, size_t size);
#define DEVICE_LIBRARY_OPEN "wagma_device_library_open"
/* Frees it. */
typedef void device_library_close(wagma_device *device);
#define DEVICE_LIBRARY_CLOSE "wagma_device_library_close"

#endif
