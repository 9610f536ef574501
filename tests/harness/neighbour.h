/* Somebody else's command: runs in the fixture's sandbox from before a fault until after it, and
 * must notice nothing. Criterion; one thread. */
#pragma once

#include "tests/harness/fixture.h"

#define NEIGHBOUR_ID "3f0d9a52-1b7e-4f44-8f0e-6f5a4b3c2d1e"

/* For .init and .fini: the fixture's own, and the command. */
void neighbour_start(void);
void neighbour_stop(void);
/* Ends the command in order; then another one runs, as before. */
void neighbour_assert_well(void);
