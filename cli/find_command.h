/* Which command somebody means who writes the beginning of its id. Main thread. */
#pragma once

#include "client/sandstorm.h"
#include "common/ids.h"

#include <stdbool.h>

#define FIND_COMMAND_MIN  4u     /* characters of an id */
#define FIND_COMMAND_LOOK 20000u /* of the newest commands are looked at */

struct found_command {
    struct command_id id;
    char sandbox[SANDBOX_ID_MAX + 1];
    enum sandstorm_command_state state;
    bool terminal;
};

/* The one that begins so; SANDSTORM_INVALID or SANDSTORM_NOT_FOUND, with what to do instead. */
int find_command(struct sandstorm_client *client, const char *word, struct found_command *ret,
                 struct sandstorm_error *error);
