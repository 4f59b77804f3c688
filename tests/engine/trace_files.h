/* For tests of timelines: a folder for WAGMA_TRACE, and what is in its files. */
#ifndef WAGMA_TESTS_TRACE_FILES_H
#define WAGMA_TESTS_TRACE_FILES_H

#include "trace/events.h"

/* Sets WAGMA_TRACE to a new folder, whose path it returns. */
const char *traces_begin(void);
/* Removes it with its files, and WAGMA_TRACE and WAGMA_TRACE_LIMIT from the environment. */
void traces_end(void);

/* The content of a file in that folder; "" where there is none. Valid until the next call. */
const char *traces_read(const char *name);
/* Files in it. */
int traces_count(void);
/* strstr(), for long texts. */
const char *traces_find(const char *text, const char *word);
/* How often `word` is in `text`. */
int traces_words(const char *text, const char *word);

/* Kinds of the events of `t` from number `first` on, "write arrival call"; those of before:
 * trace_recorded(). Valid until the next call. */
const char *trace_kinds(const struct trace *t, uint64_t first);
uint64_t trace_recorded(const struct trace *t);

#endif
