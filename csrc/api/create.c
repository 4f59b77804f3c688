/* Creation: the first executor of the table that fits makes the handle. */
#include <inttypes.h>

#include "api/executors.h"
#include "base/error.h"
#include "device/device.h"
#include "engine/handle.h"
#include "messages/refuse.h"
#include "messages/transport.h"
#include "shm/forked.h"
#include "shm/segment.h"
#include "staged/staged.h"

/* A handle with an executor, without that one's state. */
static int choose(const struct executor_request *request, const wagma_hooks *hooks,
                  wagma_handle **handle) {
    const struct executor *executor = executor_choose(executors, executors_n, request);
    if (!executor)
        return WAGMA_EINVAL;
    wagma_handle *h = *handle = handle_new(executor, request, hooks);
    if (!h)
        return WAGMA_ENOMEM;
    const int status = h->policy.staged ? staged_new(h, request) : WAGMA_OK;
    if (status != WAGMA_OK)
        handle_free(h);
    return status;
}

static int make(wagma_handle *h, const struct executor_request *request, wagma_handle **handle) {
    const struct executor_request given = h->staged ? staged_request(h, request) : *request;
    const int status = h->executor->create(h, &given);
    if (status == WAGMA_OK) {
        *handle = h;
        return WAGMA_OK;
    }
    h->closed = 2;
    wagma_free(h);
    return status;
}

static int needs_device(const char *call) {
    return error_set(WAGMA_EINVAL,
                     "memory is WAGMA_MEMORY_DEVICE or _STAGED: use %s, which takes a device, or "
                     "set memory to WAGMA_MEMORY_HOST",
                     call);
}

/* Check that the device was built from the same sources, and let it keep errors here. */
static int check_device(wagma_device *device) {
    if (!device)
        return error_set(WAGMA_EINVAL, "device is NULL: pass one that implements device.h");
    if (device->abi != DEVICE_ABI)
        return error_set(WAGMA_EINVAL,
                         "the device was built for interface %#" PRIx64 ", the engine for %#" PRIx64
                         ": build both from the same sources",
                         device->abi, DEVICE_ABI);
    device->error = error_set;
    return WAGMA_OK;
}

/* ---- over a segment -------------------------------------------------------------------------- */

static int create(wagma_segment *segment, int rank, wagma_device *device, void *stream,
                  const void *initial, double weight, const wagma_hooks *hooks,
                  wagma_handle **handle) {
    wagma_handle *h;
    if (!segment)
        return error_set(WAGMA_EINVAL, "segment is NULL: make or open one first");
    if (segment->is_copy)
        return forked_refuse("the segment");
    if (rank < 0 || rank >= segment->size)
        return error_set(WAGMA_EINVAL, "rank=%d: must be in 0..%d", rank, segment->size - 1);
    const struct executor_request request = {
        .rank = rank,
        .options = &segment->options,
        .segment = segment,
        .device = device,
        .stream = stream,
        .initial = initial,
        .weight = weight,
    };
    const int status = choose(&request, hooks, &h);
    return status == WAGMA_OK ? make(h, &request, handle) : status;
}

int wagma_create(wagma_segment *segment, int rank, const void *initial, double weight,
                 const wagma_hooks *hooks, wagma_handle **handle) {
    *handle = NULL;
    if (segment && segment->options.memory != WAGMA_MEMORY_HOST)
        return needs_device("wagma_create_on()");
    return create(segment, rank, NULL, NULL, initial, weight, hooks, handle);
}

int wagma_create_on(wagma_segment *segment, int rank, wagma_device *device, void *stream,
                    const void *initial, double weight, const wagma_hooks *hooks,
                    wagma_handle **handle) {
    *handle = NULL;
    const int status = check_device(device);
    if (status != WAGMA_OK)
        return status;
    if (segment && segment->options.memory == WAGMA_MEMORY_HOST)
        return error_set(WAGMA_EINVAL, "memory is WAGMA_MEMORY_HOST: use wagma_create(), or set "
                                       "memory to WAGMA_MEMORY_DEVICE or _STAGED");
    return create(segment, rank, device, stream, initial, weight, hooks, handle);
}

/* ---- over a transport ------------------------------------------------------------------------ */

/* Check that the transport was built from the same sources. Otherwise no other field may be read,
 * and no function called. */
static int check_transport(const wagma_transport *t) {
    if (!t)
        return error_set(WAGMA_EINVAL, "transport is NULL: make one first");
    if (t->abi == TRANSPORT_ABI)
        return WAGMA_OK;
    return error_set(WAGMA_EINVAL,
                     "the transport was built for interface %#" PRIx64 ", the engine for %#" PRIx64
                     ": build both from the same sources (libwagma and libwagma_mpi: make install; "
                     "the Python package: python -m pip install --force-reinstall .)",
                     t->abi, TRANSPORT_ABI);
}

static int check_options(const wagma_transport *t, const wagma_options *options,
                         wagma_options *checked) {
    if (!options)
        return error_set(WAGMA_EINVAL, "options is NULL");
    *checked = *options;
    const int status = wagma_options_check(checked);
    if (status != WAGMA_OK)
        return status;
    if (checked->size != t->size)
        return error_set(WAGMA_EINVAL, "options.size is %d: the transport (%s) has %d ranks",
                         checked->size, t->name, t->size);
    return WAGMA_OK;
}

static int create_over(wagma_transport *transport, const wagma_options *options,
                       wagma_device *device, void *stream, const void *initial, double weight,
                       const wagma_hooks *hooks, wagma_handle **handle) {
    wagma_options checked;
    wagma_handle *h;
    transport->error = error_set;
    transport->ending = NULL;
    const struct executor_request request = {
        .rank = transport->rank,
        .options = &checked,
        .transport = transport,
        .device = device,
        .stream = stream,
        .initial = initial,
        .weight = weight,
    };
    int status = check_options(transport, options, &checked);
    if (status == WAGMA_OK && !device && checked.memory != WAGMA_MEMORY_HOST)
        status = needs_device("wagma_create_over_on()");
    if (status == WAGMA_OK && device && checked.memory == WAGMA_MEMORY_HOST)
        status = error_set(WAGMA_EINVAL, "memory is WAGMA_MEMORY_HOST: use wagma_create_over(), or "
                                         "set memory to WAGMA_MEMORY_STAGED");
    if (status == WAGMA_OK)
        status = choose(&request, hooks, &h);
    if (status == WAGMA_OK)
        return make(h, &request, handle);
    transport_refuse(transport);
    return status;
}

int wagma_create_over(wagma_transport *transport, const wagma_options *options, const void *initial,
                      double weight, const wagma_hooks *hooks, wagma_handle **handle) {
    *handle = NULL;
    const int status = check_transport(transport);
    return status != WAGMA_OK
               ? status
               : create_over(transport, options, NULL, NULL, initial, weight, hooks, handle);
}

int wagma_create_over_on(wagma_transport *transport, const wagma_options *options,
                         wagma_device *device, void *stream, const void *initial, double weight,
                         const wagma_hooks *hooks, wagma_handle **handle) {
    *handle = NULL;
    int status = check_transport(transport);
    if (status != WAGMA_OK)
        return status;
    status = check_device(device);
    if (status == WAGMA_OK)
        return create_over(transport, options, device, stream, initial, weight, hooks, handle);
    transport_refuse(transport);
    return status;
}
