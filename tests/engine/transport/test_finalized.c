/* Transports and the end of MPI. An owner is told before the end, while MPI still works. A
 * transport that outlives MPI all the same can be closed, which touches nothing of MPI. One that
 * was given up before, alone and in the middle of a conversation, keeps nobody in MPI_Finalize. */
#include "everywhere.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "mpi/transport.h"

static wagma_transport *t, *owned[3];
static int ends, works;

static void test_given_up(void) {
    static unsigned char memory[1 << 20], into[1 << 20];
    int peer = (world_rank + 1) % world_size;
    wagma_transport *given_up = world_transport();
    given_up->calls->send_control(given_up, peer, "abc", 4);
    given_up->calls->send(given_up, peer, 1, memory, sizeof memory, (transport_completion){0});
    given_up->calls->receive(given_up, peer, 2, into, sizeof into, (transport_completion){0});
    given_up->calls->close(given_up, 0);
}

/* The others join a sum whose transport one rank has closed meanwhile: what they add up is right,
 * and on that rank nothing is written but memory that was kept for it. */
static void test_given_up_in_a_sum(void) {
    enum { BLOCKS = 16, FILLING = 0xEE };
    int64_t mine[2] = {world_rank + 1, 10 * (world_rank + 1)}, totals[2] = {0};
    int64_t all = world_size * (world_size + 1) / 2;
    unsigned char *blocks[BLOCKS];
    size_t bytes = sizeof(struct mpi_transport), written = 0;
    wagma_transport *given_up = world_transport();
    int done = world_rank == 0 ? given_up->calls->sum(given_up, mine, totals) : 0;
    CHECK(done == 0, "the others have not come: %d", done);
    if (world_rank == 0)
        given_up->calls->close(given_up, 0);
    for (int i = 0; i < BLOCKS; i++) { /* takes what was freed */
        blocks[i] = malloc(bytes);
        memset(blocks[i], FILLING, bytes);
    }
    world_meet();
    while (world_rank > 0 && done == 0)
        done = given_up->calls->sum(given_up, mine, totals);
    world_meet(); /* also goes on with rank 0's sum */
    if (world_rank > 0) {
        CHECK(done == 1 && totals[0] == all && totals[1] == 10 * all, "%d: %s", done,
              wagma_mpi_last_error());
        given_up->calls->close(given_up, 0);
    }
    for (int i = 0; i < BLOCKS; i++) {
        for (size_t k = 0; k < bytes; k++)
            written += blocks[i][k] != FILLING;
        free(blocks[i]);
    }
    CHECK(written == 0, "%zu bytes of memory that was freed were written", written);
}

/* Called by MPI_Finalize. */
static void end(void *owner) {
    wagma_transport *open = *(wagma_transport **)owner;
    int finalized = 1;
    MPI_Finalized(&finalized);
    works = !finalized &&
            open->calls->send_control(open, (world_rank + 1) % world_size, "x", 2) == WAGMA_OK;
    open->calls->close(open, 0);
    ends++;
}

static void test_closed_after_the_end(void) {
    wagma_transport *none;
    CHECK(ends == 2, "%d of 2 owners were told of the end", ends);
    CHECK(works, "MPI did not work any more");
    t->calls->close(t, 1);
    CHECK(wagma_mpi_transport(MPI_COMM_WORLD, &none) == WAGMA_EINVAL, "made without MPI");
    CHECK(strstr(wagma_mpi_last_error(), "not running"), "%s", wagma_mpi_last_error());
}

int main(int argc, char **argv) {
    world_begin(&argc, &argv);
    t = world_transport();
    for (int i = 0; i < 3; i++) {
        owned[i] = world_transport();
        owned[i]->ending = end;
        owned[i]->owner = &owned[i];
    }
    owned[1]->calls->close(owned[1], 1); /* is not told */
    RUN_EVERYWHERE(test_given_up);
    RUN_EVERYWHERE(test_given_up_in_a_sum);
    MPI_Finalize();
    RUN(test_closed_after_the_end);
    return check_summary();
}
