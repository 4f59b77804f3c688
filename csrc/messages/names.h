/* The names of control messages in traces. */
#ifndef WAGMA_MESSAGES_NAMES_H
#define WAGMA_MESSAGES_NAMES_H

/* Return the name of a control message, by its first byte; NULL: there is no such message. */
const char *message_name(int kind);

#endif
