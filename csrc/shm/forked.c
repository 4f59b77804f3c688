/* See forked.h. fork() waits while the list changes (process.h), so that a child finds it whole.
 * There only the kernel is called: other threads of the parent may have held any lock. */
#include "shm/forked.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/process.h"
#include "shm/remap.h"
#include "shm/segment.h"

static wagma_segment *list; /* of open segments */
static pthread_once_t watch_once = PTHREAD_ONCE_INIT;
static int watch_error;

/* Maps `bytes` of the segment's file privately. Where that fails, because the program has closed
 * the descriptor or no memory may be promised, a write ends the child instead of reaching its
 * parent. */
static void copy(int fd, void *at, size_t bytes, off_t offset) {
    if (fd >= 0 && mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
                        fd, offset) != MAP_FAILED)
        return;
    if (mprotect(at, bytes, PROT_READ) != 0)
        munmap(at, bytes);
}

/* Copies what programs have addresses in: the mapping, and the arrays that show other memory. */
static void copy_segment(wagma_segment *s) {
    const int fd = segment_file(s);
    copy(fd, s->base, s->bytes, 0);
    for (int r = 0; s->remap && r < s->size; r++) {
        size_t bytes;
        off_t offset;
        void *array = s->remap[r] ? remap_shows(s->remap[r], &bytes, &offset) : NULL;
        if (array)
            copy(fd, array, bytes, offset);
    }
    s->is_copy = 1;
}

static void in_child(void) {
    for (wagma_segment *s = list; s; s = s->next)
        if (s->is_inhabited && !s->is_copy)
            copy_segment(s);
}

static void watch(void) {
    watch_error = pthread_atfork(NULL, NULL, in_child);
}

int forked_add(wagma_segment *s) {
    pthread_once(&watch_once, watch);
    if (watch_error)
        return error_set(WAGMA_ENOMEM, "no memory to watch forks with");
    process_hold_fork();
    s->next = list;
    list = s;
    process_fork_again();
    return WAGMA_OK;
}

void forked_remove(wagma_segment *s) {
    process_hold_fork();
    for (wagma_segment **at = &list; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    process_fork_again();
}

void forked_inhabit(wagma_segment *s) {
    process_hold_fork();
    s->is_inhabited = 1;
    process_fork_again();
}

int forked_refuse(const char *what) {
    return error_set(WAGMA_ECLOSED,
                     "%s belongs to the process that this one was forked from: let that one call "
                     "it, or make a segment of this process's own",
                     what);
}
