/* The memory of the simulated machine: files without a name, which processes find by /proc. */
#define _GNU_SOURCE /* memfd_create */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device_sim_state.h"

enum { POISON = 0xfb }; /* a number that no test contributes */

static void add(struct device *d, struct memory *memory, void *at, size_t bytes,
                enum mapping_kind kind) {
    struct mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping)
        abort();
    *mapping = (struct mapping){d->machine->mappings, memory, d->number, kind, at, bytes};
    memory->mappings++;
    d->machine->mappings = mapping;
}

static void *map(struct device *d, struct memory *memory, size_t bytes, enum mapping_kind kind) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    if (at == MAP_FAILED)
        abort();
    add(d, memory, at, bytes, kind);
    return at;
}

static struct memory *new_memory(struct machine *m, int fd) {
    struct memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        abort();
    *memory = (struct memory){.id = ++m->memories, .fd = fd};
    return memory;
}

int machine_alloc(wagma_device *device, size_t bytes, void **memory) {
    struct device *d = machine_lock(device);
    const int status = machine_injected(d, MACHINE_ALLOC);
    if (status != WAGMA_OK)
        return machine_unlock(d, status);
    const int fd = memfd_create("device", 0);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        abort();
    *memory = map(d, new_memory(d->machine, fd), bytes, MAPPING_OWN);
    memset(*memory, POISON, bytes);
    return machine_unlock(d, WAGMA_OK);
}

int machine_pin(wagma_device *device, void *memory, size_t bytes) {
    struct device *d = machine_lock(device);
    const int status = machine_injected(d, MACHINE_PIN);
    if (((uintptr_t)memory | bytes) % (size_t)sysconf(_SC_PAGESIZE) != 0)
        machine_blame(d->machine, "device %d pins what is no whole pages", d->number);
    if (status == WAGMA_OK)
        add(d, new_memory(d->machine, -1), memory, bytes, MAPPING_PINNED);
    return machine_unlock(d, status);
}

static void drop(struct mapping *mapping) {
    if (mapping->kind != MAPPING_PINNED)
        munmap(mapping->at, mapping->bytes);
    mapping->memory->freed |= mapping->kind == MAPPING_OWN;
    if (--mapping->memory->mappings == 0) {
        if (mapping->memory->fd >= 0)
            close(mapping->memory->fd);
        free(mapping->memory);
    }
    free(mapping);
}

static void unmap(wagma_device *device, void *at, enum mapping_kind kind) {
    static const char *const ends[] = {"frees", "closes", "unpins"};
    struct device *d = machine_lock(device);
    struct machine *m = d->machine;
    struct mapping **p = &m->mappings;
    while (*p && ((*p)->at != at || (*p)->device != d->number || (*p)->kind != kind))
        p = &(*p)->next;
    struct mapping *mapping = *p;
    if (!mapping) {
        machine_blame(m, "device %d %s what it has not", d->number, ends[kind]);
    } else {
        if (machine_uses(m, mapping))
            machine_blame(m, "device %d %s memory that its work uses", d->number, ends[kind]);
        *p = mapping->next;
        drop(mapping);
    }
    machine_unlock(d, WAGMA_OK);
}

void machine_free_memory(wagma_device *device, void *memory) {
    unmap(device, memory, MAPPING_OWN);
}

void machine_unpin(wagma_device *device, void *memory) {
    unmap(device, memory, MAPPING_PINNED);
}

void machine_close(wagma_device *device, void *memory) {
    unmap(device, memory, MAPPING_OPENED);
}

int machine_export(wagma_device *device, void *memory, device_record *record) {
    struct device *d = machine_lock(device);
    const struct mapping *mapping = machine_mapping(d->machine, d->number, memory, 1);
    const int status = machine_injected(d, MACHINE_EXPORT);
    if (status == WAGMA_OK)
        *record = (device_record){{(uint64_t)getpid(), (uint64_t)mapping->memory->fd,
                                   mapping->bytes, mapping->memory->id}};
    return machine_unlock(d, status);
}

/* The memory of the record, of this process or of another one; NULL: it is gone. */
static struct memory *find(struct machine *m, const device_record *record) {
    char path[64];
    if (record->words[0] == (uint64_t)getpid()) {
        for (struct mapping *p = m->mappings; p; p = p->next)
            if (p->memory->id == record->words[3] && !p->memory->freed)
                return p->memory;
        return NULL;
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)record->words[0], (int)record->words[1]);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd < 0 ? NULL : new_memory(m, fd);
}

int machine_open(wagma_device *device, const device_record *record, void **memory) {
    struct device *d = machine_lock(device);
    const int status = machine_injected(d, MACHINE_OPEN);
    if (status != WAGMA_OK)
        return machine_unlock(d, status);
    struct memory *found = find(d->machine, record);
    if (!found)
        return machine_unlock(
            d, device->error(WAGMA_ESYS, "device %d: the memory is gone", d->number));
    *memory = map(d, found, record->words[2], MAPPING_OPENED);
    return machine_unlock(d, WAGMA_OK);
}
