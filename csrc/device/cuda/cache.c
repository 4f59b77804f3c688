/* See cache.h. */
#define _GNU_SOURCE /* mkostemp() */
#include "device/cuda/cache.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Write the folder's path, or that of what is in it. 1: done, 0: there is no such folder. */
static int find(char *path, size_t size, const char *in_it) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = 0;
    if (cache && cache[0] == '/')
        n = snprintf(path, size, "%s/wagma%s", cache, in_it);
    else if (home && home[0] == '/')
        n = snprintf(path, size, "%s/.cache/wagma%s", home, in_it);
    return n > 0 && (size_t)n < size;
}

char *cache_read(const char *name) {
    char path[PATH_MAX], in_it[NAME_MAX];
    struct stat file;
    char *code = NULL;
    snprintf(in_it, sizeof in_it, "/%s", name);
    const int fd = find(path, sizeof path, in_it) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return NULL;
    if (fstat(fd, &file) == 0 && file.st_size > 0 && file.st_uid == geteuid())
        code = calloc(1, (size_t)file.st_size + 1);
    if (code && read(fd, code, (size_t)file.st_size) != file.st_size) {
        free(code);
        code = NULL;
    }
    close(fd);
    return code;
}

static void make_folders(char *path) {
    for (char *p = path + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            (void)mkdir(path, 0700);
            *p = '/';
        }
}

/* Ranks that start together may write the same file: each writes its own, and renames it. */
void cache_write(const char *name, const char *code, size_t size) {
    char path[PATH_MAX], made[PATH_MAX], in_it[NAME_MAX];
    snprintf(in_it, sizeof in_it, "/%s", name);
    if (!find(path, sizeof path, in_it) || !find(made, sizeof made, "/kernels.XXXXXX"))
        return;
    make_folders(path);
    const int fd = mkostemp(made, O_CLOEXEC);
    if (fd < 0)
        return;
    const int written = write(fd, code, size) == (ssize_t)size;
    if (close(fd) != 0 || !written || rename(made, path) != 0)
        (void)unlink(made);
}
