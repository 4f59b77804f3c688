/* A device over CUDA by itself: what its calls give, and each call of CUDA failing. With true GPUs
 * (place.h) what needs the fake is left out. */
/* short run: c asan */
/* needs a C++ compiler */
#include "base/pages.h"
#include "check.h"
#include "expect.h"
#include "found_fake.h"
#include "device/device.h"
#include "kernels/reduce.h"
#include "place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 5000, BYTES = COUNT * (int)sizeof(float), MANY = 65 };

/* What a script has made so far. */
typedef struct made {
    wagma_device *d, *other;
    void *arrays, *shared, *stream, *event;
    int is_pinned;
    unsigned char *pages; /* of the host; NULL: not made yet */
} made;

static float arrays[MANY][COUNT]; /* on the host */

static float *array_of(const made *m, int k) {
    return (float *)m->arrays + (size_t)k * COUNT;
}

static int sum_all(made *m, int n) {
    static float x[COUNT], expected[COUNT];
    const device_calls *calls = m->d->calls;
    const void *on_host[MANY], *in[MANY];
    double weights[MANY];
    for (int k = 0; k < n; k++) {
        on_host[k] = arrays[k];
        in[k] = array_of(m, k);
        weights[k] = k % 3; /* 0 for array 0, into which sums go */
    }
    reduce_by_name("scalar")->sum(WAGMA_F32, expected, on_host, weights, n, 7, COUNT);
    int status = calls->sum(m->d, m->stream, WAGMA_F32, m->arrays, in, weights, n, 7, COUNT);
    if (status == WAGMA_OK)
        status = calls->copy(m->d, m->stream, x, m->arrays, BYTES);
    if (status == WAGMA_OK)
        status = calls->synchronise(m->d, m->stream);
    if (status == WAGMA_OK)
        EXPECT(memcmp(x, expected, BYTES) == 0, "a sum of %d", n);
    return status;
}

static int make_arrays(made *m) {
    void *memory;
    for (int k = 0; k < MANY; k++)
        for (int i = 0; i < COUNT; i++)
            arrays[k][i] = (float)((k + 1) * 1000 + i % 977) / 8;
    int status = m->d->calls->alloc(m->d, sizeof arrays, &memory);
    if (status != WAGMA_OK)
        return status;
    m->arrays = memory;
    status = m->d->calls->copy(m->d, m->stream, m->arrays, arrays, sizeof arrays);
    return status == WAGMA_OK ? m->d->calls->synchronise(m->d, m->stream) : status;
}

/* The other GPU sees the memory at the same address. */
static int share(made *m) {
    device_record record;
    int status = m->d->calls->export(m->d, m->arrays, &record);
    if (status == WAGMA_OK)
        status = m->other->calls->open(m->other, &record, &m->shared);
    if (status == WAGMA_OK)
        EXPECT(m->shared == m->arrays, "another address");
    return status;
}

/* Copies to pinned memory and back: the call that queues them does not wait. */
static int pin(made *m) {
    const device_calls *calls = m->d->calls;
    if (!m->pages)
        m->pages = pages_alone(BYTES);
    int status = calls->pin(m->d, m->pages, pages_whole(BYTES));
    if (status != WAGMA_OK)
        return status;
    m->is_pinned = 1;
    status = calls->copy(m->d, m->stream, m->pages, array_of(m, 2), BYTES);
    if (status == WAGMA_OK)
        status = calls->copy(m->d, m->stream, array_of(m, 3), m->pages, BYTES);
    if (status == WAGMA_OK)
        status = calls->synchronise(m->d, m->stream);
    if (status == WAGMA_OK)
        EXPECT(memcmp(m->pages, arrays[2], BYTES) == 0, "another array is pinned");
    return status;
}

static int await(made *m) {
    int status = m->d->calls->record(m->d, m->event, m->stream);
    if (status == WAGMA_OK)
        status = m->d->calls->wait(m->d, m->stream, m->event);
    if (status == WAGMA_OK)
        while ((status = m->d->calls->query(m->d, m->event)) == WAGMA_INPROGRESS)
            ;
    return status;
}

static int play(made *m) {
    static const int inputs[] = {0, 3, MANY};
    int status = wagma_device_open(NULL, 0, &m->d);
    if (status == WAGMA_OK)
        status = wagma_device_open(NULL, places_gpus - 1, &m->other);
    if (status == WAGMA_OK)
        status = m->d->calls->stream_new(m->d, &m->stream);
    if (status == WAGMA_OK)
        status = m->d->calls->event_new(m->d, &m->event);
    if (status == WAGMA_OK)
        status = make_arrays(m);
    for (int i = 0; i < 3 && status == WAGMA_OK; i++)
        status = sum_all(m, inputs[i]);
    if (status == WAGMA_OK)
        status = pin(m);
    if (status == WAGMA_OK)
        status = share(m);
    return status == WAGMA_OK ? await(m) : status;
}

static void end(made *m) {
    if (m->d && m->stream)
        m->d->calls->synchronise(m->d, m->stream);
    if (m->arrays)
        m->d->calls->free(m->d, m->arrays);
    if (m->is_pinned)
        m->d->calls->unpin(m->d, m->pages);
    free(m->pages);
    if (m->shared)
        m->other->calls->close(m->other, m->shared);
    if (m->event)
        m->d->calls->event_free(m->d, m->event);
    if (m->stream)
        m->d->calls->stream_free(m->d, m->stream);
    wagma_device_close(m->other);
    wagma_device_close(m->d);
}

static void test_script(void) {
    made m = {0};
    CHECK(play(&m) == WAGMA_OK, "%s", wagma_last_error());
    end(&m);
    expect_nothing_left();
    CHECK(expectations_failed() == 0, "see above");
}

/* Return whether a device opens all the same if the call fails: it shares by CUDA IPC then. */
static int is_dispensable(const char *call) {
    static const char *const names[] = {"cuDeviceGetAttribute", "cuMemGetAllocationGranularity",
                                        "cuMemCreate",          "cuMemExportToShareableHandle",
                                        "cuMemAddressReserve",  "cuMemMap",
                                        "cuMemSetAccess"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(call, names[i]) == 0)
            return 1;
    return 0;
}

static void test_each_call_fails(void) {
    int status = WAGMA_ESYS;
    for (int nth = 1; nth == 1 || fake->fails == 0; nth++) {
        made m = {0};
        fake->failed = "";
        fake->fails = nth;
        status = play(&m);
        const char *call = fake->failed;
        if (fake->fails == 0 && !(status == WAGMA_OK && is_dispensable(call)))
            EXPECT(status == WAGMA_ESYS && strstr(wagma_last_error(), "fake"), "status %d: %s",
                   status, wagma_last_error());
        end(&m);
        expect_nothing_left();
        CHECK(expectations_failed() == 0, "call %d, %s", nth, call);
    }
    fake->fails = 0;
    CHECK(status == WAGMA_OK, "%s", wagma_last_error());
}

/* What fails after the first failure does not replace its words. */
static void test_first_error_is_kept(void) {
    static const char *const calls[] = {"cuLaunchKernel", "cuEventRecord", "cuMemAllocAsync"};
    for (int c = 0; c < 3; c++) {
        made m = {0};
        CHECK(play(&m) == WAGMA_OK, "%s", wagma_last_error());
        fake->breaks = calls[c];
        EXPECT(sum_all(&m, MANY) == WAGMA_ESYS && strstr(wagma_last_error(), calls[c]), "%s: %s",
               calls[c], wagma_last_error());
        fake->breaks = NULL;
        fake->is_broken = 0;
        end(&m);
        expect_nothing_left();
    }
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- what cannot be used --------------------------------------------------------------------- */

/* A stream that its owner has destroyed is an error of the next call, and of none that needs other
 * streams. */
static void test_destroyed_stream(void) {
    made m = {0};
    void *gone;
    CHECK(play(&m) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(m.d->calls->stream_new(m.d, &gone) == WAGMA_OK, "%s", wagma_last_error());
    m.d->calls->stream_free(m.d, gone);
    EXPECT(m.d->calls->record(m.d, m.event, gone) == WAGMA_ESYS &&
               strstr(wagma_last_error(), "has to be of this GPU and not destroyed"),
           "%s", wagma_last_error());
    EXPECT(m.d->calls->wait(m.d, gone, m.event) == WAGMA_ESYS &&
               strstr(wagma_last_error(), "has to be of this GPU and not destroyed"),
           "%s", wagma_last_error());
    EXPECT(await(&m) == WAGMA_OK, "%s", wagma_last_error());
    end(&m);
    expect_nothing_left();
    CHECK(expectations_failed() == 0, "see above");
}

/* Memory of a GPU without file descriptors is shared by CUDA IPC, of which one line tells. */
static void test_no_descriptors(void) {
    char said[1024] = "";
    made m = {0};
    FILE *file = tmpfile();
    const int before = dup(STDERR_FILENO);
    CHECK(file && dup2(fileno(file), STDERR_FILENO) >= 0, "no file");
    fake->descriptors = 0;
    fake->breaks = "cuMemCreate"; /* it is not called */
    const int status = play(&m);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = 0;
    fclose(file);
    EXPECT(status == WAGMA_OK, "%s", wagma_last_error());
    const char *line = strstr(said, "wagma: memory of GPU 0 is shared by CUDA IPC, not by file "
                                    "descriptors (the GPU or its driver has no such memory)");
    EXPECT(line == said && strchr(said, '\n') == said + strlen(said) - 1, "said: %s", said);
    end(&m);
    fake->breaks = NULL;
    fake->descriptors = 1;
    expect_nothing_left();
    CHECK(expectations_failed() == 0, "see above");
}

/* GPUs that do not reach each other. */
static void test_no_peer_access(void) {
    made m = {0};
    fake->peers = 0;
    CHECK(play(&m) == WAGMA_ESYS && strstr(wagma_last_error(), "cannot access the memory of GPU 0"),
          "%s", wagma_last_error());
    EXPECT(strstr(wagma_last_error(), "or set memory to WAGMA_MEMORY_STAGED (Python: "
                                      "memory='staged')"),
           "%s", wagma_last_error());
    end(&m);
    expect_nothing_left();
    fake->peers = 1;
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    places_use_cuda();
    find_fake();
    RUN(test_script);
    setenv("WAGMA_CUDA_SHARING", "ipc", 1);
    RUN(test_script);
    unsetenv("WAGMA_CUDA_SHARING");
    if (fake) {
        RUN(test_no_descriptors); /* the first that falls back, of which a process tells once */
        RUN(test_each_call_fails);
        RUN(test_no_peer_access);
        RUN(test_first_error_is_kept);
        RUN(test_destroyed_stream);
    }
    return check_summary();
}
