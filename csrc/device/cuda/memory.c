/* Memory, and how ranks share it: by file descriptors of the driver's allocations, which live as
 * long as anybody has them mapped; where the GPU or the machine has none, by CUDA IPC, where memory
 * ends with the process that made it.
 *
 * A process has each allocation once: ranks that are its threads get the same address, which the
 * last of them gives up. See device.h. */
#define _GNU_SOURCE /* F_DUPFD_CLOEXEC */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/error.h"
#include "device/cuda/descriptors.h"
#include "device/cuda/mapping.h"

#define SHARING_VARIABLE "WAGMA_CUDA_SHARING"

/* What device_record.words has. */
enum { OWNER, ID, BYTES, BY_IPC, OFFSET, UUID, PROCESS = UUID + 2, HANDLE };
_Static_assert(sizeof(CUuuid) == 2 * sizeof(uint64_t), "UUID");
_Static_assert(HANDLE * sizeof(uint64_t) + sizeof(CUipcMemHandle) <= sizeof(device_record),
               "HANDLE");

/* `lock` guards the rest; `opening` is taken before it, by one rank at a time that opens memory: it
 * asks other processes, whose questions this one has to answer meanwhile. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_memory *memories;
static uint64_t memories_made;
static int devices;
static uint64_t owner; /* number of this process; 0: not drawn */
static pid_t owner_process;

/* ---- how memory is shared -------------------------------------------------------------------- */

static int draw_owner(void) {
    if (owner != 0 && owner_process == getpid())
        return WAGMA_OK;
    if (getrandom(&owner, sizeof owner, 0) != (ssize_t)sizeof owner)
        return error_set(WAGMA_ESYS, "getrandom(): %s", strerror(errno));
    owner |= 1;
    owner_process = getpid();
    return WAGMA_OK;
}

static int attribute(struct cuda_device *d, CUdevice_attribute a) {
    int value = 0;
    return driver.cuDeviceGetAttribute(&value, a, d->handle) == CUDA_SUCCESS && value;
}

/* Make some memory as all will be made. WAGMA_OK, or an error whose words say what is missing. */
static int try_descriptors(struct cuda_device *d) {
    struct cuda_memory trial = {0};
    if (!attribute(d, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
        !attribute(d, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
        return error_set(WAGMA_ESYS, "the GPU or its driver has no such memory");
    int status = mapping_find_unit(d);
    d->by_descriptor = 1;
    if (status == WAGMA_OK)
        status = mapping_make(d, 1, &trial);
    d->by_descriptor = 0;
    if (status != WAGMA_OK)
        return status;
    mapping_end(&trial);
    const int error = descriptors_serve(owner);
    return error == 0 ? WAGMA_OK
                      : error_set(WAGMA_ESYS, "no socket for descriptors: %s", strerror(error));
}

static int choose(struct cuda_device *d) {
    static int warned;
    const char *asked = getenv(SHARING_VARIABLE);
    if (asked && strcmp(asked, "ipc") == 0)
        return WAGMA_OK;
    if (asked && asked[0] && strcmp(asked, "vmm") != 0)
        return error_set(WAGMA_EINVAL, SHARING_VARIABLE "=%s: must be vmm or ipc", asked);
    const int status = try_descriptors(d);
    d->by_descriptor = status == WAGMA_OK;
    if (d->by_descriptor || status == WAGMA_ENOMEM || (asked && asked[0]))
        return status;
    if (!warned)
        fprintf(
            stderr,
            "wagma: memory of GPU %d is shared by CUDA IPC, not by file descriptors (%s): a rank "
            "that ends takes its memory along; " SHARING_VARIABLE "=ipc hides this line\n",
            d->gpu, wagma_last_error());
    warned = 1;
    return WAGMA_OK;
}

int cuda_sharing_begin(struct cuda_device *d) {
    pthread_mutex_lock(&opening);
    pthread_mutex_lock(&lock);
    int status = draw_owner();
    if (status == WAGMA_OK)
        status = choose(d);
    devices += status == WAGMA_OK;
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&opening);
    return status;
}

void cuda_sharing_end(void) {
    pthread_mutex_lock(&opening);
    pthread_mutex_lock(&lock);
    const int last = --devices == 0;
    pthread_mutex_unlock(&lock); /* the thread that answers takes it */
    if (last)
        descriptors_end();
    pthread_mutex_unlock(&opening);
}

/* ---- the list of memory ---------------------------------------------------------------------- */

static struct cuda_memory *find(uint64_t of, uint64_t id) {
    struct cuda_memory *m = memories;
    while (m && (m->owner != of || m->id != id))
        m = m->next;
    return m;
}

static struct cuda_memory *find_address(const void *at) {
    struct cuda_memory *m = memories;
    while (m && m->at != at)
        m = m->next;
    return m;
}

static void add(struct cuda_memory *m) {
    m->uses = 1;
    m->next = memories;
    memories = m;
}

int cuda_descriptor(uint64_t id) {
    pthread_mutex_lock(&lock);
    const struct cuda_memory *m = find(owner, id);
    const int copy = m && m->descriptor >= 0 ? fcntl(m->descriptor, F_DUPFD_CLOEXEC, 0) : -1;
    pthread_mutex_unlock(&lock);
    return copy;
}

/* End one use of the memory, and the memory with the last. */
static void give_up(struct cuda_device *d, const void *at) {
    struct cuda_memory **p = &memories;
    pthread_mutex_lock(&lock);
    while (*p && (*p)->at != at)
        p = &(*p)->next;
    struct cuda_memory *m = *p;
    if (m && --m->uses == 0)
        *p = m->next;
    else
        m = NULL;
    pthread_mutex_unlock(&lock);
    if (!m)
        return;
    const int entered = cuda_enter(d);
    mapping_end(m);
    cuda_leave_if(entered);
    free(m);
}

/* ---- this process's -------------------------------------------------------------------------- */

static struct cuda_memory *new_memory(void) {
    struct cuda_memory *m = calloc(1, sizeof *m);
    if (!m)
        (void)error_set(WAGMA_ENOMEM, "no memory of the host");
    return m;
}

int cuda_alloc(wagma_device *device, size_t bytes, void **memory) {
    struct cuda_device *d = cuda_of(device);
    struct cuda_memory *m = new_memory();
    if (!m)
        return WAGMA_ENOMEM;
    int status = cuda_enter(d);
    if (status == WAGMA_OK)
        status = cuda_leave(mapping_make(d, bytes, m));
    if (status != WAGMA_OK) {
        free(m);
        return status;
    }
    m->gpu = d->gpu;
    pthread_mutex_lock(&lock);
    m->owner = owner;
    m->id = ++memories_made;
    add(m);
    pthread_mutex_unlock(&lock);
    *memory = m->at;
    return WAGMA_OK;
}

void cuda_free(wagma_device *device, void *memory) {
    give_up(cuda_of(device), memory);
}

static int export_ipc(struct cuda_device *d, const struct cuda_memory *m, device_record *record) {
    CUdeviceptr base = 0;
    CUipcMemHandle handle;
    size_t size;
    int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    status = cuda_check(d, driver.cuIpcGetMemHandle(&handle, mapping_pointer(m->at)),
                        "cuIpcGetMemHandle()");
    if (status == WAGMA_OK)
        status = cuda_check(d, driver.cuMemGetAddressRange_v2(&base, &size, mapping_pointer(m->at)),
                            "cuMemGetAddressRange()");
    record->words[OFFSET] = (uint64_t)(uintptr_t)m->at - base;
    memcpy(&record->words[HANDLE], &handle, sizeof handle);
    return cuda_leave(status);
}

int cuda_export(wagma_device *device, void *memory, device_record *record) {
    struct cuda_device *d = cuda_of(device);
    pthread_mutex_lock(&lock);
    const struct cuda_memory *m = find_address(memory);
    pthread_mutex_unlock(&lock);
    if (!m)
        return error_set(WAGMA_EINVAL, "GPU %d: %p is no memory of alloc()", d->gpu, memory);
    *record = (device_record){{[OWNER] = m->owner,
                               [ID] = m->id,
                               [BYTES] = m->bytes,
                               [BY_IPC] = (uint64_t)m->by_ipc,
                               [PROCESS] = (uint64_t)getpid()}};
    memcpy(&record->words[UUID], &d->uuid, sizeof d->uuid);
    return m->by_ipc ? export_ipc(d, m, record) : WAGMA_OK;
}

/* ---- that of other ranks --------------------------------------------------------------------- */

/* Ranks that see one GPU each reach the others' without seeing them: then opening says whether. */
static int check_reach(struct cuda_device *d, int gpu) {
    int can = 0;
    if (gpu < 0 || gpu == d->gpu)
        return WAGMA_OK;
    const int status =
        cuda_check(d, driver.cuDeviceCanAccessPeer(&can, d->gpu, gpu), "cuDeviceCanAccessPeer()");
    if (status != WAGMA_OK || can)
        return status;
    return error_set(WAGMA_ESYS,
                     "GPU %d (%s) cannot access the memory of GPU %d: use GPUs that NVLink or "
                     "one PCIe switch connects (nvidia-smi topo -p2p r; instances of MIG never "
                     "reach each other), or one GPU for all ranks, or set memory to "
                     "WAGMA_MEMORY_STAGED (Python: memory='staged')",
                     d->gpu, d->device.name, gpu);
}

static int import_descriptor(struct cuda_device *d, const device_record *record,
                             struct cuda_memory *m) {
    const int found = descriptors_ask(m->owner, m->id);
    if (found < 0)
        return error_set(WAGMA_ESYS, "process %lld %s: %s", (long long)record->words[PROCESS],
                         found == -ENOENT
                             ? "does not have the memory any more, or has ended (ranks of one node "
                               "need one network namespace and one user)"
                             : "did not hand over its memory",
                         strerror(-found));
    int status = cuda_enter(d);
    if (status == WAGMA_OK)
        status = cuda_leave(mapping_import(d, found, m));
    close(found);
    return status;
}

static int import_ipc(struct cuda_device *d, const device_record *record, struct cuda_memory *m) {
    CUipcMemHandle handle;
    int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    memcpy(&handle, &record->words[HANDLE], sizeof handle);
    status = cuda_check(
        d, driver.cuIpcOpenMemHandle_v2(&m->opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        "cuIpcOpenMemHandle()");
    if (status == WAGMA_OK)
        m->at = mapping_address(m->opened + record->words[OFFSET]);
    return cuda_leave(status);
}

/* The driver's words do not say whose GPU it is. */
static int not_seen(int status) {
    char said[256];
    snprintf(said, sizeof said, "%s", wagma_last_error());
    return error_set(status,
                     "%s; this process does not see the GPU of that memory (CUDA_VISIBLE_DEVICES "
                     "is %s), and instances of MIG never reach each other: set memory to "
                     "WAGMA_MEMORY_STAGED (Python: memory='staged')",
                     said, cuda_visible());
}

static int import(struct cuda_device *d, const device_record *record, void **memory) {
    struct cuda_memory *m = new_memory();
    CUuuid uuid;
    if (!m)
        return WAGMA_ENOMEM;
    memcpy(&uuid, &record->words[UUID], sizeof uuid);
    m->owner = record->words[OWNER];
    m->id = record->words[ID];
    m->bytes = record->words[BYTES];
    m->by_ipc = (int)record->words[BY_IPC];
    m->of_other = 1;
    m->gpu = cuda_find_gpu(&uuid);
    int status = check_reach(d, m->gpu);
    if (status == WAGMA_OK)
        status = m->by_ipc ? import_ipc(d, record, m) : import_descriptor(d, record, m);
    if (status != WAGMA_OK) {
        status = m->gpu < 0 ? not_seen(status) : status;
        free(m);
        return status;
    }
    pthread_mutex_lock(&lock);
    add(m);
    pthread_mutex_unlock(&lock);
    *memory = m->at;
    return WAGMA_OK;
}

/* Another rank of this process has it: the address is the same. */
static int share(struct cuda_device *d, struct cuda_memory *m, void **memory) {
    int status = check_reach(d, m->gpu);
    if (status == WAGMA_OK && m->gpu != d->gpu) {
        status = cuda_enter(d);
        if (status == WAGMA_OK)
            status = cuda_leave(mapping_allow(d, m));
    }
    if (status == WAGMA_OK) {
        m->uses++;
        *memory = m->at;
    }
    return status;
}

static int open_other(struct cuda_device *d, const device_record *record, void **memory) {
    int status = WAGMA_OK;
    pthread_mutex_lock(&lock);
    struct cuda_memory *m = find(record->words[OWNER], record->words[ID]);
    const int own = record->words[OWNER] == owner;
    if (m)
        status = share(d, m, memory);
    pthread_mutex_unlock(&lock);
    if (m)
        return status;
    if (own)
        return error_set(WAGMA_ESYS, "GPU %d: the memory has been freed", d->gpu);
    return import(d, record, memory);
}

int cuda_open(wagma_device *device, const device_record *record, void **memory) {
    pthread_mutex_lock(&opening);
    const int status = open_other(cuda_of(device), record, memory);
    pthread_mutex_unlock(&opening);
    return status;
}

int cuda_pin(wagma_device *device, void *memory, size_t bytes) {
    struct cuda_device *d = cuda_of(device);
    const int status = cuda_enter(d);
    if (status != WAGMA_OK)
        return status;
    return cuda_leave(
        cuda_check(d, driver.cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE),
                   "cuMemHostRegister()"));
}

void cuda_unpin(wagma_device *device, void *memory) {
    const int entered = cuda_enter(cuda_of(device));
    (void)driver.cuMemHostUnregister(memory);
    cuda_leave_if(entered);
}

void cuda_close(wagma_device *device, void *memory) {
    give_up(cuda_of(device), memory);
}
