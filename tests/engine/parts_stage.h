/* Staged calls by parts over messages, with ranks that one thread plays. */
#ifndef WAGMA_TESTS_PARTS_STAGE_H
#define WAGMA_TESTS_PARTS_STAGE_H

#include "device_stage.h"
#include "protocol/schedule.h"
#include "transport_sim.h"

enum { CHUNK = 4096, MANY = 100000 };

enum kind_of_call { ALL, STALE, SKIP, POLICIES };

extern const char *const policies[POLICIES];

/* Every rank is awaited in each version, and is fresh. */
wagma_options options_by_parts(int size, enum kind_of_call policy, schedule_algorithm algorithm);
/* Posts the contribution of version t, which goes on. */
void post(stage *s, int r, void *x, int64_t t);
/* So many copies of parts of x are done; -1: all. */
void allow(const stage *s, int r, int n);

#endif
