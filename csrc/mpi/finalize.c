/* Transports that are open when MPI ends. MPI_Finalize begins with freeing MPI_COMM_SELF, while
 * everything of MPI still works (MPI 4.1, 11.4.1): an attribute of that communicator tells.
 *
 * A program that does so is wrong all the same: MPI must not be in use by another thread when
 * MPI_Finalize is called, and the handle's may be. MPICH 5.0 then sometimes aborts: it stops using
 * its mutexes before it calls this, so one that a thread inside MPI holds is never released, and
 * cannot be destroyed. This is a net, and no substitute for close().
 */
#include "mpi/transport.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mpi_transport *opened;
static int key = MPI_KEYVAL_INVALID;

static struct mpi_transport *take_one(void) {
    pthread_mutex_lock(&lock);
    struct mpi_transport *m = opened;
    if (m)
        opened = m->next;
    pthread_mutex_unlock(&lock);
    return m;
}

static int tell_owners(MPI_Comm comm, int of, void *value, void *state) {
    struct mpi_transport *m;
    (void)comm, (void)of, (void)value, (void)state;
    while ((m = take_one()))
        if (m->base.ending)
            m->base.ending(m->base.owner);
    return MPI_SUCCESS;
}

/* `lock` is held. */
static int add_key(void) {
    int code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, tell_owners, &key, NULL);
    return code == MPI_SUCCESS ? MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL) : code;
}

int finalize_add(struct mpi_transport *m) {
    pthread_mutex_lock(&lock);
    int code = key == MPI_KEYVAL_INVALID ? add_key() : MPI_SUCCESS;
    m->next = opened;
    opened = m;
    pthread_mutex_unlock(&lock);
    return code == MPI_SUCCESS ? WAGMA_OK
                               : transport_failed(m, code, "an attribute of MPI_COMM_SELF");
}

void finalize_remove(struct mpi_transport *m) {
    pthread_mutex_lock(&lock);
    for (struct mpi_transport **at = &opened; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            break;
        }
    pthread_mutex_unlock(&lock);
}
