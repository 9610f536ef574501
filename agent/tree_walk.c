/* A tree that is found in /proc: the leader and its descendants, and those that have been left to
 * us as their subreaper. An orphan belongs to the command in whose session or process group it
 * still is; one that has left these (setsid, double fork) still has the command's id in its
 * environment. A process that wipes that too is missed, which is why control groups come first. */
#include "agent/tree-internal.h"

#include <errno.h>
#include <stdio.h>

static bool is_ours(const struct tree *tree, const struct proc_entry *entry)
{
    if (entry->pid == tree->leader)
        return !tree->reaped;
    if (entry->parent != getpid() || reaper_watches(tree->forest->reaper, entry->pid))
        return false;
    /* Both numbers stay the leader's as long as somebody is in its session or group. */
    if (entry->session == tree->leader || entry->group == tree->leader)
        return true;
    char variable[sizeof(TREE_VARIABLE) + COMMAND_ID_LEN + 1];
    (void)snprintf(variable, sizeof(variable), "%s=%s", TREE_VARIABLE, tree->id.text);
    return proc_has_variable(entry->pid, variable);
}

/* NULL when there is certainly none. */
static struct proctable *mark(struct tree *tree, bool fresh)
{
    if (tree->reaped && !forest_has_orphans(tree->forest))
        return NULL;
    struct proctable *table = forest_processes(tree->forest, fresh);
    if (!table)
        return NULL;
    for (size_t i = 0; i < table->count; i++)
        table->entries[i].marked = is_ours(tree, &table->entries[i]);
    proctable_mark_descendants(table);
    for (size_t i = 0; i < table->count; i++)
        table->entries[i].marked &= !table->entries[i].dead;
    return table;
}

unsigned tree_walk_signal(struct tree *tree, int number)
{
    unsigned reached = 0;
    const struct proctable *table = mark(tree, false);
    for (size_t i = 0; table && i < table->count; i++)
        if (table->entries[i].marked)
            reached += proc_signal(&table->entries[i], number);
    return reached;
}

unsigned tree_walk_count(struct tree *tree)
{
    unsigned count = 0;
    const struct proctable *table = mark(tree, false);
    for (size_t i = 0; table && i < table->count; i++)
        count += table->entries[i].marked;
    return count;
}

static int watch_first(struct tree *tree, const struct proctable *table, loop_io_fn fn,
                       struct err *err)
{
    for (size_t i = 0; table && i < table->count; i++) {
        if (!table->entries[i].marked)
            continue;
        int pidfd = proc_open(&table->entries[i]);
        if (pidfd >= 0)
            return tree_watch_fd(tree, pidfd, EPOLLIN, fn, err);
        if (errno != ESRCH)
            return err_errno(err, errno, "cannot watch a process");
    }
    return TREE_EMPTY;
}

/* One of them is watched; when it has ended the others are looked at again. An older look may show
 * who still lives, but only a new one that nobody does. */
int tree_walk_watch(struct tree *tree, loop_io_fn fn, struct err *err)
{
    int r = watch_first(tree, mark(tree, false), fn, err);
    return r == TREE_EMPTY ? watch_first(tree, mark(tree, true), fn, err) : r;
}

const struct tree_backend tree_backend_walk = {
    .signal = tree_walk_signal,
    .count = tree_walk_count,
    .watch = tree_walk_watch,
};
