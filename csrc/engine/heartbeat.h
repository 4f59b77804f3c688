/* How often a wait looks for stalls: lost ranks, timeouts, the interrupted hook. */
#ifndef WAGMA_ENGINE_HEARTBEAT_H
#define WAGMA_ENGINE_HEARTBEAT_H

enum { WAIT_HEARTBEAT_NS = 50000000 };

#endif
