/* See descriptors.h. */
#define _GNU_SOURCE /* accept4(), struct ucred, TEMP_FAILURE_RETRY() */
#include "device/cuda/descriptors.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "device/cuda/device.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;
static int listener = -1;
static pid_t serving; /* a forked child has no thread */

static socklen_t address_of(uint64_t owner, struct sockaddr_un *address) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "wagma-gpu-%016llx",
                           (unsigned long long)owner);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static void limit(int fd, int seconds) {
    const struct timeval time = {.tv_sec = seconds};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* A message of one byte, and a descriptor beside it. */
struct letter {
    char byte;
    struct iovec text;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct msghdr message;
};

static void prepare(struct letter *l) {
    memset(l, 0, sizeof *l);
    l->text = (struct iovec){&l->byte, 1};
    l->message.msg_iov = &l->text;
    l->message.msg_iovlen = 1;
    l->message.msg_control = l->control;
    l->message.msg_controllen = sizeof l->control;
}

/* -1: there is no such memory. */
static void send_descriptor(int to, int fd) {
    struct letter l;
    prepare(&l);
    if (fd >= 0) {
        struct cmsghdr *c = CMSG_FIRSTHDR(&l.message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    } else {
        l.message.msg_control = NULL;
        l.message.msg_controllen = 0;
    }
    (void)sendmsg(to, &l.message, MSG_NOSIGNAL);
}

static int is_of_this_user(int fd) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static void answer(int fd) {
    uint64_t id;
    limit(fd, 1);
    if (!is_of_this_user(fd) || recv(fd, &id, sizeof id, MSG_WAITALL) != (ssize_t)sizeof id)
        return;
    const int found = cuda_descriptor(id);
    send_descriptor(fd, found);
    if (found >= 0)
        close(found);
}

static void *serve(void *context) {
    const int fd = (int)(intptr_t)context;
    for (;;) {
        const int caller = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (caller >= 0) {
            answer(caller);
            close(caller);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
            usleep(10000);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return NULL; /* descriptors_end() has shut it down */
        }
    }
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static int start_thread(int fd) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's */
    const int error = pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int start(uint64_t owner) {
    struct sockaddr_un address;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    const socklen_t size = address_of(owner, &address);
    int error =
        bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, 128) != 0 ? errno : 0;
    if (error == 0)
        error = start_thread(fd);
    if (error != 0) {
        close(fd);
        return error;
    }
    listener = fd;
    serving = getpid();
    return 0;
}

int descriptors_serve(uint64_t owner) {
    pthread_mutex_lock(&lock);
    const int error = listener >= 0 && serving == getpid() ? 0 : start(owner);
    pthread_mutex_unlock(&lock);
    return error;
}

void descriptors_end(void) {
    pthread_mutex_lock(&lock);
    if (listener >= 0 && serving == getpid()) {
        shutdown(listener, SHUT_RDWR);
        pthread_join(thread, NULL);
        close(listener);
    }
    listener = -1;
    pthread_mutex_unlock(&lock);
}

/* ---- questions ------------------------------------------------------------------------------- */

static int receive_descriptor(int from) {
    struct letter l;
    int fd;
    prepare(&l);
    const ssize_t n = TEMP_FAILURE_RETRY(recvmsg(from, &l.message, MSG_CMSG_CLOEXEC));
    const struct cmsghdr *c = n == 1 ? CMSG_FIRSTHDR(&l.message) : NULL;
    if (n < 0)
        return errno == EAGAIN ? -ETIMEDOUT : -errno;
    if (!c || c->cmsg_type != SCM_RIGHTS)
        return -ENOENT;
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

int descriptors_ask(uint64_t owner, uint64_t id) {
    struct sockaddr_un address;
    const socklen_t size = address_of(owner, &address);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int found;
    if (fd < 0)
        return -errno;
    limit(fd, ASK_SECONDS);
    if (TEMP_FAILURE_RETRY(connect(fd, (struct sockaddr *)&address, size)) != 0)
        found = errno == ECONNREFUSED ? -ENOENT : errno == EAGAIN ? -ETIMEDOUT : -errno;
    else if (TEMP_FAILURE_RETRY(send(fd, &id, sizeof id, MSG_NOSIGNAL)) != (ssize_t)sizeof id)
        found = -ENOENT;
    else
        found = receive_descriptor(fd);
    close(fd);
    return found;
}
