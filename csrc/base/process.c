/* See process.h. */
#include "base/process.h"

#include <pthread.h>
#include <sys/stat.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t forking = PTHREAD_MUTEX_INITIALIZER;
static uint32_t serial = 1; /* changes in a child only, before it has other threads */

static void before_fork(void) {
    pthread_mutex_lock(&forking);
}

static void in_parent(void) {
    pthread_mutex_unlock(&forking);
}

static void in_child(void) {
    serial++;
    pthread_mutex_unlock(&forking);
}

static void watch_forks(void) {
    pthread_atfork(before_fork, in_parent, in_child);
}

uint32_t process_serial(void) {
    pthread_once(&once, watch_forks);
    return serial;
}

void process_hold_fork(void) {
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&forking);
}

void process_fork_again(void) {
    pthread_mutex_unlock(&forking);
}

uint64_t process_namespace(void) {
    struct stat file;
    return stat("/proc/self/ns/pid", &file) == 0 ? (uint64_t)file.st_ino : 0;
}
