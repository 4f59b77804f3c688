/* Making and ending a transport over MPI, and the sum. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "mpi/transport.h"

#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cores_mask.h"
#include "include/wagma_mpi.h"

/* ---- errors ---------------------------------------------------------------------------------- */

static _Thread_local char last_error[1024];

/* Until the engine puts its own into transport.error. */
int mpi_keep_error(int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return status;
}

const char *wagma_mpi_last_error(void) {
    return last_error;
}

int transport_failed(struct mpi_transport *m, int code, const char *what) {
    char words[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (MPI_Error_string(code, words, &length) != MPI_SUCCESS)
        snprintf(words, sizeof words, "error code %d", code);
    for (char *line = words; (line = strchr(line, '\n')); *line = ' ') /* MPICH gives many lines */
        ;
    return m->base.error(WAGMA_ESYS, "%s: %s failed: %s", m->name, what, words);
}

int transport_no_memory(struct mpi_transport *m, size_t bytes) {
    return m->base.error(WAGMA_ENOMEM, "%s: no memory for %zu bytes of messages and requests",
                         m->name, bytes);
}

/* ---- the sum at the end ---------------------------------------------------------------------- */

/* Collectives do not meet the messages of their communicator. */
static int sum(wagma_transport *t, const int64_t mine[2], int64_t totals[2]) {
    struct mpi_transport *m = mpi_transport_of(t);
    int done = 0, code = MPI_SUCCESS;
    if (m->sum == MPI_REQUEST_NULL) {
        memcpy(m->sum_mine, mine, sizeof m->sum_mine);
        code =
            MPI_Iallreduce(m->sum_mine, m->sum_totals, 2, MPI_INT64_T, MPI_SUM, m->data, &m->sum);
    }
    if (code == MPI_SUCCESS)
        code = MPI_Test(&m->sum, &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS && failures_noted(m, code))
        return t->error(WAGMA_EPEER, "%s: a rank died: what all ranks have sent cannot be counted",
                        m->name);
    if (code != MPI_SUCCESS)
        return transport_failed(m, code, "MPI_Iallreduce");
    if (done)
        memcpy(totals, m->sum_totals, sizeof m->sum_totals);
    return done;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Transports with a sum in progress, which is read and written when the others join it: kept to the
 * end of the process, and reachable. */
static struct mpi_transport *_Atomic unfinished;

static void forget(struct mpi_transport *m) {
    requests_free(&m->messages);
    if (m->sum == MPI_REQUEST_NULL) {
        free(m);
        return;
    }
    m->next = atomic_load(&unfinished);
    while (!atomic_compare_exchange_weak(&unfinished, &m->next, m))
        ;
}

/* Alone, a rank cannot free communicators, as that is collective, nor wait for a message that is on
 * its way into a buffer: both are left to the end of the process. */
static void end(wagma_transport *t, int together) {
    struct mpi_transport *m = mpi_transport_of(t);
    int finalized;
    finalize_remove(m);
    MPI_Finalized(&finalized);
    if (finalized) {
        control_free(&m->control);
        forget(m);
        return;
    }
    requests_abandon(&m->messages);
    control_close(&m->control, together);
    if (together) {
        MPI_Comm_free(&m->data);
        MPI_Comm_free(&m->control.comm);
    }
    forget(m);
}

static const transport_calls calls = {
    .send_control = control_send,
    .poll_control = control_poll,
    .send = data_send,
    .receive = data_receive,
    .poll_data = data_poll,
    .flushed = control_flushed,
    .dead = failures_dead,
    .sum = sum,
    .close = end,
};

/* "MPICH Version: 5.0.2", "Open MPI v5.0.11": the version's beginning, spaces as one. */
static void name_library(char *name, size_t size) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "MPI";
    int length;
    size_t n = 0;
    MPI_Get_library_version(version, &length);
    for (const char *c = version; *c && !strchr(",\r\n", *c) && n + 1 < size; c++) {
        int space = *c == ' ' || *c == '\t';
        if (!space || (n > 0 && name[n - 1] != ' '))
            name[n++] = space ? ' ' : *c;
    }
    name[n] = '\0';
}

/* Some MPIs attach it to every communicator, all to MPI_COMM_WORLD, and 32767 is the least. */
static int count_tags(MPI_Comm comm) {
    int *bound, found = 0;
    MPI_Comm_get_attr(comm, MPI_TAG_UB, &bound, &found);
    if (!found)
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
    int last = found ? *bound : 32767;
    return last < INT_MAX ? last + 1 : INT_MAX;
}

int mpi_check_running(void) {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized && !finalized)
        return WAGMA_OK;
    return mpi_keep_error(WAGMA_EINVAL, "MPI is not running: it was not initialised, or has been "
                                        "finalised");
}

/* Both communicators, or none. */
static int duplicate(struct mpi_transport *m, MPI_Comm comm) {
    int code = MPI_Comm_dup(comm, &m->control.comm);
    if (code != MPI_SUCCESS)
        return transport_failed(m, code, "MPI_Comm_dup");
    code = MPI_Comm_dup(comm, &m->data);
    if (code != MPI_SUCCESS) {
        MPI_Comm_free(&m->control.comm);
        return transport_failed(m, code, "MPI_Comm_dup");
    }
    MPI_Comm_set_errhandler(m->control.comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(m->data, MPI_ERRORS_RETURN);
    return WAGMA_OK;
}

static const cores_mask *mask_of(const void *masks, int rank) {
    return (const cores_mask *)masks + rank;
}

/* Whether the ranks of this node have to share cores; 1 also where that cannot be found out. */
static int is_crowded(MPI_Comm comm) {
    cores_mask mine = {{0}}, *masks;
    MPI_Comm node;
    cpu_set_t set;
    int ranks, crowded = 1;
    _Static_assert(sizeof set <= sizeof mine, "a mask fits");
    if (sched_getaffinity(0, sizeof set, &set) == 0) /* otherwise there are too many cores */
        memcpy(&mine, &set, sizeof set);
    if (MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) != MPI_SUCCESS)
        return 1;
    MPI_Comm_size(node, &ranks);
    masks = calloc((size_t)ranks, sizeof *masks); /* alone at most one rank has no memory: abort */
    if (!masks)
        MPI_Abort(comm, 1);
    if (MPI_Allgather(&mine, sizeof mine, MPI_BYTE, masks, sizeof mine, MPI_BYTE, node) ==
        MPI_SUCCESS)
        crowded = !cores_masks_suffice(mask_of, masks, ranks, sysconf(_SC_NPROCESSORS_ONLN));
    MPI_Comm_free(&node);
    free(masks);
    return crowded;
}

int wagma_mpi_transport(MPI_Comm comm, wagma_transport **transport) {
    int level, status;
    if ((status = mpi_check_running()) != WAGMA_OK)
        return status;
    struct mpi_transport *m = calloc(1, sizeof *m);
    if (!m) /* the others hang in MPI_Comm_dup: with so little memory the job is lost anyway */
        return mpi_keep_error(WAGMA_ENOMEM, "no memory for %zu bytes of a transport", sizeof *m);
    name_library(m->name, sizeof m->name);
    m->base.abi = TRANSPORT_ABI;
    m->base.calls = &calls;
    m->base.name = m->name;
    m->base.error = mpi_keep_error;
    m->sum = MPI_REQUEST_NULL;
    if ((status = duplicate(m, comm)) != WAGMA_OK) {
        forget(m);
        return status;
    }
    MPI_Comm_rank(m->control.comm, &m->base.rank);
    MPI_Comm_size(m->control.comm, &m->base.size);
    MPI_Query_thread(&level);
    m->base.threads = level == MPI_THREAD_MULTIPLE;
    m->base.tags = count_tags(m->data);
    m->base.crowded = is_crowded(m->data);
    m->survives = failures_told();
    status = finalize_add(m);
    if (status == WAGMA_OK)
        status = control_open(m);
    if (status != WAGMA_OK) {
        end(&m->base, 0);
        return status;
    }
    *transport = &m->base;
    return WAGMA_OK;
}
