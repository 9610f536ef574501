/* A tree that is a process group, as a shell has jobs: the last resort, where we are no subreaper.
 * The group's number is only safe while its leader is not reaped, so afterwards nothing is known of
 * it and nothing is done to it. */
#include "agent/tree-internal.h"

#include <signal.h>

static bool has_group(const struct tree *tree)
{
    return tree->leader > 0 && !tree->reaped;
}

static unsigned group_signal(struct tree *tree, int number)
{
    return has_group(tree) && kill(-tree->leader, number) == 0;
}

static unsigned group_count(struct tree *tree)
{
    return has_group(tree);
}

static int group_watch(struct tree *tree, loop_io_fn fn, struct err *err)
{
    (void)fn;
    if (!has_group(tree))
        return TREE_EMPTY;
    return err_set(err, ERR_UNIMPLEMENTED, "the end of a process group cannot be waited for");
}

const struct tree_backend tree_backend_group = {
    .signal = group_signal,
    .count = group_count,
    .watch = group_watch,
};
