/* Control groups, version 2: the runner's own, a part of it that is ours, and in that one group for
 * each command, with its limits. Says why when there is none or a limit cannot be enforced; never
 * guesses. Runner's loop thread. */
#pragma once

#include "agent/tree.h"
#include "common/loop.h"

#define CGROUP_PATH_MAX   1024u
#define CGROUP_NAME_MAX   40u
#define CGROUP_WHY_MAX    256u
#define CGROUP_DEPTH_MAX  16u   /* of groups that a command makes inside its own */
#define CGROUP_LINGER_MAX 1024u /* groups of ended commands in which a process still lives */

/* Where to look; a test has its own. */
struct cgroup_paths {
    const char *self;    /* /proc/self/cgroup */
    const char *mounts;  /* /proc/self/mountinfo */
    const char *systemd; /* is there when systemd runs the machine: /run/systemd/system */
};
extern const struct cgroup_paths cgroup_machine;

/* The directory of the version 2 group that we are in. -1 and in words why there is none. */
int cgroup_find_own(const struct cgroup_paths *paths, char ret[CGROUP_PATH_MAX],
                    struct err *err) must_use;

/* What the part of the runner with that socket is called, below the runner's own group. */
void cgroup_part_name(const char *socket, char ret[CGROUP_NAME_MAX]);

struct cgroup_root;

/* Our part, named after `socket`: one runner, one part, the same one in its next life. What a dead
 * life left in it is ended here, unless this one goes on with it: then cgroup_root_go_on() follows,
 * see agent/forest.h. NULL paths: the machine's. */
int cgroup_root_new(struct loop *loop, const struct cgroup_paths *paths, const char *socket,
                    bool goes_on, struct cgroup_root **ret, struct err *err) must_use;
void cgroup_root_go_on(struct cgroup_root *root, unsigned handed_on,
                       bool (*in_use)(const void *userdata, const struct command_id *id),
                       const void *userdata);
unsigned cgroup_root_handed_on(const struct cgroup_root *root);
/* Leaves and removes it as far as it is empty. */
void cgroup_root_free(struct cgroup_root *root);
/* Bits of enum tree_limit, and why the others are not among them ("" when all are). */
unsigned cgroup_root_enforces(const struct cgroup_root *root);
const char *cgroup_root_why_not(const struct cgroup_root *root);

struct cgroup;

int cgroup_new(struct cgroup_root *root, const struct command_id *id, struct cgroup **ret,
               struct err *err) must_use;
/* One that the program before this one has made. Takes the descriptor. A NULL root: we make none
 * any more, and what is left of it is not watched after its end. */
int cgroup_adopt(struct cgroup_root *root, const struct command_id *id, int fd, struct cgroup **ret,
                 struct err *err) must_use;
/* Removed now, or when its last process has gone. `kept`: see tree_free(). */
void cgroup_free(struct cgroup *cgroup, bool kept);
/* One of cgroup_root_enforces(). */
int cgroup_set_limit(struct cgroup *cgroup, enum tree_limit limit, uint64_t value,
                     struct err *err) must_use;
int cgroup_fd(const struct cgroup *cgroup);
/* To each process in it and below it, once; how many there were. SIGKILL takes all at one moment
 * where the kernel can (5.14), and what they fork too. */
unsigned cgroup_signal(const struct cgroup *cgroup, int number);
bool cgroup_populated(const struct cgroup *cgroup);
unsigned cgroup_count(const struct cgroup *cgroup);
/* A descriptor that reports EPOLLPRI when cgroup_populated() may have changed. */
int cgroup_open_events(const struct cgroup *cgroup, struct err *err) must_use;
void cgroup_usage(const struct cgroup *cgroup, struct tree_usage *ret);
