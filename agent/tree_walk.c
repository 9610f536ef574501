/* A tree that is found in /proc: the leader and its descendants, and those that have been left to
 * us as their subreaper. An orphan belongs to the command in whose session or process group it
 * still is; one that has left these (setsid, double fork) still has the command's id in its
 * environment. A process that wipes that too is missed, which is why control groups come first. */
#include "agent/tree-internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/timerfd.h>

#define UNKNOWN_ROUNDS  10u     /* looks at a process that shows no environment (yet) */
#define UNKNOWN_WAIT_NS 5000000 /* between two of them */

static enum proctable_answer is_ours(const struct tree *tree, const struct proctable_entry *entry)
{
    if (entry->pid == tree->leader)
        return tree->reaped ? PROCTABLE_NO : PROCTABLE_YES;
    if (entry->dead || entry->parent != getpid() ||
        reaper_watches(tree->forest->reaper, entry->pid))
        return PROCTABLE_NO;
    /* Both numbers stay the leader's as long as somebody is in its session or group. */
    if (entry->session == tree->leader || entry->group == tree->leader)
        return PROCTABLE_YES;
    char variable[sizeof(TREE_VARIABLE) + COMMAND_ID_LEN + 1];
    (void)snprintf(variable, sizeof(variable), "%s=%s", TREE_VARIABLE, tree->id.text);
    return proctable_has_variable(entry->pid, variable);
}

/* Marks those that live. NULL when there is certainly none. */
static struct proctable *mark(struct tree *tree, bool fresh)
{
    tree->unknown = false;
    if (tree->reaped && !forest_has_orphans(tree->forest))
        return NULL;
    struct proctable *table = forest_processes(tree->forest, fresh);
    if (!table)
        return NULL;
    for (size_t i = 0; i < table->count; i++) {
        enum proctable_answer answer = is_ours(tree, &table->entries[i]);
        table->entries[i].marked = answer == PROCTABLE_YES;
        tree->unknown |= answer == PROCTABLE_UNKNOWN;
    }
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
            reached += proctable_signal(&table->entries[i], number);
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

/* What came into being since the tree was killed dies here: it may be the child of one that was
 * killed before it was seen to have it. */
static int watch_first(struct tree *tree, const struct proctable *table, loop_io_fn fn,
                       struct err *err)
{
    for (size_t i = 0; table && tree->killing && i < table->count; i++)
        if (table->entries[i].marked)
            (void)proctable_signal(&table->entries[i], SIGKILL);
    for (size_t i = 0; table && i < table->count; i++) {
        if (!table->entries[i].marked)
            continue;
        int pidfd = proctable_open(&table->entries[i]);
        if (pidfd >= 0)
            return tree_watch_fd(tree, pidfd, EPOLLIN, fn, err);
        if (errno != ESRCH)
            return err_errno(err, errno, "cannot watch a process");
    }
    return TREE_EMPTY;
}

/* Nobody is known, but somebody may turn out to be ours in a moment. */
static int look_again(struct tree *tree, loop_io_fn fn, struct err *err)
{
    const struct itimerspec soon = { .it_value.tv_nsec = UNKNOWN_WAIT_NS };
    if (!tree->unknown || tree->unknown_rounds++ == UNKNOWN_ROUNDS)
        return TREE_EMPTY;
    CLEANUP_FD int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (fd < 0 || timerfd_settime(fd, 0, &soon, NULL) < 0)
        return err_errno(err, errno, "cannot make a timer");
    return tree_watch_fd(tree, TAKE_FD(fd), EPOLLIN, fn, err);
}

/* One of them is watched; when it has ended the others are looked at again. An older look may show
 * who still lives, but only a new one that nobody does. */
int tree_walk_watch(struct tree *tree, loop_io_fn fn, struct err *err)
{
    int r = watch_first(tree, mark(tree, false), fn, err);
    if (r == TREE_EMPTY)
        r = watch_first(tree, mark(tree, true), fn, err);
    return r == TREE_EMPTY ? look_again(tree, fn, err) : r;
}

const struct tree_backend tree_backend_walk = {
    .signal = tree_walk_signal,
    .count = tree_walk_count,
    .watch = tree_walk_watch,
};
