/* See trace/timeline.h. */
#include "trace/timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mix.h"

/* ---- those of the process -------------------------------------------------------------------- */

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct trace_timeline *open_timelines;
static struct timespec recording_since; /* by the clock of files */

static void write_or_complain(struct trace_timeline *t) {
    if (timeline_write(t) != WAGMA_OK)
        fprintf(stderr, "wagma: rank %d: %s\n", t->rank, wagma_last_error());
}

/* Write the timelines of handles that were not freed. */
static void write_at_exit(void) {
    if (open_timelines && open_timelines->pid != getpid())
        return; /* a forked process: maybe the lock was held when it was made */
    pthread_mutex_lock(&open_lock);
    for (struct trace_timeline *t = open_timelines; t; t = t->next)
        write_or_complain(t);
    pthread_mutex_unlock(&open_lock);
}

static void begin_process(void) {
    clock_gettime(CLOCK_REALTIME_COARSE, &recording_since);
    atexit(write_at_exit);
}

static void enlist(struct trace_timeline *t) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin_process);
    pthread_mutex_lock(&open_lock);
    t->next = open_timelines;
    if (t->next)
        t->next->previous = t;
    open_timelines = t;
    t->since = (uint64_t)recording_since.tv_sec * 1000000000u + (uint64_t)recording_since.tv_nsec;
    pthread_mutex_unlock(&open_lock);
}

static void strike(struct trace_timeline *t) {
    pthread_mutex_lock(&open_lock);
    if (t->next)
        t->next->previous = t->previous;
    *(t->previous ? &t->previous->next : &open_timelines) = t->next;
    pthread_mutex_unlock(&open_lock);
}

/* ---- creation -------------------------------------------------------------------------------- */

static int read_limit(uint64_t *limit) {
    const char *text = getenv("WAGMA_TRACE_LIMIT");
    char *end;
    *limit = TIMELINE_LIMIT;
    if (!text || !*text)
        return WAGMA_OK;
    errno = 0;
    *limit = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || *limit == 0)
        return error_set(WAGMA_EINVAL,
                         "WAGMA_TRACE_LIMIT=%s: must be the number of events to keep per handle, "
                         "1 or more",
                         text);
    return WAGMA_OK;
}

/* Makes `folder` and those above it. */
static int make_folder(const char *folder) {
    char path[TIMELINE_FOLDER];
    if (strlen(folder) >= sizeof path)
        return error_set(WAGMA_EINVAL, "WAGMA_TRACE has %zu bytes, at most %zu are allowed: %s",
                         strlen(folder), sizeof path - 1, folder);
    strcpy(path, folder);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(path, 0777); /* the last one's error tells */
        *slash = '/';
    }
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return error_set(WAGMA_EINVAL,
                         "WAGMA_TRACE=%s: the folder cannot be made: %s; name one that can, or "
                         "unset it",
                         folder, strerror(errno));
    if (access(path, W_OK | X_OK) != 0)
        return error_set(WAGMA_EINVAL,
                         "WAGMA_TRACE=%s: no files can be made there: %s; name another folder, or "
                         "unset it",
                         folder, strerror(errno));
    return WAGMA_OK;
}

/* CLOCK_REALTIME minus CLOCK_MONOTONIC. */
static int64_t realtime_ns(void) {
    struct timespec real;
    const uint64_t before = clock_now();
    clock_gettime(CLOCK_REALTIME, &real);
    const uint64_t after = clock_now();
    return (int64_t)real.tv_sec * 1000000000 + real.tv_nsec -
           (int64_t)(before + (after - before) / 2);
}

/* The first line of a small file, "" where there is none. */
static void read_line(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "re");
    text[0] = 0;
    if (!file)
        return;
    if (!fgets(text, (int)size, file))
        text[0] = 0;
    fclose(file);
    text[strcspn(text, "\n")] = 0;
}

/* Which CLOCK_MONOTONIC it is: that of a boot, in a time namespace. */
static void find_clock(struct trace_timeline *t) {
    read_line("/proc/sys/kernel/random/boot_id", t->boot, sizeof t->boot);
    if (readlink("/proc/self/ns/time", t->space, sizeof t->space - 1) < 0)
        t->space[0] = 0;
    t->realtime_ns = realtime_ns();
}

/* Return the number of the collective whose ranks share a file, unique since this boot. */
static uint64_t collective_of(const struct trace_timeline *t, const struct trace_origin *origin) {
    uint64_t number = mix(origin->device) + origin->inode;
    if (origin->inode == 0)
        return 0;
    for (const char *c = t->boot; *c; c++)
        number = mix(number + (unsigned char)*c);
    return number;
}

int timeline_create(const struct trace_origin *origin, struct trace_timeline **timeline) {
    const char *folder = getenv("WAGMA_TRACE");
    uint64_t limit;
    *timeline = NULL;
    if (!folder || !*folder)
        return WAGMA_OK;
    int status = read_limit(&limit);
    if (status == WAGMA_OK)
        status = make_folder(folder);
    if (status != WAGMA_OK)
        return status;
    struct trace_timeline *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(WAGMA_ENOMEM, "no memory for a timeline (WAGMA_TRACE)");
    pthread_mutex_init(&t->lock, NULL);
    t->limit = limit;
    t->written = UINT64_MAX; /* a file without events tells that the rank was there */
    t->pid = getpid();
    t->rank = origin->rank;
    t->shared = origin->shared;
    t->options = *origin->options;
    t->group = origin->group;
    t->groups = origin->groups;
    snprintf(t->transport, sizeof t->transport, "%s", origin->transport);
    strcpy(t->folder, folder);
    find_clock(t);
    t->collective = collective_of(t, origin);
    enlist(t);
    *timeline = t;
    return WAGMA_OK;
}

void timeline_label(struct trace_timeline *t, const wagma_trace_label *label) {
    pthread_mutex_lock(&t->lock);
    if (label->name)
        snprintf(t->name, sizeof t->name, "%s", label->name);
    if (label->collective)
        t->collective = label->collective;
    t->clock_compared = label->clock_compared;
    t->clock_offset_ns = label->clock_offset_ns;
    t->clock_error_ns = label->clock_error_ns;
    pthread_mutex_unlock(&t->lock);
}

void timeline_name_messages(struct trace_timeline *t, trace_message_name *name) {
    pthread_mutex_lock(&t->lock);
    t->message_name = name;
    pthread_mutex_unlock(&t->lock);
}

void timeline_free(struct trace_timeline *t) {
    if (!t)
        return;
    strike(t);
    write_or_complain(t);
    for (struct timeline_block *block = t->first, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Return the place of the next event; NULL: the limit is reached, or there is no memory. */
static struct trace_event *place(struct trace_timeline *t) {
    const uint64_t at = t->kept % TIMELINE_BLOCK;
    if (t->kept >= t->limit)
        return NULL;
    if (at == 0) {
        struct timeline_block *block = malloc(sizeof *block);
        if (!block)
            return NULL;
        block->next = NULL;
        *(t->last ? &t->last->next : &t->first) = block;
        t->last = block;
    }
    return &t->last->events[at];
}

static void copy(_Atomic uint64_t *to, const _Atomic uint64_t *from) {
    /* relaxed: under the lock; and written by this thread */
    atomic_store_explicit(to, atomic_load_explicit(from, memory_order_relaxed),
                          memory_order_relaxed);
}

void timeline_keep(struct trace_timeline *t, const struct trace_event *event) {
    pthread_mutex_lock(&t->lock);
    struct trace_event *kept = place(t);
    if (kept) {
        copy(&kept->began, &event->began);
        copy(&kept->duration, &event->duration);
        copy(&kept->what, &event->what);
        copy(&kept->how, &event->how);
        t->kept++;
    } else {
        t->dropped++;
    }
    pthread_mutex_unlock(&t->lock);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* The name without what does not belong into a file's. */
static void plain_name(const struct trace_timeline *t, char *name) {
    snprintf(name, TIMELINE_NAME, "%s", *t->name ? t->name : "handle");
    for (char *c = name; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
              (*c == '-') || (*c == '_') || (*c == '.' && c != name)))
            *c = '_';
}

/* Return 1 if the file was written since this process began to record, by it or by one that runs at
 * the same time. */
static int is_recent(const char *path) {
    const struct timespec since = recording_since;
    struct stat file;
    return lstat(path, &file) == 0 &&
           (file.st_mtim.tv_sec > since.tv_sec ||
            (file.st_mtim.tv_sec == since.tv_sec && file.st_mtim.tv_nsec >= since.tv_nsec));
}

/* NAME.rank-3.json, NAME-2.rank-3.json, ...: the first that is not that of another handle. A file
 * of an earlier run is replaced. */
static int choose_path(struct trace_timeline *t) {
    char name[TIMELINE_NAME], number[16] = "";
    plain_name(t, name);
    for (int i = 1; i < INT_MAX; i++) {
        if (i > 1)
            snprintf(number, sizeof number, "-%d", i);
        snprintf(t->path, sizeof t->path, "%s/%s%s.rank-%d.json", t->folder, name, number, t->rank);
        const int fd = open(t->path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        if (fd >= 0)
            return close(fd);
        if (errno != EEXIST)
            return -1;
        if (!is_recent(t->path))
            return utimensat(AT_FDCWD, t->path, NULL, AT_SYMLINK_NOFOLLOW); /* now it is */
    }
    return -1;
}

static int fail(const char *path) {
    return error_set(WAGMA_ESYS, "the timeline %s cannot be written: %s", path, strerror(errno));
}

/* A new file that is to become `path`, in a folder where others may have planted links: nobody
 * knows its name before. NULL: errno says why. */
static FILE *open_part(const char *path, char *part, size_t size) {
    uint64_t drawn;
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn)
        return NULL;
    snprintf(part, size, "%s.%016llx.part", path, (unsigned long long)drawn);
    const int fd = open(part, O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0)
        return NULL;
    FILE *file = fdopen(fd, "w");
    if (!file) {
        (void)unlink(part);
        close(fd);
    }
    return file;
}

static int write_file(struct trace_timeline *t) {
    char path[PATH_MAX + 32];
    if (!*t->path && choose_path(t) != 0) {
        const int status = fail(t->path);
        *t->path = 0;
        return status;
    }
    FILE *file = open_part(t->path, path, sizeof path);
    if (!file)
        return fail(t->path);
    int status = timeline_print(t, file);
    const int error = errno;
    if (fclose(file) == 0 && status == 0 && rename(path, t->path) == 0)
        return WAGMA_OK;
    errno = status != 0 ? error : errno;
    status = fail(t->path);
    (void)unlink(path);
    return status;
}

int timeline_write(struct trace_timeline *t) {
    int status = WAGMA_OK;
    if (t->pid != getpid())
        return status;
    pthread_mutex_lock(&t->lock);
    const uint64_t events = t->kept + t->dropped;
    if (events != t->written) {
        t->written = events;
        status = write_file(t);
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}
