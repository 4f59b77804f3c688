/* Opening a device over the fake CUDA: what is refused, and the kernels that are kept. */
/* short run: c asan */
/* needs a C++ compiler */
#include "check.h"
#include "expect.h"
#include "found_fake.h"
#include "place.h"

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
    unsetenv("WAGMA_CUDA_SHARING");
    const pid_t child = fork(); /* CUDA runs in the parent */
    if (child == 0) {
        expect_no_device(0, "forked after its parent had used CUDA");
        _exit(expectations_failed());
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "%#x", status);
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int opens(void) {
    wagma_device *d;
    const int status = wagma_device_open(NULL, 0, &d);
    wagma_device_close(d);
    return status == WAGMA_OK;
}

/* Kernels are compiled once for a GPU, and anew where the driver does not take what is kept. */
static void test_cache(void) {
    char folder[] = "/tmp/wagma-cuda-XXXXXX", command[64];
    const int before = fake->compiled;
    CHECK(mkdtemp(folder), "no folder");
    setenv("XDG_CACHE_HOME", folder, 1);
    for (int i = 0; i < 3; i++)
        EXPECT(opens() && fake->compiled == before + 1, "%d programs", fake->compiled - before);
    fake->arch = 80;
    fake->newest = 86;
    EXPECT(opens() && fake->compiled == before + 2, "PTX for another GPU");
    EXPECT(opens() && fake->compiled == before + 2, "PTX is kept");
    fake->arch = fake->newest = 90;
    snprintf(command, sizeof command, "echo damaged | tee %s/wagma/*", folder);
    CHECK(system(command) == 0, "%s", command);
    EXPECT(opens() && fake->compiled == before + 3, "what is damaged");
    EXPECT(opens() && fake->compiled == before + 3, "and is replaced");
    snprintf(command, sizeof command, "echo longer | tee -a %s/wagma/*", folder);
    CHECK(system(command) == 0, "%s", command);
    EXPECT(opens() && fake->compiled == before + 4, "what is damaged, and the driver may take");
    for (int nth = 1; nth == 1 || fake->fails == 0; nth++) {
        fake->fails = nth;
        const int is_open = opens();
        EXPECT(is_open || strncmp(fake->failed, "cuModule", 8) != 0, "%s, of what is kept",
               fake->failed);
    }
    fake->fails = 0;
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0, "%s", command);
    setenv("XDG_CACHE_HOME", "none", 1);
    CHECK(expectations_failed() == 0, "see above");
}

/* In a process that has not loaded NVRTC yet. */
static void test_nvrtc_is_newer_than_the_driver(void) {
    int status;
    const pid_t child = fork();
    if (child == 0) {
        fake->driver = 12040;
        expect_no_device(0, "NVRTC is of CUDA 13.0, the driver of CUDA 12.4");
        EXPECT(strstr(wagma_last_error(), "nvidia-cuda-nvrtc-cu12"), "%s", wagma_last_error());
        _exit(expectations_failed());
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "%#x", status);
}

int main(void) {
    places_use_cuda();
    find_fake();
    if (fake) { /* of true GPUs there is no telling what is refused */
        RUN(test_nvrtc_is_newer_than_the_driver);
        RUN(test_refused);
        RUN(test_cache);
    }
    return check_summary();
}
