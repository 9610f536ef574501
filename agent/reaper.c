/* Takes the end of every child. A leader is reaped through its pidfd, by whoever made it
 * (agent/command.c); SIGCHLD brings us here for the others. A zombie keeps its number until it is
 * reaped, so looking at who is next (WNOWAIT) and then reaping exactly that one has no race; and
 * SIGCHLDs that fall together are no loss, because each one means "look at all". */
#include "agent/reaper.h"

#include <errno.h>
#include <signal.h>
#include <uthash.h>

struct reaper {
    struct loop *loop;
    struct loop_signal *signal;
    struct reaper_child *children; /* hash by pid */
};

struct reaper_child {
    struct reaper *reaper;
    pid_t pid;
    struct loop_child *source;
    loop_child_fn fn;
    void *userdata;
    UT_hash_handle hh;
};

static struct reaper_child *find(const struct reaper *reaper, pid_t pid)
{
    struct reaper_child *child;
    HASH_FIND(hh, reaper->children, &pid, sizeof(pid), child);
    return child;
}

static void forget(struct reaper_child *child)
{
    HASH_DEL(child->reaper->children, child);
    loop_child_free(TAKE_PTR(child->source));
}

static void on_reaped(void *userdata, const siginfo_t *info, const struct rusage *usage)
{
    struct reaper_child *child = userdata;
    forget(child);
    child->fn(child->userdata, info, usage);
}

void reaper_sweep(struct reaper *reaper)
{
    for (;;) {
        siginfo_t info = { 0 };
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
            return;
        struct reaper_child *leader = find(reaper, info.si_pid);
        if (leader)
            loop_child_reap(leader->source); /* or the next round would only see it again */
        else if (waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG) < 0)
            return;
    }
}

static void on_sigchld(void *userdata, int number)
{
    (void)number;
    reaper_sweep(userdata);
}

int reaper_new(struct loop *loop, struct reaper **ret, struct err *err)
{
    const int sigchld = SIGCHLD;
    struct reaper *reaper = calloc(1, sizeof(*reaper));
    if (!reaper)
        return err_nomem(err);
    reaper->loop = loop;
    if (loop_signals_block(&sigchld, 1, err) < 0 ||
        loop_signal_new(loop, SIGCHLD, on_sigchld, reaper, &reaper->signal, err) < 0) {
        reaper_free(reaper);
        return -1;
    }
    *ret = reaper;
    return 0;
}

void reaper_free(struct reaper *reaper)
{
    if (!reaper)
        return;
    loop_signal_free(reaper->signal);
    free(reaper);
}

int reaper_watch(struct reaper *reaper, pid_t pid, int pidfd, loop_child_fn fn, void *userdata,
                 struct reaper_child **ret, struct err *err)
{
    struct reaper_child *child = calloc(1, sizeof(*child));
    if (!child)
        return err_nomem(err);
    child->reaper = reaper;
    child->pid = pid;
    child->fn = fn;
    child->userdata = userdata;
    if (loop_child_new(reaper->loop, pidfd, on_reaped, child, &child->source, err) < 0) {
        free(child);
        return -1;
    }
    HASH_ADD(hh, reaper->children, pid, sizeof(child->pid), child);
    *ret = child;
    return 0;
}

void reaper_unwatch(struct reaper_child *child)
{
    if (!child)
        return;
    if (child->source)
        forget(child);
    free(child);
}

bool reaper_watches(const struct reaper *reaper, pid_t pid)
{
    return find(reaper, pid) != NULL;
}

bool reaper_has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}
