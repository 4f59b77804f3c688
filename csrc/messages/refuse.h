/* Refuses a transport over which this rank makes no handle. */
#ifndef WAGMA_MESSAGES_REFUSE_H
#define WAGMA_MESSAGES_REFUSE_H

#include "include/wagma.h"

/* Tell the others that this rank has failed, and close the transport. */
void transport_refuse(wagma_transport *t);

#endif
