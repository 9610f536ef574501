/* Ids of commands that ended, were acknowledged and have been let go: an order to start one of them
 * again is a redelivery, never a second run. Remembers the last RELEASED_MAX, also across a crash
 * of the runner where it has a state directory. One thread. */
#pragma once

#include "common/ids.h"

#include <stdbool.h>

#define RELEASED_MAX 8192u

struct state_dir;
struct released;

int released_new(struct released **ret, struct err *err) must_use;
/* Reads what is kept there, and keeps what comes from here on. */
int released_open(struct released *released, const struct state_dir *state,
                  struct err *err) must_use;
/* The same with a descriptor of this process's earlier self, and which one that is. */
int released_adopt(struct released *released, int fd, struct err *err) must_use;
int released_fd(const struct released *released);
void released_free(struct released *released);
void released_add(struct released *released, const struct command_id *id);
bool released_has(const struct released *released, const struct command_id *id);
