/* Our terminal as the command's: keys go through as they are, and nothing is done to what is
 * written. Given back however this process ends, but by SIGKILL. There is one terminal, so this is
 * one per process. Main thread. */
#pragma once

#include <stdbool.h>

/* stdin and stdout are one that can be taken. */
bool raw_possible(void);
/* Again after raw_leave(), too. Does nothing in the background: the keys are not ours then. */
void raw_enter(void);
/* Async-signal-safe. */
void raw_leave(void);
bool raw_active(void);
