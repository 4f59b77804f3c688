/* State of the wait-avoiding executor; executor_shm.c moves data, executor_shm_wait.c waits. */
#ifndef WAGMA_EXECUTOR_SHM_H
#define WAGMA_EXECUTOR_SHM_H

#include "grace.h"
#include "handle.h"
#include "round.h"

/* What start() may wait before it hands over to finish(). */
enum { SHM_START_NS = 3000 };

struct shm_executor {
    struct round_context context;
    struct round_local local;
    struct round_input input;
    struct grace grace;
    int committed_contributions, committed_rounds;
    int publishing; /* a contribution was written, the next step publishes it */
    /* round local.c, looked up once per call by take() */
    int taken;
    const int32_t *members; /* of the group of version u */
    int n;
    double total, divisor;
    uint64_t slice_ns; /* longest slice that this call reduced */
    /* the wait in progress */
    int waiting;
    enum round_why why;
    uint64_t until; /* ns: end of the grace, or when to redo */
    int counted;    /* this call was counted in buffer_waits */
    /* memory */
    int32_t *scratch, *members_u, *missing; /* [P] */
    const void **shifted;                   /* [P] */
    unsigned char *block;
};

/* Pauses once for what local.why says. WAGMA_OK: step again; WAGMA_INPROGRESS: the budget (ns;
 * 0: none) is used up; or an error. */
int shm_pause(wagma_handle *h, uint64_t budget_ns);
/* The wait, if there was one, is over. */
void shm_resume(wagma_handle *h);
/* The error for ranks that called sync(x) at different versions. */
int shm_mismatch(wagma_handle *h);

#endif
