/* The processes that this runner is responsible for: one tree for each command, by the strongest
 * means that this machine has. Finds that out once, at start, and says it in one line of the log.
 * Runner's loop thread. */
#pragma once

#include "agent/reaper.h"
#include "agent/tree.h"

/* By what a tree is held together, strongest first. */
enum forest_means {
    FOREST_CGROUP,      /* a control group of its own: nobody gets out by setsid or a double fork */
    FOREST_DESCENDANTS, /* we are a subreaper: descendants, found in /proc */
    FOREST_GROUP,       /* its process group, as a shell's job */
    FOREST_MEANS_COUNT_
};

const char *forest_means_name(enum forest_means means);

struct forest;

/* All zero: process groups and nothing else. */
struct forest_config {
    bool subreaper;
    const char *cgroups; /* NULL: none; else what our part is named after: the socket */
    const struct cgroup_paths *paths; /* NULL: the machine's */
    /* This process has had a forest before, in another program: nothing of that is ended, and
     * forest_go_on() follows when its trees are there again. */
    bool goes_on;
};

int forest_new(struct loop *loop, const struct forest_config *config, struct forest **ret,
               struct err *err) must_use;
/* What is in no tree for which `has_tree` is true is what an earlier command left behind: its
 * control group goes when it is empty. `handed_on` is what forest_handed_on() has said before. */
void forest_go_on(struct forest *forest, unsigned handed_on,
                  bool (*has_tree)(const void *userdata, const struct command_id *id),
                  const void *userdata);
unsigned forest_handed_on(const struct forest *forest);
/* Trees must have been freed. Control groups that are empty are removed. */
void forest_free(struct forest *forest);

enum forest_means forest_means(const struct forest *forest);
struct reaper *forest_reaper(const struct forest *forest);
/* The limits that can be enforced, by bits of enum tree_limit; and why the others cannot. */
unsigned forest_enforces(const struct forest *forest);
const char *forest_why_not(const struct forest *forest);
