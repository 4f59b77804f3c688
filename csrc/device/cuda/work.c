/* Streams, events, copies and sums. See device.h. */
#include "device/cuda/device.h"
#include "kernels/cuda/reduce_cuda.h"

/* Events are only waited for: without times, and a thread that waits for one sleeps. */
enum { EVENT_FLAGS = cudaEventDisableTiming | cudaEventBlockingSync };

static int new_event(struct cuda_device *d, cudaEvent_t *event) {
    return cuda_check(d, cudaEventCreateWithFlags(event, EVENT_FLAGS),
                      "cudaEventCreateWithFlags()");
}

int cuda_work_begin(struct cuda_device *d) {
    return new_event(d, &d->waited);
}

void cuda_work_end(struct cuda_device *d) {
    (void)cudaEventDestroy(d->waited);
}

/* ---- streams and events ---------------------------------------------------------------------- */

/* It waits for no other stream, not for the legacy default stream either. */
static int stream_new(wagma_device *device, void **stream) {
    struct cuda_device *d = cuda_of(device);
    cudaStream_t made = NULL;
    const int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    const cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    *stream = made;
    return cuda_leave(cuda_check(d, error, "cudaStreamCreateWithFlags()"));
}

static void stream_free(wagma_device *device, void *stream) {
    const int entered = cuda_enter(cuda_of(device));
    (void)cudaStreamDestroy(stream);
    cuda_leave_if(entered);
}

static int event_new(wagma_device *device, void **event) {
    struct cuda_device *d = cuda_of(device);
    cudaEvent_t made = NULL;
    int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    status = new_event(d, &made);
    *event = made;
    return cuda_leave(status);
}

static void event_free(wagma_device *device, void *event) {
    const int entered = cuda_enter(cuda_of(device));
    (void)cudaEventDestroy(event);
    cuda_leave_if(entered);
}

static int record(wagma_device *device, void *event, void *stream) {
    struct cuda_device *d = cuda_of(device);
    const int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    return cuda_leave(cuda_check(d, cudaEventRecord(event, stream),
                                 "cudaEventRecord() on a stream, which has to be of this GPU and "
                                 "not destroyed"));
}

static int wait_for(wagma_device *device, void *stream, void *event) {
    struct cuda_device *d = cuda_of(device);
    const int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    return cuda_leave(cuda_check(d, cudaStreamWaitEvent(stream, event, 0),
                                 "cudaStreamWaitEvent() on a stream, which has to be of this GPU "
                                 "and not destroyed"));
}

static int query(wagma_device *device, void *event) {
    struct cuda_device *d = cuda_of(device);
    const int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    const cudaError_t error = cudaEventQuery(event);
    if (error != cudaErrorNotReady)
        return cuda_leave(cuda_check(d, error, "cudaEventQuery(), or work before the event"));
    (void)cudaGetLastError();
    return cuda_leave(WAGMA_INPROGRESS);
}

static int synchronise(wagma_device *device, void *stream) {
    struct cuda_device *d = cuda_of(device);
    int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    status = cuda_check(d, cudaEventRecord(d->waited, stream), "cudaEventRecord()");
    if (status == WAGMA_OK)
        status = cuda_check(d, cudaEventSynchronize(d->waited),
                            "cudaEventSynchronize(), or work before the event");
    return cuda_leave(status);
}

/* ---- copies and sums ------------------------------------------------------------------------- */

static int copy(wagma_device *device, void *stream, void *out, const void *in, size_t bytes) {
    struct cuda_device *d = cuda_of(device);
    const int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    return cuda_leave(cuda_check(d, cudaMemcpyAsync(out, in, bytes, cudaMemcpyDefault, stream),
                                 "cudaMemcpyAsync()"));
}

/* The scratch of a sum of many arrays belongs to the stream: it is free again behind the sum. */
static int sum(wagma_device *device, void *stream, wagma_dtype dtype, void *out,
               const void *const *in, const double *weights, int n, double divisor, size_t count) {
    struct cuda_device *d = cuda_of(device);
    const size_t bytes = reduce_cuda_scratch(dtype, n, count);
    void *scratch = NULL;
    int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    if (bytes > 0)
        status = cuda_check(d, cudaMallocAsync(&scratch, bytes, stream), "cudaMallocAsync()");
    if (status == WAGMA_OK)
        status = cuda_check(
            d, reduce_cuda_sum(dtype, out, in, weights, n, divisor, count, scratch, stream),
            "the launch of a sum");
    if (scratch) {
        const int freed = cuda_check(d, cudaFreeAsync(scratch, stream), "cudaFreeAsync()");
        status = status == WAGMA_OK ? freed : status;
    }
    return cuda_leave(status);
}

const device_calls cuda_calls = {
    .alloc = cuda_alloc,
    .free = cuda_free,
    .export = cuda_export,
    .open = cuda_open,
    .close = cuda_close,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .event_new = event_new,
    .event_free = event_free,
    .record = record,
    .wait = wait_for,
    .query = query,
    .synchronise = synchronise,
    .copy = copy,
    .sum = sum,
};
