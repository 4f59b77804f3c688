/* Which process this is. A process ID does not tell: processes of different PID namespaces have
 * the same, and a forked child has all memory of its parent with a new one. */
#ifndef WAGMA_BASE_PROCESS_H
#define WAGMA_BASE_PROCESS_H

#include <stdint.h>

/* Return a number that a forked child does not share with its parent: what was noted in memory as
 * made in this process was, if the number noted with it is still the same. */
uint32_t process_serial(void);

/* Keep fork() waiting, in all threads of the process, until process_fork_again(). */
void process_hold_fork(void);
void process_fork_again(void);

/* Return the number of this process's PID namespace, the same in all processes of it; 0: unknown.
 * What another process says is its ID names that process only to processes of its namespace. */
uint64_t process_namespace(void);

#endif
