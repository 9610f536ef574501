/* A command as clients see it, for orchestrator/control_command*.c only. */
#pragma once

#include "orchestrator/control.h"
#include "orchestrator/label_messages.h"

/* A message about a command, whose pointers are the item's own. */
struct command_item {
    struct command_record record;
    Sandstorm__V1__CommandState state;
    Sandstorm__V1__Command message;
    struct label_messages labels;
    ProtobufCMessage *outcome;
};

/* From item->record and item->state, and what the relay knows besides. */
int command_item_fill(struct orchestrator *orchestrator, struct command_item *item,
                      struct err *err) must_use;
void command_item_done(struct command_item *item);

/* One command, as it is in the store and here; the item is for this call only. */
typedef void (*command_described)(void *userdata, struct command_item *item,
                                  const struct err *failed);
int control_command_describe(struct orchestrator *orchestrator, const struct identity *peer,
                             const char *command_id, command_described done, void *userdata,
                             struct err *err) must_use;
