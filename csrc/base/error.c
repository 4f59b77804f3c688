/* The calling thread's last error. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/numbers.h"
#include "include/wagma.h"

static _Thread_local char last_error[1024];

int error_set(int status, const char *format, ...) {
    va_list arguments;
    const locale_t before = numbers_begin();
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    numbers_end(before);
    return status;
}

const char *wagma_last_error(void) {
    return last_error;
}
