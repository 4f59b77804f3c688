/* See fates.h. */
#include "fates.h"

#include <stdio.h>
#include <string.h>

void note(fates *f, int rank, int status) {
    f->took[rank] = seconds() - atomic_load(&f->when);
    snprintf(f->message[rank], sizeof f->message[0], "%s", status < 0 ? wagma_last_error() : "");
    atomic_store(&f->status[rank], status);
}

int wait_until_said(wagma_handle *h, void *x, const char *text) {
    int status = WAGMA_INPROGRESS, said = 0;
    for (const double end = seconds() + WATCHDOG_SECONDS / 2;
         status == WAGMA_INPROGRESS && !said && seconds() < end;) {
        status = wagma_wait(h, x, 0.02, NULL);
        said = status == WAGMA_INPROGRESS && strstr(wagma_last_error(), text);
    }
    EXPECT(said || status != WAGMA_INPROGRESS, "\"%s\" is not in: %s", text, wagma_last_error());
    return status;
}

void expect_fate(const fates *f, int rank, int status, const char *word) {
    EXPECT(f->status[rank] == status, "rank %d: status %d, not %d: %s", rank, f->status[rank],
           status, f->message[rank]);
    EXPECT(strstr(f->message[rank], word), "rank %d: \"%s\" is not in: %s", rank, word,
           f->message[rank]);
}
