/* See trap.h. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, sigaction */
#include "trap.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support.h"

static struct {
    unsigned char *memory;
    size_t bytes;
    int signum;
} armed;

void *trap_memory(size_t bytes) {
    return shared_memory(bytes);
}

static void sprung(int signum, siginfo_t *info, void *context) {
    (void)context;
    const uintptr_t at = (uintptr_t)info->si_addr, start = (uintptr_t)armed.memory;
    if (!armed.memory || at < start || at >= start + armed.bytes) {
        signal(signum, SIG_DFL); /* a real fault: it repeats */
        return;
    }
    mprotect(armed.memory, armed.bytes, PROT_READ | PROT_WRITE);
    armed.memory = NULL;
    kill(getpid(), armed.signum);
}

void trap_arm(void *memory, size_t bytes, enum trap trap, int signum) {
    struct sigaction action = {.sa_sigaction = sprung, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    armed.memory = memory;
    armed.bytes = bytes;
    armed.signum = signum;
    mprotect(memory, bytes, trap == TRAP_IN_SLICE ? PROT_READ : PROT_NONE);
}
