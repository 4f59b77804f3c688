/* A device over CUDA by itself: what its calls give, and each call of CUDA failing. With true GPUs
 * (place.h) what needs the fake is left out. */
/* short run: c asan */
/* needs a C++ compiler */
#include "base/pages.h"
#include "check.h"
#include "found_fake.h"
#include "device/device.h"
#include "kernels/reduce.h"
#include "place.h"
#include "support.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 5000, BYTES = COUNT * (int)sizeof(float), MANY = 65 };

/* ---- between processes ----------------------------------------------------------------------- */

typedef struct exchange {
    device_record record[2]; /* of memory that holds numbers, and of memory that is freed */
    _Atomic int stage;
} exchange;

static float number(int k, int i) {
    return (float)((k + 1) * 1000 + i % 977) / 8;
}

static void fill(float *x, int k) {
    for (int i = 0; i < COUNT; i++)
        x[i] = number(k, i);
}

static void await_stage(exchange *e, int stage) {
    for (int i = 0; atomic_load(&e->stage) < stage; i++)
        if (usleep(1000), i == 30000)
            fprintf(stderr, "stage %d does not come\n", stage), exit(1);
}

#define MUST(call)                                                                                 \
    do {                                                                                           \
        if ((call) != WAGMA_OK) {                                                                  \
            fprintf(stderr, "%s: %s\n", #call, wagma_last_error());                                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void own(exchange *e, int is_killed) {
    static float x[COUNT];
    wagma_device *d;
    void *memory[2], *stream;
    MUST(wagma_device_open(NULL, 0, &d));
    MUST(d->calls->stream_new(d, &stream));
    for (int k = 0; k < 2; k++) {
        fill(x, k);
        MUST(d->calls->alloc(d, BYTES, &memory[k]));
        MUST(d->calls->export(d, memory[k], &e->record[k]));
        MUST(d->calls->copy(d, stream, memory[k], x, BYTES));
        MUST(d->calls->synchronise(d, stream));
    }
    d->calls->free(d, memory[1]);
    atomic_store(&e->stage, 1);
    await_stage(e, 2);
    if (is_killed)
        raise(SIGKILL);
    await_stage(e, 4);
    d->calls->free(d, memory[0]);
    _exit(0);
}

static void expect_gone(wagma_device *d, const device_record *record) {
    void *memory;
    const int status = d->calls->open(d, record, &memory);
    if (status == WAGMA_ESYS && strstr(wagma_last_error(), "does not have the memory"))
        return;
    fprintf(stderr, "opened what is gone: %d %s\n", status, wagma_last_error());
    _exit(1);
}

/* Processes may count GPUs in different orders (CUDA_VISIBLE_DEVICES): the same GPU is reached, and
 * another one, if GPUs do not reach each other, is not. */
static void borrow_reversed(exchange *e) {
    wagma_device *same, *other;
    void *memory;
    fake->reversed = 1;
    fake->peers = 0;
    MUST(wagma_device_open(NULL, 1, &same));
    MUST(wagma_device_open(NULL, 0, &other));
    await_stage(e, 1);
    MUST(same->calls->open(same, &e->record[0], &memory));
    same->calls->close(same, memory);
    if (other->calls->open(other, &e->record[0], &memory) != WAGMA_ESYS ||
        !strstr(wagma_last_error(), "GPU 0 (fake GPU (0)) cannot access the memory of GPU 1"))
        fprintf(stderr, "another GPU: %s\n", wagma_last_error()), _exit(1);
    atomic_store(&e->stage, 4);
    wagma_device_close(other);
    wagma_device_close(same);
    _exit(fake->left != 0);
}

/* Another GPU, which this process does not see, and whose memory the driver refuses. */
static void borrow_unseen(exchange *e) {
    wagma_device *d;
    void *memory;
    fake->first = 1;
    MUST(wagma_device_open(NULL, 0, &d));
    await_stage(e, 1);
    fake->breaks = "cuMemImportFromShareableHandle";
    if (d->calls->open(d, &e->record[0], &memory) != WAGMA_ESYS ||
        !strstr(wagma_last_error(), "does not see the GPU of that memory (CUDA_VISIBLE_DEVICES") ||
        !strstr(wagma_last_error(), "instances of MIG"))
        fprintf(stderr, "unseen: %s\n", wagma_last_error()), _exit(1);
    atomic_store(&e->stage, 4);
    _exit(0);
}

static void play_two_gpus(void (*borrower)(exchange *e)) {
    exchange *e = mmap(NULL, sizeof *e, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child[2];
    int status;
    for (int k = 0; k < 2; k++) {
        child[k] = fork();
        if (child[k] == 0 && k == 0)
            own(e, 0);
        if (child[k] == 0)
            borrower(e);
    }
    for (int k = 2; k-- > 0;)
        CHECK(waitpid(child[k], &status, 0) == child[k] && status == 0, "%d: %#x", k, status);
    munmap(e, sizeof *e);
}

static void test_same_gpu_by_another_number(void) {
    play_two_gpus(borrow_reversed);
}

static void test_gpu_that_is_not_seen(void) {
    play_two_gpus(borrow_unseen);
}

static void borrow(exchange *e, int is_killed) {
    static float x[COUNT], expected[COUNT];
    wagma_device *d;
    void *memory, *again, *stream;
    MUST(wagma_device_open(NULL, 0, &d));
    MUST(d->calls->stream_new(d, &stream));
    await_stage(e, 1);
    MUST(d->calls->open(d, &e->record[0], &memory));
    MUST(d->calls->open(d, &e->record[0], &again));
    if (is_killed)
        expect_gone(d, &e->record[1]);
    d->calls->close(d, again);
    atomic_store(&e->stage, 2);
    await_stage(e, 3);
    MUST(d->calls->copy(d, stream, x, memory, BYTES));
    MUST(d->calls->synchronise(d, stream));
    fill(expected, 0);
    if (memcmp(x, expected, BYTES) != 0)
        fprintf(stderr, "wrong numbers of another process\n"), _exit(1);
    d->calls->close(d, memory);
    atomic_store(&e->stage, 4);
    if (is_killed)
        expect_gone(d, &e->record[0]);
    d->calls->stream_free(d, stream);
    wagma_device_close(d);
    _exit(fake && fake->left != 0);
}

static void play_two_processes(int is_killed) {
    exchange *e = mmap(NULL, sizeof *e, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    const pid_t owner = fork();
    if (owner == 0)
        own(e, is_killed);
    const pid_t borrower = fork();
    if (borrower == 0)
        borrow(e, is_killed);
    await_stage(e, 2);
    if (is_killed)
        CHECK(waitpid(owner, &status, 0) == owner && WIFSIGNALED(status), "%#x", status);
    atomic_store(&e->stage, 3);
    CHECK(waitpid(borrower, &status, 0) == borrower && status == 0, "%#x", status);
    if (!is_killed)
        CHECK(waitpid(owner, &status, 0) == owner && status == 0, "%#x", status);
    munmap(e, sizeof *e);
}

/* Memory that is open outlives its process; what is freed or gone cannot be opened. */
static void test_owner_is_killed(void) {
    play_two_processes(1);
}

static void test_ipc(void) {
    setenv("WAGMA_CUDA_SHARING", "ipc", 1);
    play_two_processes(0);
    unsetenv("WAGMA_CUDA_SHARING");
}

/* ---- one process ----------------------------------------------------------------------------- */

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
        fill(arrays[k], k);
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
    RUN(test_owner_is_killed); /* first: CUDA does not survive a fork */
    RUN(test_ipc);
    if (fake) {
        RUN(test_same_gpu_by_another_number);
        RUN(test_gpu_that_is_not_seen);
    }
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
