/* The calling thread's last error. */
#ifndef WAGMA_BASE_ERROR_H
#define WAGMA_BASE_ERROR_H

/* Record the calling thread's error for wagma_last_error(); return `status`. */
int error_set(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
