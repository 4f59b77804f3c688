/* The frame of a C program whose tests run on every rank of MPI_COMM_WORLD: a test that fails on
 * one rank failed, only rank 0 counts, and a program that hangs is ended. */
#ifndef WAGMA_TESTS_WORLD_H
#define WAGMA_TESTS_WORLD_H

#include <stddef.h>
#include <stdint.h>

#include "include/wagma_mpi.h"
#include "messages/transport.h"

extern int world_rank, world_size;

/* Initialises MPI. */
void world_begin(int *argc, char ***argv);
/* Every rank has come here. Polls nothing: what is sent before is on its way. */
void world_meet(void);
/* Rank 0's bytes for everybody. */
void world_tell(void *bytes, int n);
/* A transport over MPI_COMM_WORLD, of whose errors wagma_mpi_last_error() has the messages. */
wagma_transport *world_transport(void);
/* Sum of failures over the ranks. */
int world_failures(int mine);

/* What byte `i` of message `number` from `from` to `to` is. */
static inline unsigned char world_byte(int from, int to, uint64_t number, size_t i) {
    uint64_t x = (uint64_t)from * 7919 + (uint64_t)to * 104729 + number * 15485863 + i * 31;
    return (unsigned char)(x ^ (x >> 8) ^ (x >> 17));
}

#endif
