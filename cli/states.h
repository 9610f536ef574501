/* "online,suspect": a set of states as people write it, for verbs that list. Pure; any thread. */
#pragma once

#include "common/err.h"

/* The first of the names (NULL-ended) is the state 1: the result has a bit for each, as
 * SANDSTORM_STATE_BIT() has. NULL is the empty set; another text that names none is an error. */
int states_parse(const char *text, const char *const *names, unsigned *ret,
                 struct err *err) must_use;
