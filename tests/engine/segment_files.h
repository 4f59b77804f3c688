/* Segments in /dev/shm that a test program makes. */
#ifndef WAGMA_TESTS_SEGMENT_FILES_H
#define WAGMA_TESTS_SEGMENT_FILES_H

/* Return a name that no other segment has; the next call overwrites it. */
const char *unique_name(void);
/* Return the number of files of this library in /dev/shm that this process may have left. */
int files_left(void);

#endif
