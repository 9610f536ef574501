/* Ids of commands that ended, were acknowledged and have been let go: an order to start one of them
 * again is a redelivery, never a second run. Remembers the last RELEASED_MAX. One thread. */
#pragma once

#include "common/ids.h"

#include <stdbool.h>

#define RELEASED_MAX 8192u

struct released;

int released_new(struct released **ret, struct err *err) must_use;
void released_free(struct released *released);
void released_add(struct released *released, const struct command_id *id);
bool released_has(const struct released *released, const struct command_id *id);
