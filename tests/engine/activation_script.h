/* Ranks of the activation core that do what lines of text say, for golden traces and unit tests.
 * The first line is the configuration, the others are events; each is written to the log, followed
 * by what happens:
 *
 *   > ranks 3 group 3 [quorum N] [majority] [window N] [period N] [grace N] [automatic] [world]
 *     [ordered] [forward] [versions N] [sync V]
 *   > call R, sync R, arrive R, return R, depart R    the caller's next step; says if it waits
 *   > get R Q         rank R gets the next control message of Q
 *   > deliver         all control messages come, until there are none
 *   > data R V Q      rank R gets data of version V from Q
 *   > over R V        rank R has the result of version V
 *   > time N          it is N (ns)
 *   > tick R          rank R looks at the time
 *   > inquire R       rank R asks where the others are
 *   > missing R       whom rank R waits for */
#ifndef WAGMA_TESTS_ACTIVATION_SCRIPT_H
#define WAGMA_TESTS_ACTIVATION_SCRIPT_H

#include <stdio.h>

#include "activation_node.h"

struct script;

/* NULL: the line is no configuration. The caller frees it. */
struct script *script_open(const char *line, FILE *log);
void script_close(struct script *s);

/* Does what a line says; 0: it cannot be done, or an invariant is violated. */
int script_do(struct script *s, const char *line);

/* The violation, or NULL. */
const char *script_violation(const struct script *s);
struct activation *script_core(struct script *s, int rank);
int64_t script_sent(const struct script *s);                 /* control messages so far */
int script_queued(const struct script *s, int from, int to); /* on their way */

#endif
