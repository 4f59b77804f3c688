/* See cache.h. */
#define _GNU_SOURCE /* mkostemp() */
#include "device/cuda/cache.h"

#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mix.h"

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

/* A file ends with this number. The driver is given code without a size, and reads past the end of
 * what was cut off, as in a file that a crash of the machine has damaged. */
static uint64_t digest_of(const char *code, size_t size) {
    uint64_t digest = size;
    for (size_t i = 0; i < size; i++)
        digest = mix(digest ^ (unsigned char)code[i]);
    return digest;
}

/* Remove the digest from what was read; NULL: it is another one. */
static char *check(char *code, size_t size) {
    uint64_t digest;
    memcpy(&digest, code + size, sizeof digest);
    code[size] = 0;
    if (digest == digest_of(code, size))
        return code;
    free(code);
    return NULL;
}

char *cache_read(const char *name) {
    char path[PATH_MAX], in_it[NAME_MAX];
    struct stat file;
    char *code = NULL;
    snprintf(in_it, sizeof in_it, "/%s", name);
    const int fd = find(path, sizeof path, in_it) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return NULL;
    if (fstat(fd, &file) == 0 && file.st_size > (off_t)sizeof(uint64_t) && file.st_uid == geteuid())
        code = malloc((size_t)file.st_size);
    if (code && read(fd, code, (size_t)file.st_size) != file.st_size) {
        free(code);
        code = NULL;
    }
    close(fd);
    return code ? check(code, (size_t)file.st_size - sizeof(uint64_t)) : NULL;
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
    const uint64_t digest = digest_of(code, size);
    const int written = write(fd, code, size) == (ssize_t)size &&
                        write(fd, &digest, sizeof digest) == (ssize_t)sizeof digest;
    if (close(fd) != 0 || !written || rename(made, path) != 0)
        (void)unlink(made);
}
