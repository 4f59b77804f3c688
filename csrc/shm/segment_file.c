/* The file of a segment in /dev/shm: making it, with a name or without, and finding it. */
#define _GNU_SOURCE /* O_TMPFILE */
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process.h"

int segment_file(const wagma_segment *s) {
    struct stat file;
    if (s->fd >= 0 && fstat(s->fd, &file) == 0 && (uint64_t)file.st_dev == s->device &&
        (uint64_t)file.st_ino == s->inode)
        return s->fd;
    errno = EBADF;
    return -1;
}

/* Prefix of every address and of no name. */
#define ADDRESS "/proc/"

static int is_address(const char *name) {
    return strncmp(name, ADDRESS, strlen(ADDRESS)) == 0;
}

static int check_name(const char *name) {
    size_t length = strlen(name);
    if (name[0] == '/' && length > 1 && length < sizeof((wagma_segment *)0)->name &&
        !strchr(name + 1, '/'))
        return WAGMA_OK;
    return error_set(WAGMA_EINVAL,
                     "name is \"%.300s\": it must be a slash and 1 to %zu other characters", name,
                     sizeof((wagma_segment *)0)->name - 2);
}

/* Takes what shm_open() has returned: -1 if that was an error. 0 or -1. */
static int take_file(wagma_segment *s, int fd) {
    struct stat file;
    if (fd < 0)
        return -1;
    if (fstat(fd, &file) != 0) {
        close(fd);
        return -1;
    }
    s->fd = fd;
    s->device = (uint64_t)file.st_dev;
    s->inode = (uint64_t)file.st_ino;
    return 0;
}

/* Return the remedy when a file cannot be made in /dev/shm. */
static const char *remedy(int error) {
    switch (error) {
    case ENOENT:
    case ENOTDIR: return ": there is no /dev/shm, so mount one (mount -t tmpfs tmpfs /dev/shm)";
    case EROFS: return ": mount /dev/shm writable (mount -o remount,rw /dev/shm)";
    case EACCES:
    case EPERM: return ": let this user make files in /dev/shm (chmod 1777 /dev/shm)";
    case ENOSPC: /* of memory there is none in an empty file */
        return ": /dev/shm has no inode left, so remove old files there, or raise their number "
               "(mount -o remount,nr_inodes=... /dev/shm)";
    case EMFILE:
    case ENFILE: return ": raise the number of open files (ulimit -n)";
    case EEXIST: return ": choose another name, or remove that file of /dev/shm";
    default: return "";
    }
}

/* Without a name; where the file system cannot do that, with any free one, removed at once. */
static int open_anonymous(wagma_segment *s) {
    static _Atomic unsigned serial;
    if (take_file(s, open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) == 0)
        return WAGMA_OK;
    for (int attempt = 0; attempt < 1000; attempt++) {
        char name[64];
        snprintf(name, sizeof name, "/wagma-%ld-%u", (long)getpid(), atomic_fetch_add(&serial, 1));
        if (take_file(s, shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600)) == 0) {
            shm_unlink(name);
            return WAGMA_OK;
        }
        if (errno != EEXIST)
            break;
    }
    return error_set(WAGMA_ESYS, "cannot make a segment in /dev/shm: %s%s", strerror(errno),
                     remedy(errno));
}

int segment_file_make(wagma_segment *s, const char *name) {
    int status;
    if (!name)
        return open_anonymous(s);
    if ((status = check_name(name)))
        return status;
    if (take_file(s, shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600)) != 0)
        return error_set(WAGMA_ESYS, "cannot make the segment %s in /dev/shm: %s%s", name,
                         strerror(errno), remedy(errno));
    memcpy(s->name, name, strlen(name) + 1);
    s->owner = process_serial();
    return WAGMA_OK;
}

int wagma_segment_address(const wagma_segment *segment, char *text, size_t size) {
    if (!segment || !text)
        return error_set(WAGMA_EINVAL, "%s is NULL", segment ? "text" : "segment");
    const int length = segment->name[0]
                           ? snprintf(text, size, "%s", segment->name)
                           : snprintf(text, size, ADDRESS "%d/fd/%d:%" PRIx64 ":%" PRIx64,
                                      (int)getpid(), segment->fd, segment->device, segment->inode);
    return (size_t)length < size
               ? WAGMA_OK
               : error_set(WAGMA_EINVAL, "size=%zu: must be %d at least", size, length + 1);
}

/* The file at an address, and nothing else: its process may be another one's in another PID
 * namespace. 0 or -1. */
static int find_file(wagma_segment *s, const char *address) {
    int pid, fd;
    uint64_t device, inode;
    char path[64];
    struct stat file;
    if (sscanf(address, ADDRESS "%d/fd/%d:%" SCNx64 ":%" SCNx64, &pid, &fd, &device, &inode) != 4) {
        errno = EINVAL;
        return -1;
    }
    snprintf(path, sizeof path, ADDRESS "%d/fd/%d", pid, fd);
    if (stat(path, &file) != 0)
        return -1;
    if ((uint64_t)file.st_dev != device || (uint64_t)file.st_ino != inode) {
        errno = ENOENT;
        return -1;
    }
    return take_file(s, open(path, O_RDWR | O_CLOEXEC));
}

int segment_file_find(wagma_segment *s, const char *name) {
    const int named = !name || !is_address(name);
    const int status = !name
                           ? error_set(WAGMA_EINVAL, "name is NULL: pass the name that the segment "
                                                     "was made with")
                       : named ? check_name(name)
                               : WAGMA_OK;
    if (status)
        return status;
    if ((named ? take_file(s, shm_open(name, O_RDWR, 0)) : find_file(s, name)) != 0)
        return error_set(WAGMA_ESYS, "cannot open the segment %s: %s%s", name, strerror(errno),
                         errno == ENOENT ? ": the ranks have to share one /dev/shm (containers of "
                                           "one machine: the same --ipc)"
                                         : "");
    if (named)
        memcpy(s->name, name, strlen(name) + 1);
    return WAGMA_OK;
}
