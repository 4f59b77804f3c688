/* Streams, events, copies and sums. See device.h. */
#include "device/cuda/mapping.h"
#include "kernels/cuda/reduce_cuda.h"

/* Events are only waited for: without times, and a thread that waits for one sleeps. */
enum { EVENT_FLAGS = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC };

static int new_event(struct cuda_device *d, CUevent *event) {
    return cuda_check(d, driver.cuEventCreate(event, EVENT_FLAGS), "cuEventCreate()");
}

int cuda_work_begin(struct cuda_device *d) {
    return new_event(d, &d->waited);
}

void cuda_work_end(struct cuda_device *d) {
    (void)driver.cuEventDestroy_v2(d->waited);
}

/* ---- streams and events ---------------------------------------------------------------------- */

/* It waits for no other stream, not for the legacy default stream either. */
static int stream_new(wagma_device *device, void **stream) {
    struct cuda_device *d = cuda_of(device);
    CUstream made = NULL;
    const int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    const CUresult error = driver.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
    *stream = made;
    return cuda_leave(cuda_check(d, error, "cuStreamCreate()"));
}

static void stream_free(wagma_device *device, void *stream) {
    const int entered = cuda_enter(cuda_of(device));
    (void)driver.cuStreamDestroy_v2(stream);
    cuda_leave_if(entered);
}

static int event_new(wagma_device *device, void **event) {
    struct cuda_device *d = cuda_of(device);
    CUevent made = NULL;
    int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    status = new_event(d, &made);
    *event = made;
    return cuda_leave(status);
}

static void event_free(wagma_device *device, void *event) {
    const int entered = cuda_enter(cuda_of(device));
    (void)driver.cuEventDestroy_v2(event);
    cuda_leave_if(entered);
}

static int record(wagma_device *device, void *event, void *stream) {
    struct cuda_device *d = cuda_of(device);
    const int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    return cuda_leave(cuda_check(d, driver.cuEventRecord(event, stream),
                                 "cuEventRecord() on a stream, which has to be of this GPU and "
                                 "not destroyed"));
}

static int wait_for(wagma_device *device, void *stream, void *event) {
    struct cuda_device *d = cuda_of(device);
    const int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    return cuda_leave(cuda_check(d, driver.cuStreamWaitEvent(stream, event, 0),
                                 "cuStreamWaitEvent() on a stream, which has to be of this GPU "
                                 "and not destroyed"));
}

static int query(wagma_device *device, void *event) {
    struct cuda_device *d = cuda_of(device);
    const int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    const CUresult error = driver.cuEventQuery(event);
    if (error != CUDA_ERROR_NOT_READY)
        return cuda_leave(cuda_check(d, error, "cuEventQuery(), or work before the event"));
    return cuda_leave(WAGMA_INPROGRESS);
}

static int synchronise(wagma_device *device, void *stream) {
    struct cuda_device *d = cuda_of(device);
    int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    status = cuda_check(d, driver.cuEventRecord(d->waited, stream), "cuEventRecord()");
    if (status == WAGMA_OK)
        status = cuda_check(d, driver.cuEventSynchronize(d->waited),
                            "cuEventSynchronize(), or work before the event");
    return cuda_leave(status);
}

/* ---- copies and sums ------------------------------------------------------------------------- */

static int copy(wagma_device *device, void *stream, void *out, const void *in, size_t bytes) {
    struct cuda_device *d = cuda_of(device);
    const int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    return cuda_leave(cuda_check(
        d, driver.cuMemcpyAsync(mapping_pointer(out), mapping_pointer(in), bytes, stream),
        "cuMemcpyAsync()"));
}

struct queue {
    struct cuda_device *device;
    CUstream stream;
};

static int launch(void *context, wagma_dtype dtype, const reduce_pass *pass, unsigned blocks) {
    const struct queue *q = context;
    void *arguments[] = {(void *)(uintptr_t)pass};
    return cuda_check(q->device,
                      driver.cuLaunchKernel(q->device->kernel[dtype], blocks, 1, 1,
                                            REDUCE_BLOCK_THREADS, 1, 1, 0, q->stream, arguments,
                                            NULL),
                      "cuLaunchKernel()");
}

/* The scratch of a sum of many arrays belongs to the stream: it is free again behind the sum. */
static int sum(wagma_device *device, void *stream, wagma_dtype dtype, void *out,
               const void *const *in, const double *weights, int n, double divisor, size_t count) {
    struct cuda_device *d = cuda_of(device);
    struct queue queue = {d, stream};
    const size_t bytes = reduce_cuda_scratch(dtype, n, count);
    CUdeviceptr scratch = 0;
    int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    status = cuda_kernels_begin(d);
    if (status == WAGMA_OK && bytes > 0)
        status =
            cuda_check(d, driver.cuMemAllocAsync(&scratch, bytes, stream), "cuMemAllocAsync()");
    if (status == WAGMA_OK)
        status = reduce_cuda_sum(dtype, out, in, weights, n, divisor, count,
                                 mapping_address(scratch), launch, &queue);
    if (scratch) {
        const CUresult error = driver.cuMemFreeAsync(scratch, stream);
        if (status == WAGMA_OK)
            status = cuda_check(d, error, "cuMemFreeAsync()");
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
