/* The user and group that a command is to run as: from names or numbers of a spec to what the
 * kernel and an environment need. Asks the user database (NSS), which may read files and may block.
 * Runner's thread. */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <sys/types.h>

#define COMMAND_USER_NAME_MAX 256u /* LOGIN_NAME_MAX of Linux */
#define COMMAND_GROUPS_MAX    65536

struct command_user {
    char *name; /* from the user database, or the number */
    char *home, *shell;
    uid_t uid;
    gid_t gid;
    gid_t *groups; /* the supplementary ones, gid among them */
    int group_count;
    bool in_own_group; /* gid is one of the groups that the database gives the user */
    bool changes;      /* the spec names a user or a group: it is not simply the runner's */
};

/* Empty: the runner's own user; the user's own group. */
int command_user_find(const char *user, const char *group, struct command_user *ret,
                      struct err *err) must_use;
void command_user_done(struct command_user *user);
