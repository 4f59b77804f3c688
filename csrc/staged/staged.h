/* Staged memory: arrays of calls are on the ranks' devices, and an executor of host memory serves
 * them (WAGMA_MEMORY_STAGED). This layer lies between the public calls and the executor: it has the
 * executor's calls, with those replaced that take or give arrays.
 *
 *   caller's x --copy--> pinned x --executor--> pinned x --copy--> caller's x
 *
 * An executor with pages_of() has its own memory pinned when it is first used: x is copied to its
 * next contribution, and results that are shown from where they are. Where that is refused, the
 * host copies between that memory and pinned memory of this layer.
 *
 * Parts. With an executor that takes call.parts (engine/parts.h) copies, transfers and sums of one
 * large array overlap:
 *
 *   x           part | part | part | part      each has an event
 *   exchange         chunks, as their parts are there
 *   result                      part | part | part | part      each as soon as it is final
 *
 * The executor begins when the first part of x is there. Then the caller's earlier work is done, so
 * that the others come as fast as the bus is: a rank whose x is not produced is late as a whole. No
 * message says so: an exchange only sends and sums later what is not there yet, and goes on with
 * the rest meanwhile. A call is over when all parts of its x have come.
 *
 * Order. A call first queues the copy of x to pinned memory of the host, behind what the caller's
 * stream has (`called`). The executor begins the call when that copy, or its first part, is
 * complete (`copied`). So it begins as if x had been passed then, and the wait before counts as
 * computing. These copies are on one stream of the engine, those to the device on another, so that
 * both directions of a bus are used. The former begin behind the caller's stream, and so behind
 * the latter of the call before (`delivered`): when x, or a part of it, has come, nothing of that
 * call reads pinned memory any more, and the caller's earlier work is done. An exchange in place
 * writes no element of the result before that of x has come, so that nothing of the result is
 * copied to x before x was read there.
 *
 * Copies of results are left queued when a call ends; the caller's stream waits for them
 * (`delivered`), and close() does. The executor gives results back in its next call or in close():
 * when they are copied. */
#ifndef WAGMA_STAGED_STAGED_H
#define WAGMA_STAGED_STAGED_H

#include "base/kept.h"
#include "device/device.h"
#include "device/order.h"
#include "engine/handle.h"

enum { STAGED_PARTS_MAX = 32 };

struct staged_view { /* one result that a call shows */
    void *array;     /* on the device; NULL: not made yet */
    void *pinned;    /* from which it is copied; NULL: likewise */
};

struct staged_pages { /* of the executor's memory */
    struct staged_pages *next;
    unsigned char *at;
    size_t bytes;
    int pinned; /* 0: that was refused, and is not tried again */
};

struct staged {
    struct executor_calls calls; /* the handle's */
    struct kept kept;            /* see wagma_handle.keeps_arrays */
    wagma_device *device;
    void *caller;             /* the caller's stream */
    void *stream, *back;      /* the engine's: copies of x, and what leads back to the device */
    void *called, *delivered; /* events; `delivered` is made last */
    size_t bytes;             /* of an array */
    const void *initial;      /* on the device; NULL: zeros */
    void *x;                  /* pinned: the executor's x */
    int is_pinned;            /* otherwise it is only memory */
    void *reserved;           /* on the device, for next_contribution(); NULL: not made yet */
    void *contribution;       /* the executor's buffer for it; NULL: none is handed out */
    int out_of_place;         /* the call's x is `reserved` */
    int direct;               /* the call's x is copied to `contribution`, not to x */
    /* parts */
    call_parts parts;
    size_t part;                      /* elements of each but the last */
    int parts_n;                      /* 1: arrays have no parts */
    int by_parts;                     /* the call has */
    void *copied[STAGED_PARTS_MAX];   /* events, [parts_n] */
    int copies, copied_n;             /* of x: queued, complete */
    const void *from;                 /* the result of which parts may be final; NULL: none is */
    void *to;                         /* where such a result goes */
    size_t missing[STAGED_PARTS_MAX]; /* elements of it that are not final */
    unsigned char gone[STAGED_PARTS_MAX]; /* 1: the copy is queued */
    int took;                             /* one is */
    int taking; /* one is, and the caller's stream does not wait for it yet */
    struct staged_pages *pages;
    struct staged_view *views;
    const void **results; /* of the last call, on the device */
    uint64_t memory;      /* bytes that this layer has made */
};

/* ---- handle.c -------------------------------------------------------------------------------- */

/* Make the layer of a new handle, without anything on the device. WAGMA_OK or WAGMA_ENOMEM. */
int staged_new(wagma_handle *h, const struct executor_request *request);
/* Return the request for the executor: what it begins with is prepared in its create(). */
struct executor_request staged_request(const wagma_handle *h,
                                       const struct executor_request *request);
/* Free the layer of a handle whose executor is freed. */
void staged_free(wagma_handle *h);
/* Return 1 if copies may use this array of the executor: its pages are pinned now or were before.
 * Otherwise the host copies it. */
int staged_reach(const wagma_handle *h, const void *array);
/* Make memory of the device, and such of the host that copies may use. WAGMA_OK or an error;
 * *memory stays as it is if it is there already. */
int staged_add_array(const wagma_handle *h, void **memory);
int staged_add_pinned(const wagma_handle *h, void **memory);

/* ---- parts.c --------------------------------------------------------------------------------- */

/* Choose the parts of the handle's arrays. */
void staged_lay_out(wagma_handle *h);
/* Decide whether the call goes by parts; its x has a place. */
void staged_choose_parts(wagma_handle *h);
/* Queue the copies of x to the host, with their events. */
int staged_copy_x(wagma_handle *h, void *out);
/* Look for the next part of x: WAGMA_OK: it is there; WAGMA_INPROGRESS, or an error. */
int staged_find_copied(wagma_handle *h);
/* Divide x, if the executor has left that, and queue its copy back. */
int staged_copy_x_back(wagma_handle *h);
/* Queue the copy of what was not copied of a result yet. */
int staged_copy_result(wagma_handle *h, void *out, const void *result);

/* ---- call.c ---------------------------------------------------------------------------------- */

/* Members of struct executor_calls. */
int staged_start(wagma_handle *h);
int staged_post(wagma_handle *h);
int staged_poll(wagma_handle *h);
int staged_finish(wagma_handle *h);
int staged_next_contribution(wagma_handle *h, void **buffer);
int staged_close(wagma_handle *h);
int staged_set_stream(wagma_handle *h, void *stream);
/* Have the engine's stream wait for what was queued on the caller's. */
int staged_follow(const struct staged *s);
/* Wait until the engine's copies are done. Nothing can be done about an error. */
void staged_drain(const struct staged *s);

#endif
