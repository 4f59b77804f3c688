/* All events of a handle, kept in memory until they are written (WAGMA_TRACE=dir).
 *
 * trace/timeline.c keeps them, in blocks that are never moved; trace/json.c writes them. A lock
 * guards the two against each other: the process may exit while a thread still records. */
#ifndef WAGMA_TRACE_TIMELINE_H
#define WAGMA_TRACE_TIMELINE_H

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/types.h>

#include "trace/events.h"

enum {
    TIMELINE_BLOCK = 4095,          /* events; a block has 128 KiB with its link */
    TIMELINE_LIMIT = 1000000,       /* events, unless WAGMA_TRACE_LIMIT says otherwise */
    TIMELINE_NAME = 64,             /* bytes of names, with their 0 */
    TIMELINE_FOLDER = PATH_MAX / 2, /* bytes of WAGMA_TRACE, with its 0 */
};

struct timeline_block {
    struct timeline_block *next;
    struct trace_event events[TIMELINE_BLOCK];
};

struct trace_timeline {
    pthread_mutex_t lock;
    struct trace_timeline *next, *previous; /* of the process */
    struct timeline_block *first, *last;
    uint64_t kept, dropped, limit;
    uint64_t written; /* of kept + dropped: how many are in the file, or were to be */
    pid_t pid;        /* of the process that records; a forked one does not write */
    uint64_t since;   /* ns, CLOCK_REALTIME: the process has been recording; names it with pid */
    /* what the file says of all events */
    int rank;
    int shared;          /* with a progress thread */
    int64_t realtime_ns; /* CLOCK_REALTIME minus CLOCK_MONOTONIC, at creation */
    wagma_options options;
    trace_message_name *message_name; /* NULL: messages have no names */
    trace_group *group;               /* NULL: the members of a group are unknown */
    const void *groups;
    char transport[TIMELINE_NAME], name[TIMELINE_NAME];
    uint64_t collective;
    char boot[TIMELINE_NAME], space[TIMELINE_NAME]; /* whose CLOCK_MONOTONIC it is */
    int clock_compared;
    int64_t clock_offset_ns;
    uint64_t clock_error_ns;
    /* where it is */
    char folder[TIMELINE_FOLDER];
    char path[PATH_MAX]; /* "": not chosen yet */
};

/* *timeline is NULL where WAGMA_TRACE is not set. See trace_create(). */
int timeline_create(const struct trace_origin *origin, struct trace_timeline **timeline);
void timeline_label(struct trace_timeline *t, const wagma_trace_label *label);
void timeline_name_messages(struct trace_timeline *t, trace_message_name *name);
void timeline_keep(struct trace_timeline *t, const struct trace_event *event);
/* Writes if there is something new. WAGMA_OK or WAGMA_ESYS. */
int timeline_write(struct trace_timeline *t);
/* Writes, or says on standard error why not. NULL is allowed. */
void timeline_free(struct trace_timeline *t);

/* trace/json.c: the whole file; the caller holds the lock. 0, or -1 with errno. */
int timeline_print(const struct trace_timeline *t, FILE *file);

#endif
