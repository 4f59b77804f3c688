/* Order between two streams of a device: the caller's and the engine's. */
#ifndef WAGMA_DEVICE_ORDER_H
#define WAGMA_DEVICE_ORDER_H

#include "device/device.h"

enum { ORDER_NAP_NS = 100000 }; /* between two looks at an event, which rings no bell */

/* Work that is queued on `behind` afterwards begins when all is done that was queued on `stream`
 * before. WAGMA_OK or an error. */
static inline int order_behind(wagma_device *d, void *behind, void *event, void *stream) {
    const int status = d->calls->record(d, event, stream);
    return status == WAGMA_OK ? d->calls->wait(d, behind, event) : status;
}

#endif
