/* Commands that a runner still has although they have ended as far as the store knows: we stopped
 * between writing down how one ended and having all of its output, or before the runner was told to
 * forget it. Loop thread. */
#pragma once

#include "orchestrator/registry.h"

struct orchestrator;

/* Fetches what is missing, or tells the runner to let go. One that is not in the store stays where
 * it is. Goes on by itself. */
void relay_adopt(struct orchestrator *orchestrator, struct sandbox *sandbox,
                 const struct command_id *id);
