/* The control groups that a runner left which was killed, or whose commands left something behind.
 * One thread. */
#pragma once

/* Ends what lives in the part of the runner with that socket, and removes it. */
void leftovers_remove(const char *socket);
