/* Memory of a device over CUDA that processes share. With true GPUs (place.h) what needs the fake
 * is left out. */
/* short run: c asan */
/* needs a C++ compiler */
#include "check.h"
#include "found_fake.h"
#include "device/device.h"
#include "place.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 5000, BYTES = COUNT * (int)sizeof(float) };

typedef struct exchange {
    device_record record[2]; /* of memory that holds numbers, and of memory that is freed */
    _Atomic int stage;
} exchange;

static void fill(float *x, int k) {
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)((k + 1) * 1000 + i % 977) / 8;
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

int main(void) { /* CUDA does not survive a fork: this process opens no device */
    places_use_cuda();
    find_fake();
    RUN(test_owner_is_killed);
    RUN(test_ipc);
    if (fake) {
        RUN(test_same_gpu_by_another_number);
        RUN(test_gpu_that_is_not_seen);
    }
    return check_summary();
}
