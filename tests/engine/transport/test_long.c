/* Data of more bytes than an int counts, from rank 0 to rank 1, in memory that is mostly one piece
 * mapped again and again: what tells the places apart is a page of its own at the start of each
 * window, and the last bytes. */
#define _GNU_SOURCE /* memfd_create */
#include "everywhere.h"

#include <mpi.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static wagma_transport *t;

enum { PAGE = 4096, WINDOWS = 33 };
static const size_t window = (size_t)1 << 26, rest = 12345;

/* WINDOWS windows and the rest. */
static unsigned char *map_long(void) {
    size_t bytes = WINDOWS * window + window;
    int file = memfd_create("window", 0);
    unsigned char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file < 0 || memory == MAP_FAILED || ftruncate(file, (off_t)window) != 0)
        return NULL;
    for (size_t i = 0; i < WINDOWS; i++)
        if (mmap(memory + i * window + PAGE, window - PAGE, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
            return NULL;
    close(file);
    return memory;
}

static void test_beyond_int(void) {
    size_t bytes = WINDOWS * window + rest, wrong = 0;
    unsigned char *memory = map_long();
    transport_completion ended;
    int got;
    CHECK(bytes > (size_t)INT32_MAX, "%zu", bytes);
    CHECK(memory, "no memory");
    if (world_rank > 1)
        return;
    for (size_t i = 0; world_rank == 0 && i < WINDOWS; i++)
        memset(memory + i * window, (int)(i + 1), PAGE);
    for (size_t i = 0; world_rank == 0 && i < rest; i++)
        memory[WINDOWS * window + i] = world_byte(0, 1, 0, i);
    transport_completion completion = {.cookie = bytes};
    int status = world_rank == 0 ? t->calls->send(t, 1, 0, memory, bytes, completion)
                                 : t->calls->receive(t, 0, 0, memory, bytes, completion);
    CHECK(status == WAGMA_OK, "%s", wagma_mpi_last_error());
    while ((got = t->calls->poll_data(t, &ended, 1)) == 0)
        sched_yield();
    CHECK(got == 1 && ended.cookie == bytes, "%s", wagma_mpi_last_error());
    for (size_t i = 0; i < WINDOWS; i++)
        wrong += memory[i * window] != i + 1 || memory[i * window + PAGE - 1] != i + 1;
    for (size_t i = 0; i < rest; i++)
        wrong += memory[WINDOWS * window + i] != world_byte(0, 1, 0, i);
    CHECK(wrong == 0, "%zu places are wrong", wrong);
    CHECK(memory[WINDOWS * window + rest] == 0, "wrote behind the end");
}

int main(int argc, char **argv) {
    world_begin(&argc, &argv);
    t = world_transport();
    RUN_EVERYWHERE(test_beyond_int);
    t->calls->close(t, 1);
    MPI_Finalize();
    return world_rank == 0 ? check_summary() : 0;
}
