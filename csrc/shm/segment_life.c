/* Which ranks are dead. The kernel tells: a rank holds a lock on a byte of the segment's file (byte
 * r for rank r), which is gone when its process is.
 *
 * The lock is of an open file description that the rank has for this alone, and a mapping of one
 * page keeps that open. So the lock lasts as long as the process's memory, and
 *   - process IDs are not asked for: they are the same in containers of one rank each;
 *   - a rank that closes descriptors which are not its own (os.closerange) stays alive, and copies
 *     of descriptors may be made and closed: none belongs to the lock;
 *   - forked children (data loaders) do not keep a dead rank alive: they get no copy of the mapping
 *     (MADV_DONTFORK), and nothing is forked while the description has a descriptor;
 *   - ranks that are threads of one process see each other's locks as those of other processes. */
#define _GNU_SOURCE /* F_OFD_* */
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process.h"

struct segment_life {
    void *page;       /* keeps the lock; NULL: none */
    uint32_t process; /* that has the page */
};

int segment_lives_create(wagma_segment *s) {
    s->lives = calloc((size_t)s->size, sizeof *s->lives);
    return s->lives ? 0 : -1;
}

void segment_lives_free(wagma_segment *s) {
    for (int r = 0; s->lives && r < s->size; r++)
        if (s->lives[r].page && s->lives[r].process == process_serial())
            munmap(s->lives[r].page, 1);
    free(s->lives);
}

static struct flock byte_lock(int rank) {
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1, .l_pid = 0};
    return lock;
}

static int lock_byte(struct segment_life *life, int fd, int rank) {
    struct flock lock = byte_lock(rank);
    life->page = mmap(NULL, 1, PROT_NONE, MAP_SHARED, fd, 0);
    if (life->page == MAP_FAILED)
        life->page = NULL;
    if (!life->page || madvise(life->page, 1, MADV_DONTFORK) != 0)
        return errno;
    life->process = process_serial();
    return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

/* Gives rank a life. WAGMA_OK or an error. */
static int begin_life(wagma_segment *s, int rank) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", segment_file(s));
    process_hold_fork();
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    int error = fd < 0 ? errno : lock_byte(&s->lives[rank], fd, rank);
    if (fd >= 0)
        close(fd);
    process_fork_again();
    if (fd < 0)
        return error_set(WAGMA_ESYS,
                         "cannot open the segment's file a second time, as %s: %s; is /proc "
                         "mounted?",
                         path, strerror(error));
    if (error)
        return error_set(WAGMA_ESYS, "cannot lock byte %d of the segment's file: %s", rank,
                         strerror(error));
    return WAGMA_OK;
}

int segment_life_begin(wagma_segment *s, int rank) {
    segment_presence *presence = segment_presence_of(s, rank);
    uint32_t nobody = 0;
    if (!atomic_compare_exchange_strong(&presence->pid, &nobody, (uint32_t)getpid()))
        return error_set(WAGMA_EINVAL,
                         "rank %d has joined already, as process %" PRIu32
                         ": every rank joins a segment once",
                         rank, nobody);
    /* relaxed: released with the state */
    atomic_store_explicit(&presence->pid_namespace, process_namespace(), memory_order_relaxed);
    const int status = begin_life(s, rank);
    if (status != WAGMA_OK)
        segment_leave(s, rank, SEGMENT_FAILED); /* the others must not wait for it */
    return status;
}

void segment_leave(wagma_segment *s, int rank, enum segment_state state) {
    segment_presence *presence = segment_presence_of(s, rank);
    uint32_t now = atomic_load_explicit(&presence->state, memory_order_relaxed); /* only we write */
    /* seq_cst: the event of a ring; also releases all that this rank has written to ranks that see
     * it departed. Its lock stays: the lock has no meaning for a rank that has left. */
    if (now < (uint32_t)state)
        atomic_store(&presence->state, (uint32_t)state);
}

int segment_lives_here(const wagma_segment *s, int rank) {
    return s->lives[rank].page && s->lives[rank].process == process_serial();
}

int segment_names_process(const wagma_segment *s, int rank) {
    /* relaxed: set before the rank joined */
    const uint64_t space =
        atomic_load_explicit(&segment_presence_of(s, rank)->pid_namespace, memory_order_relaxed);
    return space != 0 && space == process_namespace();
}

/* 1: the rank's process is gone, for one that has no descriptor of the file left. */
static int is_gone(const wagma_segment *s, int rank) {
    const uint32_t pid =
        atomic_load_explicit(&segment_presence_of(s, rank)->pid, memory_order_relaxed);
    return segment_names_process(s, rank) && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

static int is_unlocked(const wagma_segment *s, int rank) {
    struct flock lock = byte_lock(rank);
    const int fd = segment_file(s);
    if (fd < 0)
        return is_gone(s, rank);
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

int segment_is_dead(const wagma_segment *s, int rank) {
    const segment_presence *presence = segment_presence_of(s, rank);
    uint32_t state = atomic_load(&presence->state);
    if (state != SEGMENT_JOINED && state != SEGMENT_READY)
        return state == SEGMENT_FAILED;
    if (!is_unlocked(s, rank))
        return 0;
    /* It may have left between the two looks, which is not death. */
    state = atomic_load(&presence->state);
    return state == SEGMENT_JOINED || state == SEGMENT_READY || state == SEGMENT_FAILED;
}
