/* See segment_files.h. */
#include "segment_files.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *unique_name(void) {
    static char name[64];
    static int serial;
    snprintf(name, sizeof name, "/wagma-test-%d-%d", (int)getpid(), serial++);
    return name;
}

int files_left(void) {
    char mine[32];
    int n = 0;
    DIR *directory = opendir("/dev/shm");
    snprintf(mine, sizeof mine, "-%d-", (int)getpid());
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        n += strncmp(entry->d_name, "wagma", 5) == 0 && strstr(entry->d_name, mine) != NULL;
    if (directory)
        closedir(directory);
    return n;
}
