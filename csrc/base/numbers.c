#define _GNU_SOURCE /* uselocale */
#include "base/numbers.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t plain;

static void make_plain(void) {
    plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0); /* 0: no memory, the thread's own stays */
}

locale_t numbers_begin(void) {
    pthread_once(&once, make_plain);
    return uselocale(plain);
}

void numbers_end(locale_t before) {
    uselocale(before);
}

int numbers_print(char *text, size_t size, const char *format, ...) {
    va_list arguments;
    const locale_t before = numbers_begin();
    va_start(arguments, format);
    const int length = vsnprintf(text, size, format, arguments);
    va_end(arguments);
    numbers_end(before);
    return length;
}
