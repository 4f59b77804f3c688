/* wagma for the ranks of an MPI communicator. wagma_create_auto() makes a handle over them, through
 * shared memory or messages; wagma_mpi_transport() makes the transport for wagma_create_over().
 * They are in a library of their own, libwagma_mpi, because it depends on the MPI that it was
 * compiled with; libwagma does not. */
#ifndef WAGMA_MPI_H
#define WAGMA_MPI_H

#include <mpi.h>

#include "wagma.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Make a handle over the ranks of `comm`, an intracommunicator: through shared memory if all of
 * them are on one node, and by messages otherwise. Collective. `options->size` is 0 or the size of
 * `comm`; all ranks pass the same options. `initial`, `weight` and `hooks` are those of
 * wagma_create(), and the caller owns the handle. If a rank cannot make it, no rank gets one.
 * WAGMA_OK or a negative status, whose message wagma_mpi_last_error() returns. Close the handle
 * before MPI_Finalize(): over messages wagma_close() is collective. */
WAGMA_API int wagma_create_auto(MPI_Comm comm, const wagma_options *options, const void *initial,
                                double weight, const wagma_hooks *hooks, wagma_handle **handle);

/* Make a transport over `comm`, an intracommunicator, which is duplicated and not used afterwards.
 * Collective. Unless MPI was initialised with MPI_THREAD_MULTIPLE, only the calling thread may use
 * the handle, and there is no progress thread. The caller owns the transport until it is passed to
 * wagma_create_over(). WAGMA_OK or a negative status, whose message wagma_mpi_last_error() returns.
 */
WAGMA_API int wagma_mpi_transport(MPI_Comm comm, wagma_transport **transport);

/* Return the message of the calling thread's last failed call of this library. */
WAGMA_API const char *wagma_mpi_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
