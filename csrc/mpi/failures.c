/* Ranks that died, as far as MPI tells: Open MPI with fault tolerance (ULFM) and
 * `mpiexec --with-ft ulfm`. MPICH has functions of these names that do not work. */
#include "mpi/transport.h"

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#ifdef OMPI_HAVE_MPIX_COMM_GET_FAILED

#include <stdlib.h>

int failures_told(void) {
    int *told, found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPIX_FT, &told, &found);
    return found && *told;
}

enum failure failures_noted(struct mpi_transport *m, int code) {
    int class;
    MPI_Error_class(code, &class);
    if (class != MPIX_ERR_PROC_FAILED && class != MPIX_ERR_PROC_FAILED_PENDING)
        return FAILURE_OTHER;
    /* Until a death is acknowledged, receives from any rank complain about it; afterwards those
     * that complained go on. MPIX_Comm_ack_failed is newer, but has no effect the second time:
     * where Open MPI's other thread disables those receives just after the first (the death is in
     * its list before), they would complain for ever. This one enables them every time. */
    MPIX_Comm_failure_ack(m->control.comm);
    return class == MPIX_ERR_PROC_FAILED ? FAILURE_LOST : FAILURE_PENDING;
}

int failures_dead(wagma_transport *t, int32_t *ranks) {
    struct mpi_transport *m = mpi_transport_of(t);
    MPI_Group failed, all;
    int n = 0;
    if (MPIX_Comm_get_failed(m->control.comm, &failed) != MPI_SUCCESS)
        return 0;
    MPI_Group_size(failed, &n);
    int *from = n > 0 ? malloc(2 * (size_t)n * sizeof *from) : NULL;
    if (!from)
        n = 0;
    if (n > 0) {
        for (int i = 0; i < n; i++)
            from[i] = i;
        MPI_Comm_group(m->control.comm, &all);
        MPI_Group_translate_ranks(failed, n, from, all, from + n);
        MPI_Group_free(&all);
        for (int i = 0; i < n; i++)
            ranks[i] = from[n + i];
    }
    free(from);
    if (failed != MPI_GROUP_EMPTY)
        MPI_Group_free(&failed);
    return n;
}

#else

int failures_told(void) {
    return 0;
}

enum failure failures_noted(struct mpi_transport *m, int code) {
    (void)m, (void)code;
    return FAILURE_OTHER;
}

int failures_dead(wagma_transport *t, int32_t *ranks) {
    (void)t, (void)ranks;
    return 0;
}

#endif
