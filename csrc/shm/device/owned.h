/* Contributions and results of one rank on its device. The segment owns them: ranks of this process
 * may read them when the rank has departed, as they may what lies in the segment. */
#ifndef WAGMA_SHM_DEVICE_OWNED_H
#define WAGMA_SHM_DEVICE_OWNED_H

#include <stdint.h>

#include "device/device.h"
#include "shm/segment.h"

/* Those that ranks of other processes have opened live on when this frees them. NULL is allowed. */
void device_owned_free(struct device_owned *owned);

/* Make room for the addresses of the rank's items; NULL: no memory. The segment keeps it. */
struct device_owned *device_owned_new(wagma_segment *s, int rank, wagma_device *device);
/* Make the memory of item k (segment_export()) and its record, if it is not there yet. WAGMA_OK or
 * an error. */
int device_owned_add(wagma_segment *s, int rank, int k);
/* Return the address of item k; NULL: it was not made. */
void *device_owned_item(const wagma_segment *s, int rank, int k);

#endif
