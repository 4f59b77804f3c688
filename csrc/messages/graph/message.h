/* Messages between neighbours over a transport, in addition to DEPARTED and FAILED of activation.h.
 */
#ifndef WAGMA_MESSAGES_GRAPH_MESSAGE_H
#define WAGMA_MESSAGES_GRAPH_MESSAGE_H

#include <stdint.h>

/* First byte of a message; other numbers than enum activation_kind. */
enum graph_kind {
    GRAPH_ARRIVED = 32, /* the sender's contribution of `version` */
    GRAPH_FINISHED,     /* an activation_message: the sender needs nothing of `version` any more */
};

/* A contribution of up to GRAPH_INLINE bytes follows; a larger one comes as a data message, one
 * of weight 0 not at all. */
struct graph_arrived {
    uint8_t kind; /* GRAPH_ARRIVED */
    uint8_t pad[7];
    int64_t version;
    double weight;
};

enum { GRAPH_INLINE = 2048 };

#endif
