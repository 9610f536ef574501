/* The inside of agent/cgroup*.c: files of a group's directory, and the directories themselves. */
#pragma once

#include "agent/cgroup.h"

#define CGROUP_ATTRIBUTE_MAX 4096u
/* On a group: the processes in it were left behind on purpose. */
#define CGROUP_KEPT "user.sandstorm.kept"

/* One attribute of a group. Reading cuts at the buffer; writing is one write(2), as the kernel
 * wants it. -1 with errno. */
ssize_t cgroup_read(int group, const char *name, char *out, size_t size) must_use;
int cgroup_write(int group, const char *name, const char *value);
/* The number behind `key` in a file of lines "KEY NUMBER"; false when there is none. */
bool cgroup_read_key(int group, const char *name, const char *key, uint64_t *ret);
/* A word in a file of words. */
bool cgroup_has_word(int group, const char *name, const char *word);

int cgroup_open_dir(int above, const char *name) must_use;
/* With the groups below it, as far as they are empty; -1 with errno. */
int cgroup_remove(int above, const char *name);
/* fn for the group and all below it. */
void cgroup_visit(int group, void (*fn)(void *userdata, int group), void *userdata);

/* cgroup.c: SIGKILL to all in it and below it. */
unsigned cgroup_kill(int group, const struct command_id *id);

/* cgroup_root.c */
int cgroup_root_commands(const struct cgroup_root *root);
/* The group is of no command any more: it goes when it is empty. */
void cgroup_root_linger(struct cgroup_root *root, const char *name);
