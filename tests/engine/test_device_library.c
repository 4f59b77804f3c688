/* Devices by a library: a handle over simulated ones, and what is refused. */
/* short run: c asan */
#include "check.h"
#include "device/device.h"
#include "support.h"

#include <string.h>

static const char SIMULATED[] = "build/libwagma_device_sim.so"; /* make's, for this test */

/* A device of a library has a handle. */
static void test_handle(void) {
    enum { COUNT = 3, BYTES = COUNT * (int)sizeof(double) };
    wagma_options options = options_of(1, 1, 1, COUNT);
    wagma_segment *segment;
    wagma_device *d;
    wagma_handle *h;
    void *stream, *x;
    options.memory = WAGMA_MEMORY_DEVICE;
    CHECK(wagma_device_open(SIMULATED, 3, &d) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_segment_create(&options, NULL, &segment) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(d->calls->stream_new(d, &stream) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(d->calls->alloc(d, BYTES, &x) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_create_on(segment, 0, d, stream, NULL, 1, NULL, &h) == WAGMA_OK, "%s",
          wagma_last_error());
    CHECK(wagma_allreduce(h, x, 1, NULL) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_close(h) == WAGMA_OK, "%s", wagma_last_error());
    wagma_free(h);
    wagma_segment_close(segment);
    d->calls->synchronise(d, stream);
    d->calls->free(d, x);
    d->calls->stream_free(d, stream);
    wagma_device_close(d);
    wagma_device_close(NULL);
}

static void test_refused(void) {
    static const struct {
        const char *library;
        int ordinal, status;
        const char *says;
    } cases[] = {
        {"build/no_such_library.so", 0, WAGMA_ESYS, "no_such_library.so: cannot open"},
        {"libm.so.6", 0, WAGMA_EINVAL, "libm.so.6 makes no devices"},
        {SIMULATED, 4, WAGMA_EINVAL, "gpu 4: the simulated machine has 4"},
        {SIMULATED, -1, WAGMA_EINVAL, "gpu -1"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        wagma_device *d;
        const int status = wagma_device_open(cases[c].library, cases[c].ordinal, &d);
        CHECK(status == cases[c].status && !d && strstr(wagma_last_error(), cases[c].says),
              "%zu: %d %s", c, status, wagma_last_error());
    }
}

/* A library of other sources is closed again. */
static void test_other_interface(void) {
    wagma_device *d, *other;
    CHECK(wagma_device_open(SIMULATED, 0, &d) == WAGMA_OK, "%s", wagma_last_error());
    d->abi++; /* the library gives the same object again */
    CHECK(wagma_device_open(SIMULATED, 0, &other) == WAGMA_EINVAL && !other &&
              strstr(wagma_last_error(), "was built for interface"),
          "%s", wagma_last_error());
    d->abi--;
}

int main(void) {
    RUN(test_handle);
    RUN(test_refused);
    RUN(test_other_interface);
    return check_summary();
}
