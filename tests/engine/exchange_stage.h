/* One version at a time of all ranks of a crew: for tests of what an exchange sends, keeps and
 * makes of messages. */
#ifndef WAGMA_TESTS_EXCHANGE_STAGE_H
#define WAGMA_TESTS_EXCHANGE_STAGE_H

#include "exchange_crew.h"
#include "protocol/schedule.h"

typedef struct stage {
    crew crew;
    int n;
    wagma_dtype dtype;
    size_t count;
    part parts[CREW_RANKS];
    int32_t members[CREW_RANKS];
    unsigned char *input[CREW_RANKS], *result[CREW_RANKS];
    int64_t version;
} stage;

/* With chunks of 16 KiB, and the algorithm for any number of elements. */
wagma_options options_of_algorithm(int n, schedule_algorithm algorithm, size_t count);

/* Inputs and results of zeros. 0, or the number of the error: see wagma_last_error(). */
int open_stage(stage *s, const wagma_options *o, size_t attached);
void close_stage(stage *s);

/* Set the rank's contribution to the next version: its input, with this weight. */
void set_start(stage *s, int r, double weight);
/* Runs the version with weights of 1. NULL, or what went wrong. */
const char *run_version(stage *s);

#endif
