/* Who is dead, and who is not. */
#include "check.h"
#include "shm/segment.h"
#include "segment_files.h"
#include "support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A rank in another process: joins, then does as it is told by `end`. */
static pid_t spawn_rank(wagma_segment *s, int rank, const char *end) {
    int ready[2];
    char byte = 0;
    if (pipe(ready) != 0)
        return -1;
    pid_t pid = fork_child();
    if (pid == 0) {
        char joined = segment_join(s, rank) == WAGMA_OK;
        if (strcmp(end, "depart") == 0)
            segment_leave(s, rank, SEGMENT_DEPARTED);
        for (int fd = 3; strcmp(end, "close") == 0 && fd < 256; fd++)
            if (fd != ready[1])
                close(fd);
        if (strcmp(end, "fail") == 0)
            segment_leave(s, rank, SEGMENT_FAILED);
        if (write(ready[1], &joined, 1) != 1 ||
            (strcmp(end, "live") != 0 && strcmp(end, "close") != 0))
            _exit(0);
        for (;;)
            pause();
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1 || byte != 1)
        fprintf(stderr, "  the other process did not join\n");
    close(ready[0]);
    return pid;
}

static void test_death(void) {
    wagma_options o = options_of(5, 5, 1, 100);
    wagma_segment *s;
    CHECK(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(segment_join(s, 0) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(!segment_is_dead(s, 0) && !segment_is_dead(s, 1), "this process; one that never joined");
    pid_t pid = spawn_rank(s, 1, "live");
    CHECK(!segment_is_dead(s, 1), "alive");
    kill(pid, SIGSTOP);
    CHECK(!segment_is_dead(s, 1), "stopped is not dead");
    kill(pid, SIGKILL);
    /* Not reaped: a zombie holds no lock. */
    for (int i = 0; i < 1000 && !segment_is_dead(s, 1); i++)
        usleep(1000);
    CHECK(segment_is_dead(s, 1), "killed");
    waitpid(pid, NULL, 0);
    waitpid(spawn_rank(s, 2, "depart"), NULL, 0);
    CHECK(!segment_is_dead(s, 2), "departed is not dead");
    waitpid(spawn_rank(s, 3, "fail"), NULL, 0);
    CHECK(segment_is_dead(s, 3), "failed");
    waitpid(spawn_rank(s, 4, "exit"), NULL, 0);
    CHECK(segment_is_dead(s, 4), "left without closing");
    segment_leave(s, 0, SEGMENT_FAILED);
    CHECK(segment_is_dead(s, 0), "a failed rank of this process");
    wagma_segment_close(s);
}

/* A child of a rank, like a data loader's, neither holds the rank's lock nor drops it. */
static void test_forked_child(void) {
    wagma_options o = options_of(2, 2, 1, 100);
    wagma_segment *s;
    const char *name = unique_name();
    int from_rank[2];
    CHECK(wagma_segment_create(&o, name, &s) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(pipe(from_rank) == 0, "pipe");
    pid_t rank = fork_child(), loader = -1;
    if (rank == 0) {
        segment_join(s, 1);
        loader = fork_child();
        if (loader == 0) {
            wagma_segment_close(s);
            _exit(0);
        }
        waitpid(loader, NULL, 0);
        loader = fork();
        if (loader == 0) {
            alarm(20); /* it outlives its parent, the rank, and has the file open */
            for (;;)
                pause();
        }
        if (write(from_rank[1], &loader, sizeof loader) > 0)
            for (;;)
                pause();
    }
    CHECK(read(from_rank[0], &loader, sizeof loader) == sizeof loader, "no loader");
    CHECK(!segment_is_dead(s, 1), "its child's close made the rank look dead");
    CHECK(files_left() == 1, "its child's close removed the name");
    kill(rank, SIGKILL);
    waitpid(rank, NULL, 0);
    CHECK(kill(loader, 0) == 0 && segment_is_dead(s, 1), "its child keeps the rank alive");
    kill(loader, SIGKILL);
    wagma_segment_close(s);
}

/* What a program does with descriptors that are not its own is not its death, and does not keep
 * others' deaths from it. */
static void test_closed_descriptors(void) {
    wagma_options o = options_of(3, 3, 1, 100);
    wagma_segment *s;
    CHECK(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(segment_join(s, 0) == WAGMA_OK, "%s", wagma_last_error());
    const pid_t closes = spawn_rank(s, 1, "close"), lives = spawn_rank(s, 2, "live");
    CHECK(!segment_is_dead(s, 1), "it closed its descriptors");
    CHECK(close(dup(s->fd)) == 0 && !segment_is_dead(s, 0), "a copy was closed");
    CHECK(close(s->fd) == 0, "close");
    for (int r = 0; r < 3; r++)
        CHECK(!segment_is_dead(s, r), "rank %d, without a descriptor", r);
    const int other = open("/dev/null", O_RDWR);
    CHECK(other == s->fd && segment_file(s) < 0, "the file of %d instead of %d", other, s->fd);
    int rounds = 2;
    CHECK(segment_commit_round(s, 0, 2, &rounds) == -1, "memory of another file");
    kill(lives, SIGKILL);
    waitpid(lives, NULL, 0);
    CHECK(!segment_is_dead(s, 1) && segment_is_dead(s, 2), "killed");
    kill(closes, SIGKILL);
    waitpid(closes, NULL, 0);
    CHECK(segment_is_dead(s, 1), "killed");
    wagma_segment_close(s);
    CHECK(close(other) == 0, "closed a descriptor of the program");
}

/* A rank that fails to join has failed: the others do not wait for it. */
static void test_byte_taken(void) {
    wagma_options o = options_of(2, 2, 1, 100);
    wagma_segment *s;
    CHECK(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error());
    segment_presence *presence = segment_presence_of(s, 1);
    pid_t pid = spawn_rank(s, 1, "live"); /* its lock stays, the rest is taken back */
    atomic_store(&presence->pid, 0);
    atomic_store(&presence->state, SEGMENT_ABSENT);
    CHECK(segment_join(s, 1) == WAGMA_ESYS, "joined over the lock of another");
    CHECK(strstr(wagma_last_error(), "lock"), "%s", wagma_last_error());
    CHECK(atomic_load(&presence->state) == SEGMENT_FAILED && segment_is_dead(s, 1), "state %u",
          atomic_load(&presence->state));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    wagma_segment_close(s);
}

/* Nobody waits in wagma_create() for a rank that said that it will not come. */
static void test_fail(void) {
    wagma_options o = options_of(2, 2, 1, 100);
    wagma_segment *s;
    wagma_handle *h;
    CHECK(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_segment_fail(NULL, 0) == WAGMA_EINVAL, "no segment");
    CHECK(wagma_segment_fail(s, 2) == WAGMA_EINVAL, "no such rank");
    CHECK(wagma_segment_fail(s, 1) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_segment_fail(s, 1) == WAGMA_OK, "repeated: %s", wagma_last_error());
    alarm(20);
    CHECK(wagma_create(s, 0, NULL, 1, NULL, &h) == WAGMA_EPEER && !h, "waited for it");
    CHECK(strstr(wagma_last_error(), "rank 1 failed"), "%s", wagma_last_error());
    alarm(0);
    wagma_segment_close(s);
}

int main(void) {
    RUN(test_death);
    RUN(test_forked_child);
    RUN(test_closed_descriptors);
    RUN(test_byte_taken);
    RUN(test_fail);
    return check_summary();
}
