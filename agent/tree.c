/* What all trees share: names of limits, and waiting for the last process. agent/command.c asks;
 * next: one of agent/tree_{cgroup,walk,group}.c does it. */
#include "agent/tree-internal.h"

#include <errno.h>
#include <signal.h>

static const char *const limit_names[TREE_LIMIT_COUNT_] = {
    [TREE_MEMORY] = "memory",
    [TREE_CPU] = "cpu",
    [TREE_PIDS] = "pids",
};

const char *tree_limit_name(enum tree_limit limit)
{
    return (unsigned)limit < TREE_LIMIT_COUNT_ ? limit_names[limit] : "unknown";
}

static struct tree *make(struct forest *forest, const struct command_id *id,
                         const struct tree_backend *backend)
{
    struct tree *tree = calloc(1, sizeof(*tree));
    if (!tree)
        return NULL;
    tree->forest = forest;
    tree->backend = backend;
    tree->id = *id;
    tree->watch_fd = -1;
    return tree;
}

int tree_new(struct forest *forest, const struct command_id *id, struct tree **ret, struct err *err)
{
    struct tree *tree = make(forest, id, forest->backend);
    if (!tree)
        return err_nomem(err);
    if (tree->backend->begin && tree->backend->begin(tree, err) < 0) {
        free(tree);
        return -1;
    }
    *ret = tree;
    return 0;
}

void tree_hand_over(const struct tree *tree, struct tree_state *ret)
{
    *ret = (struct tree_state){
        .leader = tree->leader,
        .reaped = tree->reaped,
        .killing = tree->killing,
        .cgroup_fd = tree->cgroup ? cgroup_fd(tree->cgroup) : -1,
    };
}

int tree_take_over(struct forest *forest, const struct command_id *id,
                   const struct tree_state *state, struct tree **ret, struct err *err)
{
    CLEANUP_FD int group = state->cgroup_fd;
    struct tree *tree =
        make(forest, id, group >= 0 ? &tree_backend_cgroup : forest->without_cgroups);
    if (!tree)
        return err_nomem(err);
    if (group >= 0 && cgroup_adopt(forest->cgroups, id, TAKE_FD(group), &tree->cgroup, err) < 0) {
        free(tree);
        return -1;
    }
    tree->leader = state->leader;
    tree->reaped = state->reaped;
    tree->killing = state->killing;
    *ret = tree;
    return 0;
}

int tree_set_limit(struct tree *tree, enum tree_limit limit, uint64_t value, struct err *err)
{
    if (!tree->cgroup)
        return err_errno(err, ENOTSUP, "the limit \"%s\" cannot be enforced here",
                         tree_limit_name(limit));
    return cgroup_set_limit(tree->cgroup, limit, value, err);
}

int tree_cgroup_fd(const struct tree *tree)
{
    return tree->cgroup ? cgroup_fd(tree->cgroup) : 0;
}

void tree_started(struct tree *tree, pid_t leader)
{
    tree->leader = leader;
}

void tree_leader_reaped(struct tree *tree)
{
    tree->reaped = true;
}

int tree_signal(struct tree *tree, int number, struct err *err)
{
    if (tree->backend->signal(tree, number) == 0)
        return err_errno(err, ESRCH, "none of the command's processes could be signalled");
    return 0;
}

void tree_kill(struct tree *tree)
{
    tree->killing = true;
    (void)tree->backend->signal(tree, SIGKILL);
}

unsigned tree_count(struct tree *tree)
{
    return tree->backend->count(tree);
}

/* Waiting. */

void tree_unwatch(struct tree *tree)
{
    loop_io_free(TAKE_PTR(tree->watch));
    close_fd(&tree->watch_fd);
}

/* Something has ended, or may have. */
static void on_watched(void *userdata, uint32_t events)
{
    (void)events;
    struct tree *tree = userdata;
    struct err ignored;
    tree_unwatch(tree);
    /* Without a watch the one who waits goes by its own clock. */
    if (tree->backend->watch(tree, on_watched, &ignored) == TREE_EMPTY)
        tree->fn(tree->userdata);
}

int tree_wait_empty(struct tree *tree, void (*fn)(void *userdata), void *userdata, struct err *err)
{
    tree->fn = fn;
    tree->userdata = userdata;
    tree_unwatch(tree);
    int r = tree->backend->watch(tree, on_watched, err);
    return r == TREE_EMPTY ? 1 : r;
}

int tree_watch_fd(struct tree *tree, int fd, uint32_t events, loop_io_fn fn, struct err *err)
{
    tree->watch_fd = fd;
    return loop_io_new(tree->forest->loop, fd, events, fn, tree, &tree->watch, err);
}

void tree_usage(const struct tree *tree, struct tree_usage *ret)
{
    *ret = (struct tree_usage){ 0 };
    if (tree->cgroup)
        cgroup_usage(tree->cgroup, ret);
}

void tree_free(struct tree *tree, bool kept)
{
    if (!tree)
        return;
    tree_unwatch(tree);
    cgroup_free(tree->cgroup, kept);
    free(tree);
}
