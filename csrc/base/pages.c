/* See pages.h. */
#define _GNU_SOURCE /* MADV_HUGEPAGE, memfd_create */
#include "base/pages.h"
#include "base/round_up.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static void *allocate(size_t bytes, size_t alignment) {
    const int large = bytes >= PAGES_LARGE;
    void *memory;
    if (posix_memalign(&memory, large ? PAGES_HUGE : alignment, bytes ? bytes : 1) != 0)
        return NULL;
    if (large) /* where there are none, those of the usual size do */
        (void)madvise(memory, bytes - bytes % PAGES_HUGE, MADV_HUGEPAGE);
    return memory;
}

void *pages_new(size_t bytes) {
    return allocate(bytes, PAGES_LINE);
}

size_t pages_whole(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > SIZE_MAX - page)
        return SIZE_MAX / page * page; /* more than there is */
    return bytes ? round_up(bytes, page) : page;
}

void *pages_alone(size_t bytes) {
    return allocate(pages_whole(bytes), (size_t)sysconf(_SC_PAGESIZE));
}

int pages_join(void *at) {
    return madvise(at, PAGES_HUGE, MADV_COLLAPSE) == 0 ? 0 : -1;
}

int pages_can_join(void) {
    const int fd = memfd_create("wagma-pages", MFD_CLOEXEC);
    const size_t room = 2 * PAGES_HUGE;
    unsigned char *area =
        mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int joined = 0;
    if (fd >= 0 && area != MAP_FAILED && ftruncate(fd, PAGES_HUGE) == 0) {
        unsigned char *at = area + (-(uintptr_t)area & (PAGES_HUGE - 1));
        joined =
            mmap(at, PAGES_HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at &&
            posix_fallocate(fd, 0, 1) == 0 && pages_join(at) == 0;
    }
    if (area != MAP_FAILED)
        munmap(area, room);
    if (fd >= 0)
        close(fd);
    return joined;
}
