/* The wait-avoiding executor with contributions and results on devices. The protocol and its words
 * stay in the segment, on the host. executor.c makes the handle, peers.c finds the memory of the
 * ranks, data.c queues the work, wait.c waits for it.
 *
 * Order. `called` is recorded on the caller's stream when a call begins, and the engine's stream
 * waits for it: so x is produced, and nobody reads old results any more, before the engine's work
 * begins. `done` is recorded on the engine's stream behind work of which the next step of the
 * protocol tells other ranks: that a contribution is written, a slice reduced, or that this rank
 * uses a round no more. That step waits until `done` is complete. Work that no step tells of is
 * left queued; at the end of the call the caller's stream waits for it. */
#ifndef WAGMA_SHM_DEVICE_EXECUTOR_H
#define WAGMA_SHM_DEVICE_EXECUTOR_H

#include "device/device.h"
#include "device/order.h"
#include "shm/avoiding/executor.h"
#include "shm/device/owned.h"

struct device_executor {
    struct avoiding_executor avoiding; /* first */
    wagma_device *device;
    void *caller; /* the caller's stream */
    void *stream; /* the engine's */
    void *called, *done;
    int reducing;      /* `done` marks a slice */
    int pending;       /* the next step waits for `done` */
    int queued;        /* work was queued since `done` was recorded */
    uint64_t recorded; /* ns, when it was */
    uint64_t refused;  /* ns: when the device refused memory; it is asked once a heartbeat */
    uint64_t *opened;  /* [P] value of segment_exported() up to which items are opened */
    void ***items;     /* [P][buffers + rounds]; NULL: not opened. Of this rank: all NULL */
    void *scratch;     /* a slice, of 16-bit elements to which x may be added; else NULL */
};

static inline struct device_executor *device_of(const wagma_handle *h) {
    return h->state;
}

/* -- peers.c ----------------------------------------------------------------------------------- */
/* Make this rank's first contributions and results, and room for the addresses of all. WAGMA_OK or
 * an error. */
int device_peers_make(wagma_handle *h);
/* Close what was opened. */
void device_peers_free(wagma_handle *h);
/* Wait for the ranks of other processes to open what this rank has made, or to leave. */
void device_await_openers(wagma_handle *h);
/* Functions of struct avoiding_plane. */
unsigned char *device_contribution(const wagma_handle *h, int r, int b);
unsigned char *device_result(const wagma_handle *h, uint32_t c);
int device_add_contribution(wagma_handle *h, int b);
int device_add_result(wagma_handle *h, int i);
int device_open(wagma_handle *h);
/* Check that what is needed of the round that was taken could be opened: WAGMA_OK or WAGMA_EPEER.
 */
int device_check_reach(wagma_handle *h, int of_inputs, int of_result);

/* -- data.c ------------------------------------------------------------------------------------ */
/* out = 0, N bytes */
int device_clear(wagma_handle *h, void *out);
/* out = in, N bytes */
int device_copy(wagma_handle *h, void *out, const void *in);
int device_data(wagma_handle *h, enum round_action action);
int device_scale(wagma_handle *h, void *out, const void *in, double factor);

/* -- wait.c ------------------------------------------------------------------------------------ */
/* Have the next step wait until all queued work is done. */
int device_mark(wagma_handle *h);
/* Have the engine's stream wait for what was queued on the caller's. */
int device_follow(const wagma_handle *h);
int device_begin(wagma_handle *h, int viewed);
int device_settle(wagma_handle *h, enum call_mode mode);
int device_end(wagma_handle *h);
/* Wait until all work of the engine and of the caller is done. */
void device_drain(const wagma_handle *h);

#endif
