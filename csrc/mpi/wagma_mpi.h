/* wagma over MPI: makes the transport on which wagma_create_over() makes a handle. A library of its
 * own, libwagma_mpi, as it depends on the MPI that it was compiled with; libwagma does not. */
#ifndef WAGMA_MPI_H
#define WAGMA_MPI_H

#include <mpi.h>

#include <wagma.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Collective over `comm`, an intracommunicator, which is duplicated and not used afterwards. Only
 * the calling thread may use the handle, and there is no progress thread, unless MPI was
 * initialised with MPI_THREAD_MULTIPLE. The transport is the caller's until it is passed to
 * wagma_create_over(). WAGMA_OK or a negative status, of which wagma_mpi_last_error() has the
 * message. */
WAGMA_API int wagma_mpi_transport(MPI_Comm comm, wagma_transport **transport);

/* Message of the calling thread's last failed wagma_mpi_transport(). */
WAGMA_API const char *wagma_mpi_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
