/* What messages under way may still read and write when its owner has ended: it is kept to the end
 * of the process, and reachable, so that it is not taken for a leak. */
#ifndef WAGMA_BASE_KEPT_H
#define WAGMA_BASE_KEPT_H

/* A member of what may be kept. */
struct kept {
    struct kept *next;
};

/* Keep it. Any thread may. */
void kept_add(struct kept *k);

#endif
