/* A rank that dies, where MPI tells (Open MPI with `mpiexec --with-ft ulfm`): the others hear of
 * it, and go on with each other. */
#include "everywhere.h"

#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
#include <signal.h>
#include <string.h>
#include <unistd.h>

static wagma_transport *t;

enum { VICTIM = 1, LONG = 1 << 20 };

/* The others may be ahead: their messages come while the death has not been heard of. */
static int received, next[8];

/* Open MPI may go on complaining of a death about a receive that has its message; here about every
 * second one. */
static int complains, complaints;

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    int there = 0;
    if (complains)
        PMPI_Request_get_status(*request, &there, status);
    complaints += there;
    return there ? MPIX_ERR_PROC_FAILED_PENDING : PMPI_Test(request, flag, status);
}

static void receive_control(void) {
    int number, from;
    const void *message;
    size_t bytes;
    complains = received % 2;
    int got = t->calls->poll_control(t, &from, &message, &bytes);
    complains = 0;
    CHECK(got >= 0, "%s", wagma_mpi_last_error());
    if (got == 0)
        return;
    memcpy(&number, message, sizeof number);
    CHECK(from != VICTIM && bytes == sizeof number && number == next[from], "%d of rank %d", number,
          from);
    next[from]++;
    received++;
}

static unsigned char into[LONG], from_here[LONG];

static void test_death_is_told(void) {
    int32_t dead[8];
    int n = 0;
    transport_completion ended;
    /* Under way to and from the one that dies: none of them ends. */
    t->calls->receive(t, VICTIM, 1, into, LONG, (transport_completion){.cookie = 1});
    t->calls->send(t, VICTIM, 2, from_here, LONG, (transport_completion){.cookie = 2});
    while ((n = t->calls->dead(t, dead)) == 0) {
        receive_control();
        int got = t->calls->poll_data(t, &ended, 1);
        CHECK(got == 0, "%d, cookie %d: %s", got, (int)ended.cookie, wagma_mpi_last_error());
    }
    CHECK(n == 1 && dead[0] == VICTIM, "%d dead, rank %d", n, dead[0]);
}

/* Control messages in order and data among the others; what goes to the dead one disappears. */
static void test_others_go_on(void) {
    int ended = 0;
    transport_completion completions[8];
    static int32_t data[8], mine;
    mine = 100 + world_rank;
    for (int to = 0; to < world_size; to++) {
        for (int i = 0; i < 300 && to != world_rank; i++)
            CHECK(t->calls->send_control(t, to, &i, sizeof i) == WAGMA_OK, "%s",
                  wagma_mpi_last_error());
        if (to == world_rank || to == VICTIM)
            continue;
        CHECK(t->calls->receive(t, to, 7, &data[to], 4, (transport_completion){.cookie = 7}) ==
                  WAGMA_OK,
              "%s", wagma_mpi_last_error());
        CHECK(t->calls->send(t, to, 7, &mine, 4, (transport_completion){.cookie = 7}) == WAGMA_OK,
              "%s", wagma_mpi_last_error());
    }
    while (received < 300 * (world_size - 2) || ended < 2 * (world_size - 2)) {
        if (check_in_test)
            return;
        receive_control();
        int got = t->calls->poll_data(t, completions, 8);
        CHECK(got >= 0, "%s", wagma_mpi_last_error());
        for (int i = 0; i < got; i++)
            CHECK(completions[i].cookie == 7, "a message of the dead rank ended");
        ended += got;
    }
    for (int r = 0; r < world_size; r++)
        CHECK(r == world_rank || r == VICTIM || data[r] == 100 + r, "rank %d: %d", r, data[r]);
    CHECK(complaints > 0 || world_size == 2, "no receive complained");
    int flushed;
    while ((flushed = t->calls->flushed(t)) == 0)
        ;
    CHECK(flushed == 1, "%s", wagma_mpi_last_error());
}

static void test_sum_is_refused(void) {
    int64_t mine[2] = {1, 2}, totals[2];
    int done;
    while ((done = t->calls->sum(t, mine, totals)) == 0)
        ;
    CHECK(done == WAGMA_EPEER && strstr(wagma_mpi_last_error(), "died"), "%d: %s", done,
          wagma_mpi_last_error());
}

int main(int argc, char **argv) {
    world_begin(&argc, &argv);
    t = world_transport();
    world_meet();
    if (world_rank == VICTIM)
        raise(SIGKILL);
    RUN(test_death_is_told);
    RUN(test_others_go_on);
    RUN(test_sum_is_refused);
    t->calls->close(t, 0);
    fflush(stdout);
    int failed = check_summary();
    fflush(stdout);
    _exit(failed); /* MPI_Finalize would wait for the dead */
}
