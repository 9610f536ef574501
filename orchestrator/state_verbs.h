/* The verbs that care for a state directory, with what they say to the operator. Blocking; for
 * orchestrator/main.c. */
#pragma once

#include "common/err.h"

/* Each takes the word after the verb, which may be missing. */
int state_verb_backup(const char *state_dir, const char *file, struct err *err) must_use;
int state_verb_restore(const char *state_dir, const char *file, struct err *err) must_use;
/* -1 with everything as it was, when too little can be read to go on with. */
int state_verb_repair(const char *state_dir, struct err *err) must_use;
