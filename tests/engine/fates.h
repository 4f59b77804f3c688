/* Fates of ranks when something fails; extends support.h. */
#ifndef WAGMA_TESTS_FATES_H
#define WAGMA_TESTS_FATES_H

#include "support.h"

enum how { FAILS, FAILS_IN_CALL, DIES_KNOWN, DIES_UNKNOWN, HOWS };

/* What became of each rank. */
typedef struct fates {
    int size, quorum, group;
    int how;         /* of the victim, the last rank */
    double patience; /* timeout */
    int posted;      /* the others have posted when it happens */
    _Atomic int ready;
    _Atomic double when; /* it happened */
    _Atomic int status[RANKS_MAX];
    double took[RANKS_MAX]; /* s, since then */
    char message[RANKS_MAX][512];
} fates;

/* The rank's call returned this; keeps its message. */
void note(fates *f, int rank, int status);
/* Waits in the posted call until its error would say `text` of those that are missing: ranks that
 * are only slow have come then. Returns the status of the call. */
int wait_until_said(wagma_handle *h, void *x, const char *text);
/* Expects that status of the rank, and `word` in its message. */
void expect_fate(const fates *f, int rank, int status, const char *word);

#endif
