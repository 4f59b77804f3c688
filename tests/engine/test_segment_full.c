/* A /dev/shm that cannot be used is refused with what to do. In a full one creating, joining and
 * growing fail with WAGMA_ENOSPC and keep nothing. */
#define _GNU_SOURCE /* unshare */
#include "check.h"
#include "support.h"

#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* Somebody else takes all of /dev/shm but so many MiB. 0: done. */
static int fill_but(int mebibytes) {
    struct statvfs fs;
    const int fd = open("/dev/shm/other", O_RDWR | O_CREAT, 0600);
    const int failed =
        fstatvfs(fd, &fs) != 0 ||
        posix_fallocate(fd, 0, (off_t)(fs.f_bavail * fs.f_frsize) - mebibytes * (1 << 20)) != 0;
    close(fd);
    return failed;
}

/* MiB of shared memory that an array of so many takes. */
static int taken(int array) {
    return (int)(segment_array_memory((uint64_t)array << 20) >> 20);
}

/* In a process with a private /dev/shm of so many MiB, for arrays of so many. Returns an exit
 * status: 0 as expected. */
static int run_full(int mebibytes, int array) {
    wagma_options o = options_of(8, 8, 1, array << 17);
    wagma_segment *s;
    int contributions, status = wagma_segment_create(&o, "/wagma-full", &s);
    if (mebibytes < 48 * taken(array)) { /* 8 ranks of 1 array, 3 more contributions, 2 rounds */
        if (status != WAGMA_ENOSPC || s || access("/dev/shm/wagma-full", F_OK) == 0 ||
            !strstr(wagma_last_error(), "/dev/shm"))
            return 1;
        return 0;
    }
    if (status != WAGMA_OK || segment_join(s, 0) != WAGMA_OK)
        return 2;
    if (fill_but(5 * taken(array)) != 0)
        return 3;
    uint64_t before = file_bytes(s);
    if (segment_join(s, 1) != WAGMA_ENOSPC ||
        atomic_load(&segment_presence_of(s, 1)->state) != SEGMENT_NOSPACE ||
        file_bytes(s) != before)
        return 4;
    contributions = segment_joined_contributions(s);
    if (segment_commit_contribution(s, 0, s->buffers - 1, &contributions) != -1)
        return 5;
    if (contributions != segment_joined_contributions(s) || file_bytes(s) != before)
        return 6; /* a failed commit kept something */
    wagma_segment_close(s);
    return access("/dev/shm/wagma-full", F_OK) == 0 ? 7 : 0;
}

/* Private arrays need memory when the first of them is passed, and more when one is posted. */
static int run_full_private(int mebibytes, int array) {
    (void)mebibytes, (void)array;
    static double x[1 << 20]; /* 8 MiB */
    wagma_options o = options_of(2, 2, 0, sizeof x / sizeof *x);
    for (int posted = 0; posted <= 1; posted++) {
        cast c;
        if (!cast_open(&c, &o, NULL, NULL) || fill_but(posted ? 3 : 1) != 0)
            return 1;
        const uint64_t before = file_bytes(c.segment);
        const int status =
            posted ? wagma_post(c.handle[0], x, 1, 0) : wagma_allreduce(c.handle[0], x, 1, NULL);
        if (status != WAGMA_ENOSPC || !strstr(wagma_last_error(), "/dev/shm"))
            return 2 + posted;
        if (file_bytes(c.segment) != before)
            return 4; /* a failed commit kept something */
        cast_drop(&c);
        unlink("/dev/shm/other");
    }
    return 0;
}

static int in_small_shm(int (*run)(int, int), int mebibytes, int array) {
    int status;
    pid_t pid = fork_child();
    if (pid == 0) {
        char size[32];
        snprintf(size, sizeof size, "size=%dm", mebibytes);
        if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("tmpfs", "/dev/shm", "tmpfs", 0, size) != 0)
            _exit(77);
        _exit(run(mebibytes, array));
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

/* ---- what else there may be with /dev/shm ---------------------------------------------------- */

/* In a process with a mount namespace of its own: makes /dev/shm unusable. 0: done. */
static int be_missing(void) {
    return mount("tmpfs", "/dev", "tmpfs", 0, NULL);
}

static int be_read_only(void) {
    return mount("tmpfs", "/dev/shm", "tmpfs", MS_RDONLY, NULL);
}

static int be_without_inodes(void) {
    return mount("tmpfs", "/dev/shm", "tmpfs", 0, "nr_inodes=1");
}

static int be_of_another_user(void) {
    return mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=755") || setuid(65534);
}

static int limit_files(void) {
    const struct rlimit limit = {4096, 4096};
    return setrlimit(RLIMIT_FSIZE, &limit);
}

static int limit_descriptors(void) {
    const struct rlimit limit = {3, 3};
    return setrlimit(RLIMIT_NOFILE, &limit);
}

static void test_unusable(void) {
    static const struct {
        int (*make)(void);
        const char *what, *remedy;
    } cases[] = {
        {be_missing, "No such file", "mount -t tmpfs tmpfs /dev/shm"},
        {be_read_only, "Read-only", "mount -o remount,rw /dev/shm"},
        {be_without_inodes, "no inode left", "nr_inodes"},
        {be_of_another_user, "Permission denied", "chmod 1777 /dev/shm"},
        {limit_files, "up to 4096", "ulimit -f"},
        {limit_descriptors, "Too many open files", "ulimit -n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const pid_t pid = fork_child();
        if (pid == 0) {
            wagma_options o = options_of(2, 2, 1, 100);
            wagma_segment *s;
            if (unshare(CLONE_NEWNS) != 0 ||
                mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || cases[i].make() != 0)
                _exit(77);
            const char *names[] = {NULL, "/wagma-unusable"};
            for (int k = 0; k < 2; k++)
                REFUSED(wagma_segment_create(&o, names[k], &s), WAGMA_ESYS, cases[i].what,
                        cases[i].remedy);
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "status %x", (unsigned)status);
        if (WEXITSTATUS(status) == 77)
            printf("  not allowed here: %s\n", cases[i].remedy);
    }
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- a full one ------------------------------------------------------------------------------ */

static void check_full(int array) {
    for (int mebibytes = 1; mebibytes <= 51; mebibytes += 25) {
        int result = in_small_shm(run_full, mebibytes * taken(array), array);
        if (result == 77) {
            printf("  not allowed to mount a small /dev/shm: nothing was tested\n");
            return;
        }
        CHECK(result == 0, "%d MiB: step %d (above 100: signal)", mebibytes * taken(array), result);
    }
}

static void test_full(void) {
    check_full(1);
}

static void test_full_of_huge_pages(void) {
    check_full(4);
    check_full(5); /* huge pages that are not full */
}

static void test_full_private(void) {
    const int result = in_small_shm(run_full_private, 51, 8);
    if (result == 77)
        printf("  not allowed to mount a small /dev/shm: nothing was tested\n");
    else
        CHECK(result == 0, "step %d (above 100: signal)", result);
}

int main(void) {
    RUN(test_unusable);
    RUN(test_full);
    RUN(test_full_of_huge_pages);
    RUN(test_full_private);
    return check_summary();
}
