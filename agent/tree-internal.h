/* The inside of trees and of the forest, for agent/forest.c and agent/tree*.c only. */
#pragma once

#include "agent/cgroup.h"
#include "agent/forest.h"
#include "agent/proctable.h"

#define FOREST_WHY_MAX 384u
/* A look at /proc serves all who look within this time: a thousand commands that end together. */
#define FOREST_TABLE_US 2000u

enum { TREE_WATCHED = 0, TREE_EMPTY = 1 };

struct tree_backend {
    /* NULL: nothing has to be made. */
    int (*begin)(struct tree *tree, struct err *err);
    unsigned (*signal)(struct tree *tree, int number); /* how many got it */
    unsigned (*count)(struct tree *tree);
    /* fn, with the tree, when the last process may have gone. TREE_WATCHED, TREE_EMPTY or -1. */
    int (*watch)(struct tree *tree, loop_io_fn fn, struct err *err);
};

extern const struct tree_backend tree_backend_cgroup, tree_backend_walk, tree_backend_group;

struct tree {
    struct forest *forest;
    const struct tree_backend *backend;
    struct command_id id;
    pid_t leader; /* 0 before it exists */
    bool reaped;  /* the leader: its number is not ours any more */
    bool killing; /* tree_kill() was called */
    bool unknown; /* the last look at /proc met a process of which it cannot be said */
    unsigned unknown_rounds;
    int watch_fd;
    struct loop_io *watch;
    void (*fn)(void *userdata);
    void *userdata;
    struct cgroup *cgroup; /* NULL but for FOREST_CGROUP */
};

struct forest {
    struct loop *loop;
    struct reaper *reaper;
    enum forest_means means;
    const struct tree_backend *backend, *without_cgroups;
    struct cgroup_root *cgroups; /* NULL but for FOREST_CGROUP */
    struct proctable table;
    uint64_t table_us; /* when it was read */
    char why_not[FOREST_WHY_MAX];
};

/* tree.c */
void tree_unwatch(struct tree *tree);
/* Takes the fd. */
int tree_watch_fd(struct tree *tree, int fd, uint32_t events, loop_io_fn fn,
                  struct err *err) must_use;

/* forest.c: all processes, as they are now or as they were a moment ago; the marks are the last
 * caller's. NULL when /proc cannot be read. */
struct proctable *forest_processes(struct forest *forest, bool fresh);
/* We have children that are no leaders, or may have. */
bool forest_has_orphans(const struct forest *forest);

/* tree_walk.c: also for those that have left their control group. */
unsigned tree_walk_signal(struct tree *tree, int number);
unsigned tree_walk_count(struct tree *tree);
int tree_walk_watch(struct tree *tree, loop_io_fn fn, struct err *err) must_use;
