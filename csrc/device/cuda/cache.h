/* Files of compiled kernels in the user's cache folder: wagma/ in XDG_CACHE_HOME or ~/.cache. What
 * cannot be read or written there, or was damaged, is compiled again. */
#ifndef WAGMA_DEVICE_CUDA_CACHE_H
#define WAGMA_DEVICE_CUDA_CACHE_H

#include <stddef.h>

/* Return what was kept by this name, which the caller frees; NULL: nothing. A 0 follows it. */
char *cache_read(const char *name);
void cache_write(const char *name, const char *code, size_t size);

#endif
