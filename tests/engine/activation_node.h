/* One rank of a world in which csrc/protocol/activation.c is driven under the eyes of the oracle:
 * carries out what the core asks for, and does what an executor and its caller do. The world
 * carries the messages: the explorer has them in its states (tests/explore/activation_model.c), the
 * random simulation gives them to transport_sim; and it decides when an exchange is over. */
#ifndef WAGMA_TESTS_ACTIVATION_NODE_H
#define WAGMA_TESTS_ACTIVATION_NODE_H

#include <stdio.h>

#include "activation_oracle.h"

struct node {
    const struct oracle_rules *rules;
    struct oracle *oracle;
    struct activation *core;
    int rank;
    uint64_t now;
    FILE *log; /* NULL: nothing is printed */
    struct oracle_violation *bad;
    void *world;
    void (*send)(struct node *n, int to, const struct activation_message *message);
    void (*pinned)(struct node *n, int version); /* its exchange begins; may be NULL */
    void (*trouble)(struct node *n, const struct activation_action *action);
};

/* Tells the core, and does what it asks for. */
void node_step(struct node *n, struct activation_event event);
void node_receive(struct node *n, int from, const struct activation_message *message);
/* Data of a version has come. */
void node_receive_data(struct node *n, int from, int version);
/* The exchange of a version is over. */
void node_complete(struct node *n, int version);

enum node_move {
    NODE_STAYS = ' ', /* outside, for ever */
    NODE_CALLS = 'n',
    NODE_SYNCS = 's', /* calls sync(x) */
    NODE_DEPARTS = 'd',
};
/* The caller's next step; `next`: what it does when it is outside. 0: it waits, or has come to its
 * end. *returned: a call has ended. */
int node_caller(struct node *n, enum node_move next, int *returned);

/* At the deadline of the core. 0: it has none. */
int node_tick(struct node *n);

/* Checks that a rank whose call does not go on needs somebody who has not come; in quiet states. */
void node_check_waiting(const struct node *n);

#endif
