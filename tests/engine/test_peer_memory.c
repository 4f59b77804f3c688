/* Reading the memory of another process. */
#include "check.h"
#include "shm/peer_memory.h"
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 3 * 4096 + 17 };

static uint64_t address(const void *at) {
    return (uint64_t)(uintptr_t)at;
}

static const uint64_t number = 0x5eed;

static struct peer_memory memory_of(pid_t pid) {
    return (struct peer_memory){(uint32_t)pid, number, address(&number)};
}

static void test_reads(void) {
    static unsigned char here[BYTES], there[BYTES];
    int told[2], go[2];
    char byte = 0;
    CHECK(pipe(told) == 0 && pipe(go) == 0, "no pipe");
    const pid_t pid = fork_child();
    const struct peer_memory child = memory_of(pid);
    if (pid == 0) { /* its copy of the array is another one */
        for (int i = 0; i < BYTES; i++)
            there[i] = (unsigned char)(i % 251);
        (void)!write(told[1], &byte, 1);
        (void)!read(go[0], &byte, 1);
        _exit(0);
    }
    CHECK(read(told[0], &byte, 1) == 1, "the child says nothing");
    CHECK(peer_memory_read(&child, here, address(there), BYTES) == 0, "%s", strerror(errno));
    for (int i = 0; i < BYTES; i++)
        CHECK(here[i] == i % 251 && there[i] == 0, "%d at %d", here[i], i);
    CHECK(write(go[1], &byte, 1) == 1 && waitpid(pid, NULL, 0) == pid, "the child stays");
    CHECK(peer_memory_read(&child, here, address(there), 1) == ESRCH, "it is gone");
}

static void test_what_is_not_there(void) {
    const struct peer_memory me = memory_of(getpid());
    unsigned char here[2 * 4096];
    unsigned char *pages =
        mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && munmap(pages + 4096, 4096) == 0, "no memory");
    CHECK(peer_memory_read(&me, here, address(pages), 4096) == 0, "the first page");
    CHECK(peer_memory_read(&me, here, address(pages), 2 * 4096) == EFAULT, "the second one");
    munmap(pages, 4096);
    CHECK(peer_memory_read(&me, here, address(pages), 1) == EFAULT, "none");
}

/* A process ID may by now be that of another process, or be one of another namespace. */
static void test_who_it_is(void) {
    uint64_t here = 0, there = 17;
    struct peer_memory me = memory_of(getpid());
    CHECK(peer_memory_cookie() != peer_memory_cookie(), "twice the same");
    CHECK(peer_memory_read(&me, &here, address(&there), sizeof here) == 0 && here == 17,
          "this one");
    me.cookie++;
    CHECK(peer_memory_read(&me, &here, address(&there), sizeof here) == ESRCH, "another's number");
    me.cookie_at = 8;
    CHECK(peer_memory_read(&me, &here, address(&there), sizeof here) == EFAULT, "nothing is there");
}

int main(void) {
    if (!peers_may_read()) {
        printf("skipped   this system does not let memory be read so\n");
        return check_summary();
    }
    RUN(test_reads);
    RUN(test_what_is_not_there);
    RUN(test_who_it_is);
    return check_summary();
}
