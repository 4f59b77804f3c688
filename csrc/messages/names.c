/* The names of control messages in traces. */
#include "messages/names.h"

#include <stddef.h>

#include "messages/exchange.h"
#include "messages/graph/message.h"
#include "protocol/activation.h"

const char *message_name(int kind) {
    switch (kind) {
    case ACTIVATION_ACTIVATE: return "activate";
    case ACTIVATION_NOTICE: return "notice";
    case ACTIVATION_EXPECT: return "expect";
    case ACTIVATION_BARRIER: return "barrier";
    case ACTIVATION_DEPARTED: return "departed";
    case ACTIVATION_FAILED: return "failed";
    case ACTIVATION_INQUIRE: return "inquire";
    case ACTIVATION_TELL: return "tell";
    case ACTIVATION_PASS: return "pass";
    case ACTIVATION_DISPUTE: return "dispute";
    case EXCHANGE_HEADER: return "header";
    case GRAPH_ARRIVED: return "arrived";
    case GRAPH_FINISHED: return "finished";
    default: return NULL;
    }
}
