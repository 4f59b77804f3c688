/* Identity of this process. A process ID is not enough: processes of different PID namespaces can
 * have the same ID, and a forked child has a new ID but all memory of its parent. */
#ifndef WAGMA_BASE_PROCESS_H
#define WAGMA_BASE_PROCESS_H

#include <stdint.h>

/* Return a number that differs between a forked child and its parent. An object in memory was made
 * in this process if the number stored with it equals this one. */
uint32_t process_serial(void);

/* Keep fork() waiting, in all threads of the process, until process_fork_again(). */
void process_hold_fork(void);
void process_fork_again(void);

/* Return the number of this process's PID namespace, the same in all its processes; 0: unknown. A
 * process ID that another process reports is valid only within that process's namespace. */
uint64_t process_namespace(void);

#endif
