/* A tree that is a control group: nobody leaves it by forking, and it is killed at one moment. Only
 * root can move a process elsewhere; when the tree is killed such a one is looked for as
 * agent/tree_walk.c does. */
#include "agent/tree-internal.h"

#include <signal.h>

static int cgroup_begin(struct tree *tree, struct err *err)
{
    return cgroup_new(tree->forest->cgroups, &tree->id, &tree->cgroup, err);
}

static unsigned cgroup_signal_all(struct tree *tree, int number)
{
    unsigned reached = cgroup_signal(tree->cgroup, number);
    if (number == SIGKILL && tree->reaped)
        reached += tree_walk_signal(tree, number);
    return reached;
}

static unsigned cgroup_count_all(struct tree *tree)
{
    unsigned count = cgroup_count(tree->cgroup);
    return count == 0 && tree->killing ? tree_walk_count(tree) : count;
}

static int cgroup_watch(struct tree *tree, loop_io_fn fn, struct err *err)
{
    int fd = cgroup_open_events(tree->cgroup, err);
    if (fd < 0)
        return -1;
    /* Opened before it is looked at: a change in between is reported. */
    if (cgroup_populated(tree->cgroup))
        return tree_watch_fd(tree, fd, EPOLLPRI, fn, err);
    close_fd(&fd);
    return tree_walk_watch(tree, fn, err);
}

const struct tree_backend tree_backend_cgroup = {
    .begin = cgroup_begin,
    .signal = cgroup_signal_all,
    .count = cgroup_count_all,
    .watch = cgroup_watch,
};
