/* A command by its id, for those who may know of it: one whose sandbox is out of the caller's scope
 * is answered exactly as one that does not exist. Loop thread. */
#pragma once

#include "common/identity.h"
#include "orchestrator/registry.h"
#include "orchestrator/store.h"

struct orchestrator;

/* `sandbox` is NULL when it was removed, or is another machine by now. `record` is for this call
 * only. */
typedef void (*command_looked_up)(void *userdata, const struct command_record *record,
                                  struct sandbox *sandbox, const struct err *failed);
/* -1: not even asked, `done` is not called. */
int command_look_up(struct orchestrator *orchestrator, const struct identity *peer,
                    const char *command_id, command_looked_up done, void *userdata,
                    struct err *err) must_use;
/* The machine that ran it, if it is still there. */
struct sandbox *command_sandbox(struct orchestrator *orchestrator,
                                const struct command_record *record);
bool command_visible(struct orchestrator *orchestrator, const struct identity *peer,
                     const struct command_record *record);
