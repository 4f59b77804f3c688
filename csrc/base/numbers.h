/* Numbers in text: with a point, whatever locale the program has chosen. */
#ifndef WAGMA_BASE_NUMBERS_H
#define WAGMA_BASE_NUMBERS_H

#include <locale.h>
#include <stddef.h>

/* Make this thread print numbers as C does, until numbers_end(). */
locale_t numbers_begin(void);
void numbers_end(locale_t before);

/* snprintf(), with such numbers. */
int numbers_print(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
