/* A transport between ranks of one process, beside csrc/messages/transport.h: for tests of what
 * runs over it.
 *
 * What a seed draws: how long each message takes (counted in polls of the rank that it goes to), in
 * which order messages of different pairs come, whether a send is over before its receive (copied
 * at once) or only after it, and when its sender hears of that. One thread that drives all ranks
 * sees the same run for the same seed; with `threads`, each rank may have a thread of its own.
 *
 * It finds misuse, for sim_trouble(): a transport that two threads use at once, data that changes
 * while it is the transport's, unequal sizes, a tag out of range, what is left when ranks close
 * together. A receive is filled with 0xA5 when it is posted, so that nothing is read from it before
 * its end unnoticed; a control message is freed by the next call. */
#ifndef WAGMA_TESTS_TRANSPORT_SIM_H
#define WAGMA_TESTS_TRANSPORT_SIM_H

#include "messages/transport.h"

struct sim;

struct sim_options {
    int delay;   /* polls that a message takes, at most; 0: none is delayed */
    int threads; /* 1: ranks on threads of their own */
    int tags;    /* 0: 32768, the fewest that MPI allows */
};

struct sim_traffic { /* of one rank, sent since creation */
    int64_t controls, control_bytes;
    int64_t datas, data_bytes;
};

struct sim *sim_create(int size, uint64_t seed, struct sim_options options);
/* Every transport was closed, or is not used any more. */
void sim_free(struct sim *s);

/* Belongs to the simulation; may be given to a handle, which closes it. */
wagma_transport *sim_transport(struct sim *s, int rank);

/* The rank dies: what it has not sent yet never comes, nor does the end of what is on its way. Its
 * own calls go on and do nothing. known: the others' dead() says so. */
void sim_kill(struct sim *s, int rank, int known);

/* Nothing comes from `from` to `to` (-1: anybody) until hold is 0 again. */
void sim_hold(struct sim *s, int from, int to, int hold);

/* Messages, posted sends and receives, and ends of them, that nobody has taken; those of dead ranks
 * do not count. 0 after a clean end. */
int64_t sim_pending(struct sim *s);

/* The first misuse, or NULL. */
const char *sim_trouble(struct sim *s);

struct sim_traffic sim_traffic(struct sim *s, int rank);

#endif
