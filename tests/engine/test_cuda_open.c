/* Opening a device over the fake CUDA: what is refused, and the kernels that are kept. */
/* short run: c asan */
/* needs a C++ compiler */
#include "check.h"
#include "device/cuda/nvrtc.h"
#include "device_stage.h"
#include "expect.h"
#include "found_fake.h"
#include "place.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what is refused ------------------------------------------------------------------------- */

static void expect_no_device(int gpu, const char *says) {
    wagma_device *d;
    const int status = wagma_device_open(NULL, gpu, &d);
    EXPECT(status != WAGMA_OK && !d && strstr(wagma_last_error(), says), "%d %s", status,
           wagma_last_error());
    expect_nothing_left();
}

static void test_refused(void) {
    const struct cuda_fake usual = *fake;
    int status;
    expect_no_device(2, "gpu 2: this process sees 2 GPUs");
    expect_no_device(-1, "CUDA_VISIBLE_DEVICES is");
    fake->gpus = 0;
    expect_no_device(0, "shows no GPU");
    fake->gpus = usual.gpus;
    setenv("WAGMA_CUDA_SHARING", "both", 1);
    expect_no_device(0, "WAGMA_CUDA_SHARING=both: must be vmm or ipc");
    setenv("WAGMA_CUDA_SHARING", "vmm", 1);
    fake->descriptors = 0;
    expect_no_device(0, "the GPU or its driver has no such memory");
    fake->descriptors = 1;
    unsetenv("WAGMA_CUDA_SHARING");
    const pid_t child = fork(); /* CUDA runs in the parent */
    if (child == 0) {
        expect_no_device(0, "forked after its parent had used CUDA");
        _exit(expectations_failed());
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "%#x", status);
    CHECK(expectations_failed() == 0, "see above");
}

/* The caller has destroyed the stream of its last call, which the next one has to wait for. */
static void test_stream_is_gone(void) {
    static const char says[] = "a stream, which has to be of this GPU and not destroyed";
    wagma_options o;
    wagma_segment *segment;
    wagma_handle *h;
    wagma_device *d;
    void *gone, *other, *x;
    int status;
    const pid_t child = fork();
    if (child != 0) {
        CHECK(waitpid(child, &status, 0) == child && status == 0, "%#x", status);
        return;
    }
    wagma_options_init(&o);
    o.size = o.group_size = o.quorum = 1;
    o.count = 1000;
    o.memory = WAGMA_MEMORY_DEVICE;
    EXPECT(wagma_segment_create(&o, NULL, &segment) == WAGMA_OK, "%s", wagma_last_error());
    EXPECT(wagma_device_open(NULL, 0, &d) == WAGMA_OK, "%s", wagma_last_error());
    EXPECT(d->calls->stream_new(d, &gone) == WAGMA_OK, "%s", wagma_last_error());
    EXPECT(d->calls->stream_new(d, &other) == WAGMA_OK, "%s", wagma_last_error());
    EXPECT(d->calls->alloc(d, o.count * sizeof(float), &x) == WAGMA_OK, "%s", wagma_last_error());
    EXPECT(wagma_create_on(segment, 0, d, gone, x, 1, NULL, &h) == WAGMA_OK, "%s",
           wagma_last_error());
    EXPECT(wagma_allreduce(h, x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
    d->calls->stream_free(d, gone);
    EXPECT(wagma_set_stream(h, other) == WAGMA_ESYS && strstr(wagma_last_error(), says), "%s",
           wagma_last_error());
    EXPECT(wagma_allreduce(h, x, 1, NULL) == WAGMA_ESYS && strstr(wagma_last_error(), says), "%s",
           wagma_last_error());
    (void)wagma_close(h);
    wagma_free(h);
    wagma_segment_close(segment);
    d->calls->free(d, x);
    d->calls->stream_free(d, other);
    wagma_device_close(d);
    expect_nothing_left();
    _exit(expectations_failed());
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int has_kernels(void) {
    wagma_device *d;
    int status = wagma_device_open(NULL, 0, &d);
    for (int i = 0; i < 2 && status == WAGMA_OK; i++) /* a sum of no elements */
        status = d->calls->sum(d, NULL, WAGMA_F32, NULL, NULL, NULL, 0, 1, 0);
    wagma_device_close(d);
    expect_nothing_left();
    return status == WAGMA_OK;
}

/* Kernels are compiled once for a GPU, and anew where the driver does not take what is kept. */
static void test_cache(void) {
    char folder[] = "/tmp/wagma-cuda-XXXXXX", command[64];
    const int before = fake->compiled;
    CHECK(mkdtemp(folder), "no folder");
    setenv("XDG_CACHE_HOME", folder, 1);
    for (int i = 0; i < 3; i++)
        EXPECT(has_kernels() && fake->compiled == before + 1, "%d programs",
               fake->compiled - before);
    fake->arch = 80;
    fake->newest = 86;
    EXPECT(has_kernels() && fake->compiled == before + 2, "PTX for another GPU");
    EXPECT(has_kernels() && fake->compiled == before + 2, "PTX is kept");
    fake->arch = fake->newest = 90;
    snprintf(command, sizeof command, "echo damaged | tee %s/wagma/*", folder);
    CHECK(system(command) == 0, "%s", command);
    EXPECT(has_kernels() && fake->compiled == before + 3, "what is damaged");
    EXPECT(has_kernels() && fake->compiled == before + 3, "and is replaced");
    snprintf(command, sizeof command, "echo longer | tee -a %s/wagma/*", folder);
    CHECK(system(command) == 0, "%s", command);
    EXPECT(has_kernels() && fake->compiled == before + 4,
           "what is damaged, and the driver may take");
    for (int nth = 1; nth == 1 || fake->fails == 0; nth++) {
        fake->fails = nth;
        const int has = has_kernels();
        EXPECT(has || strncmp(fake->failed, "cuModule", 8) != 0, "%s, of what is kept",
               fake->failed);
    }
    fake->fails = 0;
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0, "%s", command);
    setenv("XDG_CACHE_HOME", "none", 1);
    CHECK(expectations_failed() == 0, "see above");
}

/* In a process that has not loaded NVRTC yet. Only sums on devices need it: not staged arrays. */
static void without_nvrtc(void) {
    wagma_options options = options_of(2, 2, 1, COUNT);
    wagma_outcome o;
    stage s;
    fake->driver = 12040;
    EXPECT(!has_kernels(), "an NVRTC that is too new compiles");
    options.memory = WAGMA_MEMORY_STAGED;
    EXPECT(stage_open(&s, &options, 1), "%s", wagma_last_error());
    for (int r = 0; r < 2 && expectations_failed() == 0; r++) {
        put(r, s.x[r], 0);
        EXPECT(wagma_allreduce(s.cast.handle[r], s.x[r], 1, &o) == WAGMA_OK, "%s",
               wagma_last_error());
        expect_outcome(&s, r, s.x[r], &o);
    }
    stage_close(&s);
    expect_nothing_left();
}

/* A handle of a device begins with what its sums need: all ranks are told. */
static void direct_without_nvrtc(void) {
    wagma_options options = options_of(1, 1, 1, COUNT);
    wagma_segment *segment;
    wagma_handle *h;
    fake->driver = 12040;
    options.memory = WAGMA_MEMORY_DEVICE;
    places_begin(1, 1, BYTES);
    EXPECT(wagma_segment_create(&options, NULL, &segment) == WAGMA_OK, "%s", wagma_last_error());
    void *x = place_new(place_of(0), BYTES);
    EXPECT(place_join(segment, NULL, 0, x, NULL, &h) == WAGMA_ESYS &&
               strstr(wagma_last_error(), "NVRTC 13.0 compiles for no GPU"),
           "%s", wagma_last_error());
    place_free(place_of(0), x);
    wagma_segment_close(segment);
    places_end();
    expect_nothing_left();
}

/* NVRTC 13 is too new for a driver, or for a GPU: what the error says is done then. */
static void refuse(int cuda, int arch, const char *package, int is_served) {
    char says[120];
    fake->driver = cuda;
    fake->arch = arch;
    snprintf(says, sizeof says, "capability %d.%d with a driver of CUDA %d.%d: install one that",
             arch / 10, arch % 10, cuda / 1000, cuda % 1000 / 10);
    EXPECT(!has_kernels() && strstr(wagma_last_error(), says) &&
               strstr(wagma_last_error(), package),
           "%s", wagma_last_error());
    nvrtc_set_paths(FAKE_CUDA "libnvrtc.so.13\n" FAKE_CUDA "libnvrtc.so.12");
    EXPECT(has_kernels() == is_served, "%s", wagma_last_error());
}

static void refuse_for_driver(void) {
    refuse(12040, 90, " nvidia-cuda-nvrtc-cu12)", 1);
}

static void refuse_for_gpu(void) {
    refuse(13000, 70, " nvidia-cuda-nvrtc-cu12)", 1);
}

static void refuse_for_old_driver(void) {
    refuse(11080, 90, " nvidia-cuda-nvrtc-cu11)", 0);
}

static void find_by_name(void) {
    fake->driver = 12040;
    CHECK(dlopen(FAKE_CUDA "libnvrtc.so.12", RTLD_LOCAL | RTLD_NOW), "%s", dlerror());
    EXPECT(has_kernels(), "%s", wagma_last_error());
}

/* NVRTC 12 is for both GPUs. */
static void find_for_each_gpu(void) {
    nvrtc_set_paths(FAKE_CUDA "libnvrtc.so.13\n" FAKE_CUDA "libnvrtc.so.12");
    for (int i = 0; i < 4; i++) {
        fake->arch = i % 2 ? 70 : 90;
        EXPECT(has_kernels(), "compute capability %d: %s", fake->arch, wagma_last_error());
    }
}

static void test_nvrtc(void) {
    void (*const plays[])(void) = {without_nvrtc,    direct_without_nvrtc,  refuse_for_driver,
                                   refuse_for_gpu,   refuse_for_old_driver, find_by_name,
                                   find_for_each_gpu};
    int status;
    for (int k = 0; k < 7; k++) {
        const pid_t child = fork();
        if (child == 0) {
            plays[k]();
            _exit(expectations_failed());
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0, "%d: %#x", k, status);
    }
}

int main(void) {
    places_use_cuda();
    find_fake();
    if (fake) { /* of true GPUs there is no telling what is refused */
        RUN(test_nvrtc);
        RUN(test_stream_is_gone);
        RUN(test_refused);
        RUN(test_cache);
    }
    return check_summary();
}
