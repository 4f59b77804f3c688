/* The end of the interpreter. A thread that waits inside the engine goes on while it ends, and must
 * not ask for the GIL then: hooks that take it do so between ending_enter() and ending_leave(). */
#ifndef WAGMA_ENDING_H
#define WAGMA_ENDING_H

#include <sched.h>
#include <stdatomic.h>

static atomic_int ending_begun;  /* 1: no hook may take the GIL any more */
static atomic_int ending_inside; /* hooks that may */

/* 1: the GIL may be taken until ending_leave(); 0: never again. */
static inline int ending_enter(void) {
    /* seq_cst, both: either this sees that the end has begun, or ending_begin() sees the hook */
    atomic_fetch_add(&ending_inside, 1);
    if (!atomic_load(&ending_begun))
        return 1;
    atomic_fetch_sub(&ending_inside, 1);
    return 0;
}

static inline void ending_leave(void) {
    atomic_fetch_sub(&ending_inside, 1);
}

/* Returns when no hook has the GIL, or will have it. The caller must not hold it. */
static inline void ending_begin(void) {
    atomic_store(&ending_begun, 1);
    while (atomic_load(&ending_inside) > 0)
        sched_yield();
}

/* 1: the end has begun. */
static inline int ending_has_begun(void) {
    return atomic_load(&ending_begun);
}

/* In a forked child, where the parent's other threads are not. */
static inline void ending_forked(void) {
    atomic_store(&ending_inside, 0);
}

#endif
