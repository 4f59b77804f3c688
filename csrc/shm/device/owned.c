/* See owned.h. */
#include "shm/device/owned.h"

#include <stdlib.h>

#include "base/process.h"

struct device_owned {
    wagma_device *device;
    uint32_t process; /* process_serial() of the one that has the memory */
    int items;
    void *item[];
};

struct device_owned *device_owned_new(wagma_segment *s, int rank, wagma_device *device) {
    const int items = s->buffers + s->rounds;
    struct device_owned *owned = calloc(1, sizeof *owned + (size_t)items * sizeof(void *));
    if (owned) {
        owned->device = device;
        owned->process = process_serial();
        owned->items = items;
    }
    return s->owned[rank] = owned;
}

void device_owned_free(struct device_owned *owned) {
    if (!owned)
        return;
    for (int k = 0; k < owned->items && owned->process == process_serial(); k++)
        if (owned->item[k])
            owned->device->calls->free(owned->device, owned->item[k]);
    free(owned);
}

int device_owned_add(wagma_segment *s, int rank, int k) {
    struct device_owned *owned = s->owned[rank];
    wagma_device *d = owned->device;
    if (owned->item[k])
        return WAGMA_OK;
    int status = d->calls->alloc(d, s->bytes_n ? s->bytes_n : 1, &owned->item[k]);
    if (status != WAGMA_OK) {
        owned->item[k] = NULL;
        return status;
    }
    status = d->calls->export(d, owned->item[k], segment_export(s, rank, k));
    if (status != WAGMA_OK) {
        d->calls->free(d, owned->item[k]);
        owned->item[k] = NULL;
    }
    return status;
}

void *device_owned_item(const wagma_segment *s, int rank, int k) {
    return s->owned[rank]->item[k];
}
