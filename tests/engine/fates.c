/* See fates.h. */
#include "fates.h"

#include <stdio.h>
#include <string.h>

void note(fates *f, int rank, int status) {
    f->took[rank] = seconds() - atomic_load(&f->when);
    snprintf(f->message[rank], sizeof f->message[0], "%s", status < 0 ? wagma_last_error() : "");
    atomic_store(&f->status[rank], status);
}

void expect_fate(const fates *f, int rank, int status, const char *word) {
    EXPECT(f->status[rank] == status, "rank %d: status %d, not %d: %s", rank, f->status[rank],
           status, f->message[rank]);
    EXPECT(strstr(f->message[rank], word), "rank %d: \"%s\" is not in: %s", rank, word,
           f->message[rank]);
}
