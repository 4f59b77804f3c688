/* Graphs with arrays on simulated devices, which are staged in a segment and for messages:
 * test_graph_engine.c. */
#include "place.h"

__attribute__((constructor)) static void staged(void) {
    arrays_on_devices = WAGMA_MEMORY_STAGED;
}

#include "test_graph_engine.c"
